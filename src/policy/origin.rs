//! Target of a request, and the one spelling of hosts.

use std::{fmt, sync::Arc};

/// Target of a request, in the one form that all its spellings share: lower case, no trailing dot, IDNA as ASCII.
/// Addresses have their usual form (IPv6 without brackets), and the port is always present.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Plain HTTP or TLS.
    pub scheme: Scheme,
    /// Canonical host name or address.
    pub host: Arc<str>,
    /// Port; the scheme's default if the authority has none.
    pub port: u16,
}

/// Protocol towards an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http://`
    Http,
    /// `https://`, and any other content of a tunnel
    Https,
}

/// Reason why a host cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host, found {found:?}")]
pub struct HostError {
    pub(super) found: String,
}

// === impl Origin ===

impl Origin {
    /// Reads an authority (`host`, `host:port`, `[v6]:port`); `default_port` is used where it names none.
    ///
    /// Strict where it matters (RFC 9110 §4.2, §7.2): no user name, no empty host, and a port that is there must be
    /// `1..=65535` in digits.
    pub fn parse(scheme: Scheme, authority: &str, default_port: Option<u16>) -> Result<Self, HostError> {
        let wrong = || HostError { found: authority.to_owned() };
        let (host, port) = split_port(authority).ok_or_else(wrong)?;
        let port = match port {
            Some(port) => parse_port(port).ok_or_else(wrong)?,
            None => default_port.ok_or_else(wrong)?,
        };
        Ok(Self { scheme, host: canonical_host(host).ok_or_else(wrong)?.into(), port })
    }

    /// Returns the same host with TLS; the port stays, unless it was the default one.
    pub fn secured(&self) -> Self {
        let usual = self.port == Scheme::Http.default_port();
        let port = if usual { Scheme::Https.default_port() } else { self.port };
        Self { scheme: Scheme::Https, host: self.host.clone(), port }
    }

    /// Value of `Host`: leaves out a default port, because some servers compare `Host` with their names.
    pub fn authority(&self) -> String {
        let mut text = self.to_string();
        if self.port == self.scheme.default_port() {
            text.truncate(text.rfind(':').unwrap_or(text.len()));
        }
        text
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

// === impl Scheme ===

impl Scheme {
    /// Scheme of URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL may leave out.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Splits `host:port`, `[v6]:port`; a bare IPv6 address without brackets is not an authority.
pub(super) fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (_, after) = rest.split_once(']')?;
        let host = &authority[..authority.len() - after.len()];
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => (!port.contains(':')).then_some((host, Some(port))),
        None => Some((authority, None)),
    }
}

/// Parses a port. RFC 9110 §4.2.1 allows only digits, and andante accepts neither `+443` nor the empty string.
pub(super) fn parse_port(text: &str) -> Option<u16> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port != 0)
}

/// The one spelling of a host: unifies case, IDNA, `0x7f.1`, brackets and the trailing dot (WHATWG URL, host
/// parsing).
pub(super) fn canonical_host(host: &str) -> Option<String> {
    // The parser below accepts percent-encoding and user names, but here they are only tricks.
    if host.contains(['%', '@', '/', '\\', '?', '#']) || host.chars().any(char::is_whitespace) {
        return None;
    }
    Some(match url::Host::parse(host.strip_suffix('.').unwrap_or(host)).ok()? {
        url::Host::Domain(name) if is_hostname(&name) => name,
        url::Host::Domain(_) => return None,
        url::Host::Ipv4(address) => address.to_string(),
        url::Host::Ipv6(address) => address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string()),
    })
}

/// Labels of letters, digits, hyphens (RFC 1123 §2.1) and underscores, which occur in names of services. URLs allow
/// other names, but no such name resolves.
fn is_hostname(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> String {
        Origin::parse(Scheme::Http, text, Some(80)).unwrap().to_string()
    }

    #[test]
    fn all_spellings_of_a_host_are_one() {
        for text in ["api.example.com", "API.Example.COM", "api.example.com.", "api.example.com:80"] {
            assert_eq!(host(text), "api.example.com:80", "{text}");
        }
        for text in ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::ffff:7f00:1]"] {
            assert_eq!(host(text), "127.0.0.1:80", "{text}");
        }
        assert_eq!(host("bücher.example"), "xn--bcher-kva.example:80");
        assert_eq!(host("[::1]:8080"), "[::1]:8080");
    }

    #[test]
    fn junk_is_not_an_authority() {
        for text in [
            "",
            ":80",
            "a:",
            "a:0",
            "a:99999",
            "a:+443",
            "u@a",
            "a b",
            "[::1",
            "[::1]x",
            "::1",
            "a:80:80",
            "a%2fb",
            "http://a:443/",
            "*",
            "a,b",
            "(a)",
            "a..b",
            ".a",
            "a~b",
        ] {
            assert!(Origin::parse(Scheme::Http, text, Some(80)).is_err(), "{text}");
        }
        assert!(Origin::parse(Scheme::Http, "a", None).is_err());
    }
}
