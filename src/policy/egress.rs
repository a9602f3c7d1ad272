//! The way out: how the upstreams of a rule are reached.

use core::net::IpAddr;
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderValue;

use super::{Origin, Scheme};

/// Way to reach upstreams. The default connects directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Sends requests as HTTPS although the worker asked for `http://`.
    pub secure: bool,
    /// A parent proxy for all connections.
    pub via: Option<Parent>,
    /// Adds no `Via` field to requests and answers.
    pub unannounced: bool,
    /// Addresses to connect to, instead of resolving the host's name.
    pub resolve: Vec<IpAddr>,
    /// Local address to connect from.
    pub source: Option<IpAddr>,
    /// Name to send and to verify in TLS, instead of the host's.
    pub sni: Option<String>,
    /// The client certificate, for upstreams that ask for one.
    pub identity: Option<Identity>,
    /// Time limits for the upstreams of the rule.
    pub timeouts: RuleTimeouts,
}

/// Time limits for the hosts of one rule; `None` uses the general limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTimeouts {
    /// Resolving and connecting to an upstream.
    pub connect: Option<Duration>,
    /// From the request's last byte to the answer's head.
    pub answer: Option<Duration>,
    /// Silence in the middle of a body or a tunnel, in either direction.
    pub idle: Option<Duration>,
}

/// A parent proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Parent {
    /// Protocol of the proxy.
    pub protocol: ParentProtocol,
    /// Canonical host name or address.
    pub host: Arc<str>,
    /// Port of the proxy.
    pub port: u16,
    /// User name and password without percent-encoding.
    pub credentials: Option<(String, String)>,
}

/// Protocol of a parent proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentProtocol {
    /// `http://`: CONNECT for HTTPS, the absolute form for plain HTTP (RFC 9112 §3.2.2).
    Http,
    /// `socks5://`, `socks5h://`: the parent resolves names (RFC 1928).
    Socks5,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file with the certificate and its issuers.
    pub certificate: PathBuf,
    /// PEM file with its key; may be the same file.
    pub key: PathBuf,
}

// === impl Egress ===

impl Egress {
    /// Returns whether requests to `origin` go to an HTTP parent proxy. Such requests have the absolute form
    /// (RFC 9112 §3.2.2) and the parent's [authorization](Parent::authorization).
    pub fn absolute_form(&self, origin: &Origin) -> bool {
        let http = self.via.as_ref().is_some_and(|parent| parent.protocol == ParentProtocol::Http);
        http && origin.scheme == Scheme::Http
    }

    /// Returns whether requests carry andante's own credentials: a client certificate, or a parent proxy's
    /// password.
    pub fn lends_credentials(&self) -> bool {
        self.identity.is_some() || self.via.as_ref().is_some_and(|parent| parent.credentials.is_some())
    }
}

// === impl Parent ===

impl Parent {
    /// `Proxy-Authorization`, if the proxy has credentials (RFC 7617); marked as sensitive.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.credentials.as_ref()?;
        let mut value =
            HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
                .expect("base64 has visible characters only");
        value.set_sensitive(true);
        Some(value)
    }
}

// Leaves out the password, because errors print the proxy.
impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            ParentProtocol::Http => "http",
            ParentProtocol::Socks5 => "socks5",
        };
        let bracketed = self.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_out_as_rfc_7617_has_them_and_nowhere_else() {
        for (user, password, value) in [
            ("Aladdin", "open sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("test", "123\u{a3}", "Basic dGVzdDoxMjPCow=="),
            ("", "", "Basic Og=="),
            ("ab", "", "Basic YWI6"),
        ] {
            let parent = Parent {
                protocol: ParentProtocol::Http,
                host: "corp".into(),
                port: 3128,
                credentials: Some((user.into(), password.into())),
            };
            let authorization = parent.authorization().unwrap();
            assert_eq!(authorization, value);
            assert!(authorization.is_sensitive());
            assert_eq!(format!("{parent} {parent:?}"), "http://corp:3128 http://corp:3128");
        }
    }

    #[test]
    fn only_plain_requests_to_an_http_parent_are_absolute() {
        let origin = |scheme| Origin { scheme, host: "a".into(), port: 1 };
        let via = |protocol| Egress {
            via: Some(Parent { protocol, host: "corp".into(), port: 1, credentials: None }),
            ..Egress::default()
        };
        assert!(via(ParentProtocol::Http).absolute_form(&origin(Scheme::Http)));
        assert!(!via(ParentProtocol::Http).absolute_form(&origin(Scheme::Https)));
        assert!(!via(ParentProtocol::Socks5).absolute_form(&origin(Scheme::Http)));
        assert!(!Egress::default().absolute_form(&origin(Scheme::Http)));
    }
}
