//! Which rule a request falls under. Pure: canonical hosts in, a policy out.

mod answers;
mod egress;
mod gateway;
mod page;
mod rules;

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc, time::Duration};

pub use self::{
    answers::{Retry, Spend, Trust},
    egress::{Egress, Identity, Parent, ParentProtocol},
    gateway::Gateway,
    page::{Names, is_page_of_others},
    rules::{Interception, Rules, Unlisted},
};
use crate::limit::{LimitSpec, MarginSpec};

/// Where a request goes, in the one spelling that all spellings of it share: lower case, no trailing dot, IDNA as
/// ASCII, addresses in their usual form (IPv6 without brackets), the port always present.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether it is reached in the clear or by TLS.
    pub scheme: Scheme,
    /// Canonical host name or address.
    pub host: Arc<str>,
    /// Port, the scheme's default filled in.
    pub port: u16,
}

/// How an upstream is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http://`
    Http,
    /// `https://`, and whatever else a tunnel may hold
    Https,
}

/// What becomes of a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Https {
    /// A blind tunnel: one permit, however many requests are inside.
    Tunnel,
    /// andante speaks TLS to both sides, and each request inside takes a permit of its own.
    Intercept,
    /// 403.
    Refuse,
}

/// What the hosts of a rule look like: a name, `*.example.com`, `host:port`, or `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    name: Name,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Any,
    /// Everything below this suffix, which is kept with its leading dot.
    Below(String),
    Exactly(String),
}

/// One rule: whom it is for, and what holds there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Names the rule in metrics, logs and `/status`.
    pub name: Arc<str>,
    /// The hosts it is for; each host that matches has a lane of its own.
    pub hosts: Vec<HostPattern>,
    /// All of these must hold.
    pub limits: Vec<LimitSpec>,
    /// How many requests may be on their way at once.
    pub in_flight: Option<NonZeroU32>,
    /// A ticket that cannot be served within this is refused on arrival.
    pub max_wait: Duration,
    /// How many may wait in one lane.
    pub max_waiting: usize,
    /// The margin for jitter.
    pub margin: MarginSpec,
    /// Whether private, loopback and link-local targets are allowed although andante listens beyond loopback.
    pub allow_private: bool,
    /// What becomes of a CONNECT to its hosts, if the rule says.
    pub https: Option<Https>,
    /// How its hosts are reached.
    pub egress: Egress,
    /// How an allowance that the API tells of is spent.
    pub spend: Spend,
    /// How far what the API tells is believed.
    pub trust: Trust,
    /// What is sent again if it fails; `None` passes every answer through.
    pub retry: Option<Retry>,
    /// Whether a failing upstream is left alone for a while.
    pub breaker: bool,
}

/// Why a host cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host, found {found:?}")]
pub struct HostError {
    found: String,
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

    /// The same host by TLS; the port stays, unless it was the one that goes without saying.
    pub fn secured(&self) -> Self {
        let usual = self.port == Scheme::Http.default_port();
        let port = if usual { Scheme::Https.default_port() } else { self.port };
        Self { scheme: Scheme::Https, host: self.host.clone(), port }
    }

    /// As `Host` has it: without a port that goes without saying, which some servers compare their names with.
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
    /// As URLs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL need not name.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

// === impl HostPattern ===

impl HostPattern {
    /// Whether `origin` is one of the hosts meant.
    pub fn matches(&self, origin: &Origin) -> bool {
        self.port.is_none_or(|port| port == origin.port)
            && match &self.name {
                Name::Any => true,
                Name::Exactly(name) => **name == *origin.host,
                Name::Below(suffix) => origin.host.len() > suffix.len() && origin.host.ends_with(suffix.as_str()),
            }
    }

    /// Whether it names `host`, and no other, at every port.
    pub fn is_exactly(&self, host: &str) -> bool {
        self.port.is_none() && matches!(&self.name, Name::Exactly(name) if name == host)
    }

    /// How much `host` is like one of the hosts meant, from 0 to 1: a name that was mistyped is like the right one.
    pub fn likeness(&self, host: &str) -> f64 {
        match &self.name {
            Name::Any => 0.0,
            Name::Exactly(name) => strsim::normalized_damerau_levenshtein(name, host),
            Name::Below(suffix) => {
                // As many labels as the suffix has.
                let labels = suffix.matches('.').count();
                let tail = host.rmatch_indices('.').nth(labels - 1).map_or(host, |(dot, _)| &host[dot + 1..]);
                strsim::normalized_damerau_levenshtein(&suffix[1..], tail)
            }
        }
    }

    /// The port that the pattern names, if any.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The name that it is, or that all its hosts are below; `None` if it is `*`.
    pub fn name(&self) -> Option<&str> {
        match &self.name {
            Name::Any => None,
            Name::Exactly(name) => Some(name),
            Name::Below(suffix) => Some(&suffix[1..]),
        }
    }

    /// Orders patterns by how much they say: a name beats `*.example.com` beats `*`; a port breaks ties, and of two
    /// suffixes the longer one wins.
    fn weight(&self) -> (usize, usize, bool) {
        match &self.name {
            Name::Exactly(_) => (2, 0, self.port.is_some()),
            Name::Below(suffix) => (1, suffix.len(), self.port.is_some()),
            Name::Any => (0, 0, self.port.is_some()),
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let wrong = || HostError { found: text.to_owned() };
        let (host, port) = split_port(text.trim()).ok_or_else(wrong)?;
        let port = port.map(|port| parse_port(port).ok_or_else(wrong)).transpose()?;
        let name = match host {
            "*" => Name::Any,
            _ => match host.strip_prefix("*.") {
                Some(below) => Name::Below(format!(".{}", canonical_host(below).ok_or_else(wrong)?)),
                None => Name::Exactly(canonical_host(host).ok_or_else(wrong)?),
            },
        };
        Ok(Self { name, port })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Any => f.write_str("*")?,
            Name::Below(suffix) => write!(f, "*{suffix}")?,
            Name::Exactly(name) if name.contains(':') => write!(f, "[{name}]")?,
            Name::Exactly(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

// === impl Policy ===

impl Policy {
    /// What logs and `/status` have in the place of a rule's name, for hosts without one.
    pub const UNRULED: &str = "default";
    /// How long a ticket waits at most unless a rule says otherwise.
    pub const MAX_WAIT: Duration = Duration::from_secs(2 * 3600);
    /// How many wait in one lane at most unless a rule says otherwise.
    pub const MAX_WAITING: usize = 100_000;

    /// Whether it makes anybody wait.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty() || self.in_flight.is_some()
    }

    /// What holds for hosts without a rule, unless anybody says otherwise.
    pub fn unruled() -> Self {
        Self::new(Self::UNRULED, Vec::new())
    }

    /// A policy called `name` for `hosts` that limits nothing yet.
    pub fn new(name: &str, hosts: Vec<HostPattern>) -> Self {
        Self {
            name: name.into(),
            hosts,
            limits: Vec::new(),
            in_flight: None,
            max_wait: Self::MAX_WAIT,
            max_waiting: Self::MAX_WAITING,
            margin: MarginSpec::Auto,
            allow_private: false,
            https: None,
            egress: Egress::default(),
            spend: Spend::default(),
            trust: Trust::default(),
            retry: Some(Retry::default()),
            breaker: true,
        }
    }
}

/// Splits `host:port`, `[v6]:port`; a bare IPv6 address without brackets is not an authority.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
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

/// RFC 9110 §4.2.1 lets a port be digits only; `+443` and the empty string are not ports to us.
fn parse_port(text: &str) -> Option<u16> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port != 0)
}

/// Case, IDNA, `0x7f.1`, brackets and the trailing dot: one spelling for all (WHATWG URL, host parsing).
fn canonical_host(host: &str) -> Option<String> {
    // Percent-encoding and user names are legal to the parser below, and only ever a trick here.
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

/// Labels of letters, digits and hyphens (RFC 1123 §2.1), and of underscores, which many a service has in its name. URLs
/// allow more, of which nobody makes a name that could be resolved.
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
    fn r50_one_spelling_for_all() {
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
    fn r26_junk_is_not_an_authority() {
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
    #[test]
    fn a_mistyped_host_is_like_the_right_one() {
        let like = |pattern: &str, host: &str| pattern.parse::<HostPattern>().unwrap().likeness(host);
        for (pattern, host) in
            [("api.tset", "api.test"), ("api.exmaple.com", "api.example.com"), ("*.exmaple.com", "a.b.example.com")]
        {
            assert!(like(pattern, host) > 0.8, "{pattern} {host}");
        }
        assert!(like("api.openai.com", "www.wikipedia.org") < 0.5);
        assert_eq!(like("*.example.com", "example.com"), 1.0, "which it does not match");
        assert_eq!((like("api.test:8443", "api.test"), like("*", "api.test")), (1.0, 0.0));
        let exact = |pattern: &str| pattern.parse::<HostPattern>().unwrap().is_exactly("a.test");
        assert_eq!(["A.test", "a.test:80", "*.test", "*"].map(exact), [true, false, false, false]);
    }
}
