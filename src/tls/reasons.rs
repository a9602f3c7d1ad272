//! Descriptions of TLS failures, with advice.

use std::io;

use rustls::{AlertDescription, CertificateError};

use super::{date::date, trust::Untrusted};
use crate::{
    error::{BoxError, Error},
    policy::Origin,
};

/// Returns the TLS error inside `error`, if there is one: an alert can come long after the
/// handshake.
pub fn failure(origin: &Origin, error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(of_tls(origin, tls));
        }
        // An `io::Error` skips the error that it wraps: its source is the wrapped error's source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map_or_else(|| error.source(), |inner| Some(inner as _));
    }
    None
}

pub(super) fn of_handshake(origin: &Origin, error: io::Error) -> Error {
    failure(origin, &error).unwrap_or_else(|| {
        let source: BoxError = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it closed the connection in the middle of the handshake".into(),
            _ => error.into(),
        };
        Error::Tls { origin: origin.to_string(), source }
    })
}

/// The host has no name that TLS could verify.
pub(super) fn nameless(origin: &Origin) -> Error {
    Error::Tls { origin: origin.to_string(), source: "its host is no name that a certificate could have".into() }
}

fn of_tls(origin: &Origin, error: &rustls::Error) -> Error {
    let name = origin.to_string();
    let source: BoxError = match error {
        rustls::Error::InvalidCertificate(error) => return of_certificate(origin, error),
        rustls::Error::AlertReceived(alert) => {
            return Error::TlsAlert { origin: name, alert: alert_name(*alert), hint: alert_hint(*alert) };
        }
        rustls::Error::InvalidMessage(_) => "the upstream does not speak TLS on this port".into(),
        rustls::Error::PeerIncompatible(reason) => format!("the upstream speaks TLS as we do not: {reason:?}").into(),
        error => error.clone().into(),
    };
    Error::Tls { origin: name, source }
}

fn of_certificate(origin: &Origin, error: &CertificateError) -> Error {
    const CLOCK: &str = "have the upstream's certificate renewed; if it should be valid, check this machine's clock";
    const ASK: &str = "have the upstream's operator replace the certificate";
    const NAME: &str = "call the upstream by one of these names, or set `sni` in a rule for it";
    let (reason, hint) = match error {
        CertificateError::ExpiredContext { not_after, .. } => (format!("expired on {}", date(*not_after)), CLOCK),
        CertificateError::Expired => ("has expired".to_owned(), CLOCK),
        CertificateError::NotValidYetContext { not_before, .. } => {
            (format!("is valid only from {}", date(*not_before)), CLOCK)
        }
        CertificateError::NotValidYet => ("is not valid yet".to_owned(), CLOCK),
        CertificateError::NotValidForNameContext { expected, presented } => {
            (format!("is not for \"{}\" but for {}", expected.to_str(), names(presented)), NAME)
        }
        CertificateError::NotValidForName => ("is not for this host".to_owned(), NAME),
        CertificateError::Revoked => ("has been revoked".to_owned(), ASK),
        CertificateError::BadSignature => ("has a signature that is wrong".to_owned(), ASK),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            ("is signed in a way that is not supported here".to_owned(), ASK)
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            ("comes with a signature of another kind than its key, or its issuer's".to_owned(), ASK)
        }
        CertificateError::BadEncoding => ("cannot be read (X.509 in DER, RFC 5280)".to_owned(), ASK),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            ("is not for servers".to_owned(), ASK)
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<Untrusted>() {
            Some(untrusted) => return untrusted.about(origin),
            None => (format!("cannot be used ({other})"), ASK),
        },
        error => (format!("cannot be used ({error})"), ASK),
    };
    Error::Certificate { origin: origin.to_string(), reason, hint }
}

/// The names that a certificate has. webpki prints them as `DnsName("example.com")`.
fn names(presented: &[String]) -> String {
    /// Names that are shown; some certificates have hundreds.
    const MOST: usize = 5;
    let plain = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        // The names are foreign text, and may end up on a terminal.
        inner.trim_matches('"').chars().filter(|c| !c.is_control()).take(253).collect::<String>()
    };
    let shown: Vec<_> = presented.iter().take(MOST).map(plain).collect();
    match presented.len() {
        0 => "no name at all (it has no subjectAltName)".to_owned(),
        more if more > MOST => format!("{} and {} more", shown.join(", "), more - MOST),
        _ => shown.join(", "),
    }
}

/// Name of an alert as in RFC 8446 §6: `certificate_required`.
fn alert_name(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => "unknown_ca".to_owned(),
        AlertDescription::UnrecognisedName => "unrecognized_name".to_owned(),
        AlertDescription::UnknownPSKIdentity => "unknown_psk_identity".to_owned(),
        AlertDescription::Unknown(code) => code.to_string(),
        alert => {
            let mut name = String::new();
            for c in format!("{alert:?}").chars() {
                if c.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(c.to_ascii_lowercase());
            }
            name
        }
    }
}

fn alert_hint(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired => {
            "the upstream wants a client certificate: set `client-cert` in a rule for it"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => {
            "the upstream does not accept our client certificate: check `client-cert` in the rule for it"
        }
        AlertDescription::HandshakeFailure => {
            "the upstream shares no cipher with us, or wants a client certificate: set `client-cert` in a rule for it"
        }
        AlertDescription::UnrecognisedName => {
            "the upstream serves no such host: check its name, or set `sni` in a rule"
        }
        AlertDescription::ProtocolVersion => "the upstream speaks neither TLS 1.2 nor TLS 1.3",
        AlertDescription::NoApplicationProtocol => "the upstream speaks neither HTTP/1.1 nor HTTP/2 on this port",
        _ => "look at the upstream's log: it ended the handshake",
    }
}
