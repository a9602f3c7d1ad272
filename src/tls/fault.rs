//! Explains faults of a certificate chain in words, with the certificate and the fault. Decides nothing: webpki has
//! already refused the chain, and gives no more than one word as the reason.

use rustls::{
    CertificateError,
    pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime},
};
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, oid_registry::Oid, parse_x509_certificate, parse_x509_crl,
    public_key::PublicKey,
};

use super::{date::date, der};

/// Reason why a certificate is refused. Follows "the certificate of so-and-so".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(super) struct CertificateFault {
    reason: String,
    pub(super) hint: &'static str,
}

/// Certificates that an upstream has shown, and the trusted ones at which they may end.
pub(super) struct Chain<'a> {
    leaf: X509Certificate<'a>,
    /// The other certificates that the upstream has shown.
    above: Vec<X509Certificate<'a>>,
    named: Vec<X509Certificate<'a>>,
}

/// RSA keys that can be verified, in bits.
const RSA: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Outdated algorithms, by their number (RFC 3279 §2.2, RFC 5758 §3).
const OUTDATED: [(&str, &str); 6] = [
    ("1.2.840.113549.1.1.2", "MD2"),
    ("1.2.840.113549.1.1.4", "MD5"),
    ("1.2.840.113549.1.1.5", "SHA-1"),
    ("1.3.14.3.2.29", "SHA-1"),
    ("1.2.840.10040.4.3", "SHA-1"),
    ("1.2.840.10045.4.1", "SHA-1"),
];
/// Extensions that may be critical and are understood (RFC 5280 §4.2), by their number.
const UNDERSTOOD: [&str; 5] = ["2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.30", "2.5.29.37"];

const RENEW: &str = "have the upstream's operator replace the certificate";
const RENEW_CHAIN: &str = "have the upstream's operator replace the intermediate certificate";
const CLOCK: &str = "have the upstream's operator replace the intermediate certificate; if it should be valid, check this machine's clock";
const ADDRESS: &str = "have the certificate reissued with the address as an IP address (in openssl IP:…, not DNS:…), or call the upstream by a name";

// === impl Chain ===

impl<'a> Chain<'a> {
    /// Parses the chain; `None` if the first certificate cannot be read.
    pub(super) fn read(
        leaf: &'a CertificateDer<'_>,
        above: &'a [CertificateDer<'_>],
        named: &'a [CertificateDer<'_>],
    ) -> Option<Self> {
        let read = |der: &'a CertificateDer<'_>| parse_x509_certificate(der).ok().map(|(_, read)| read);
        let all = |ders: &'a [CertificateDer<'_>]| ders.iter().filter_map(read).collect();
        Some(Self { leaf: read(leaf)?, above: all(above), named: all(named) })
    }

    /// Explains `error`, which came up while the chain was verified; `None` if there is no better explanation.
    pub(super) fn explain(
        &self,
        error: &CertificateError,
        name: &ServerName<'_>,
        revoked: &[CertificateRevocationListDer<'_>],
        now: UnixTime,
    ) -> Option<CertificateFault> {
        match error {
            CertificateError::BadSignature => self.small_key(),
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => self.outdated_signature(),
            CertificateError::ExpiredContext { .. } | CertificateError::NotValidYetContext { .. } => self.dates(now),
            CertificateError::Revoked => self.revoked(revoked),
            CertificateError::NotValidForNameContext { .. } => self.address_as_name(name),
            CertificateError::Other(other) => self.rule(&other.to_string()),
            _ => None,
        }
    }

    /// Explains a handshake whose signature does not match the certificate's key, as far as that can be verified.
    pub(super) fn explain_handshake(&self) -> Option<CertificateFault> {
        small(&self.leaf).map(|bits| CertificateFault { reason: format!("has {bits}"), hint: RENEW })
    }

    /// Explains a signature with a key that cannot be verified.
    fn small_key(&self) -> Option<CertificateFault> {
        let issuers = self.above.iter().chain(&self.named).filter(|issuer| self.has_signed(issuer));
        let (issuer, bits) = issuers.filter_map(|issuer| Some((issuer, small(issuer)?))).next()?;
        let hint = if self.named.contains(issuer) { RENEW } else { RENEW_CHAIN };
        Some(CertificateFault { reason: format!("is signed by {}, which has {bits}", name(issuer)), hint })
    }

    fn has_signed(&self, issuer: &X509Certificate<'_>) -> bool {
        let subject = issuer.subject().as_raw();
        std::iter::once(&self.leaf).chain(&self.above).any(|signed| signed.issuer().as_raw() == subject)
    }

    fn outdated_signature(&self) -> Option<CertificateFault> {
        self.first(|certificate| {
            let number = certificate.signature_algorithm.algorithm.to_id_string();
            let (_, outdated) = OUTDATED.iter().find(|(known, _)| *known == number)?;
            Some(format!("is signed with {outdated}, which can be forged"))
        })
    }

    /// Explains wrong dates of an intermediate certificate. The error itself has the dates of the upstream's own
    /// certificate.
    fn dates(&self, now: UnixTime) -> Option<CertificateFault> {
        let wrong = |certificate: &X509Certificate<'_>| {
            let at = |time: x509_parser::time::ASN1Time| {
                UnixTime::since_unix_epoch(std::time::Duration::from_secs(time.timestamp().try_into().unwrap_or(0)))
            };
            let (from, until) = (at(certificate.validity().not_before), at(certificate.validity().not_after));
            if now.as_secs() > until.as_secs() {
                return Some(format!("expired on {}", date(until)));
            }
            (now.as_secs() < from.as_secs()).then(|| format!("is valid only from {}", date(from)))
        };
        if wrong(&self.leaf).is_some() {
            return None;
        }
        Some(CertificateFault { hint: CLOCK, ..self.first(wrong)? })
    }

    fn revoked(&self, lists: &[CertificateRevocationListDer<'_>]) -> Option<CertificateFault> {
        let lists: Vec<_> = lists.iter().filter_map(|list| parse_x509_crl(list.as_ref()).ok()).collect();
        self.first(|certificate| {
            let listed = lists.iter().any(|(_, list)| {
                list.issuer().as_raw() == certificate.issuer().as_raw()
                    && list.iter_revoked_certificates().any(|one| one.raw_serial() == certificate.raw_serial())
            });
            listed.then(|| "has been revoked".to_owned())
        })
    }

    /// Explains an address among the DNS names, where clients do not look for addresses (RFC 5280 §4.2.1.6).
    fn address_as_name(&self, name: &ServerName<'_>) -> Option<CertificateFault> {
        let ServerName::IpAddress(address) = name else { return None };
        let address = std::net::IpAddr::from(*address).to_string();
        let names = self.leaf.subject_alternative_name().ok()??;
        let written = |name: &GeneralName<'_>| matches!(name, GeneralName::DNSName(name) if **name == address);
        names.value.general_names.iter().any(written).then(|| CertificateFault {
            reason: format!("has {address} as a DNS name and not as an IP address, where it would count"),
            hint: ADDRESS,
        })
    }

    /// Explains an error that webpki calls by a word of its own.
    fn rule(&self, word: &str) -> Option<CertificateFault> {
        match word {
            "NameConstraintViolation" => {
                let constrains =
                    |issuer: &&X509Certificate<'_>| issuer.name_constraints().is_ok_and(|found| found.is_some());
                let issuer = self.above.iter().chain(&self.named).find(constrains).map(name);
                let issuer = issuer.unwrap_or_else(|| "an authority above it".to_owned());
                let reason = format!("has a name that {issuer} may not sign for (name constraints)");
                Some(CertificateFault { reason, hint: RENEW })
            }
            "EndEntityUsedAsCa" => {
                let usual = |issuer: &&X509Certificate<'_>| !issuer.is_ca() && self.has_signed(issuer);
                let issuer = self.above.iter().find(usual).map_or_else(|| "another certificate".to_owned(), name);
                let reason = format!("is signed by {issuer}, which is not the certificate of an authority (CA:TRUE)");
                Some(CertificateFault { reason, hint: RENEW })
            }
            "PathLenConstraintViolated" => {
                let reason =
                    "is at the end of a longer chain than an authority above it allows (path length)".to_owned();
                Some(CertificateFault { reason, hint: RENEW_CHAIN })
            }
            "UnsupportedCertVersion" => self.first(|certificate| {
                let old = certificate.version.0 != 2;
                old.then(|| {
                    format!(
                        "is of X.509 version {}, which has no names of hosts; version 3 does",
                        certificate.version.0 + 1
                    )
                })
            }),
            "UnsupportedCriticalExtension" => self.first(|certificate| {
                let strange = certificate.extensions().iter().find(|one| one.critical && !is_understood(&one.oid))?;
                Some(format!("has an extension that is critical, and that andante does not know ({})", strange.oid))
            }),
            _ => None,
        }
    }

    /// The first certificate of the chain that `wrong` describes, beginning with the upstream's own.
    fn first(&self, wrong: impl Fn(&X509Certificate<'_>) -> Option<String>) -> Option<CertificateFault> {
        if let Some(reason) = wrong(&self.leaf) {
            return Some(CertificateFault { reason, hint: RENEW });
        }
        let (above, wrong) = self.above.iter().find_map(|above| Some((above, wrong(above)?)))?;
        let reason = format!("depends on the intermediate certificate {}, which {wrong}", name(above));
        Some(CertificateFault { reason, hint: RENEW_CHAIN })
    }
}

/// Problem with the size of a certificate's key.
fn small(certificate: &X509Certificate<'_>) -> Option<String> {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if !RSA.contains(&key.key_size()) => Some(format!(
            "an RSA key of {} bits, where {} to {} can be verified",
            key.key_size(),
            RSA.start(),
            RSA.end()
        )),
        _ => None,
    }
}

fn is_understood(number: &Oid<'_>) -> bool {
    UNDERSTOOD.contains(&number.to_id_string().as_str())
}

fn name(certificate: &X509Certificate<'_>) -> String {
    format!("{:?}", der::common_name(certificate.subject()))
}
