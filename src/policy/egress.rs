//! The way out: how the upstreams of a rule are reached.

use std::{fmt, net::IpAddr, path::PathBuf, sync::Arc};

/// How upstreams are reached. The default goes straight there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Leaves as HTTPS although the worker asked for `http://`.
    pub secure: bool,
    /// A parent proxy that everything goes through.
    pub via: Option<Parent>,
    /// Addresses to connect to, in the place of what the name resolves to.
    pub resolve: Vec<IpAddr>,
    /// Our own address to connect from.
    pub source: Option<IpAddr>,
    /// The name to ask for and to verify in TLS, in the place of the host's.
    pub sni: Option<String>,
    /// What we show to upstreams that want to know who we are.
    pub identity: Option<Identity>,
}

/// A parent proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Parent {
    /// What it speaks.
    pub protocol: ParentProtocol,
    /// Canonical host name or address.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// User name and password, as they were before they were percent-encoded.
    pub credentials: Option<(String, String)>,
}

/// What a parent proxy speaks.
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
    /// PEM file with the certificate and what it is signed by.
    pub certificate: PathBuf,
    /// PEM file with its key; may be the same file.
    pub key: PathBuf,
}

// Never with its password: it is printed where errors are.
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
