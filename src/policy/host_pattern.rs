//! The hosts that a rule matches: a name, all names below a domain, a port, or every host.

use std::{fmt, str::FromStr};

use super::origin::{HostError, Origin, Scheme, canonical_host, parse_port, split_port};

/// Pattern of a rule's hosts: a name, `*.example.com`, `host:port`, or `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    name: HostMatch,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HostMatch {
    Any,
    /// All names below this suffix, which includes its leading dot.
    Below(String),
    Exactly(String),
}

// === impl HostPattern ===

impl HostPattern {
    /// Returns whether `origin` matches the pattern.
    pub fn matches(&self, origin: &Origin) -> bool {
        self.port.is_none_or(|port| port == origin.port)
            && match &self.name {
                HostMatch::Any => true,
                HostMatch::Exactly(name) => **name == *origin.host,
                HostMatch::Below(suffix) => origin.host.len() > suffix.len() && origin.host.ends_with(suffix.as_str()),
            }
    }

    /// Returns whether a host may match both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        use HostMatch::{Any, Below, Exactly};
        let ports = self.port.is_none() || other.port.is_none() || self.port == other.port;
        ports
            && match (&self.name, &other.name) {
                (Any, _) | (_, Any) => true,
                (Exactly(one), Exactly(two)) => one == two,
                (Exactly(name), Below(suffix)) | (Below(suffix), Exactly(name)) => {
                    name.len() > suffix.len() && name.ends_with(suffix.as_str())
                }
                (Below(one), Below(two)) => one.ends_with(two.as_str()) || two.ends_with(one.as_str()),
            }
    }

    /// Returns whether the pattern names `host`, and no other, at every port.
    pub fn is_exactly(&self, host: &str) -> bool {
        self.port.is_none() && matches!(&self.name, HostMatch::Exactly(name) if name == host)
    }

    /// Returns whether the pattern names one host only, at one port or at all.
    pub fn is_single(&self) -> bool {
        matches!(self.name, HostMatch::Exactly(_))
    }

    /// Likeness of `host` to the pattern, from 0 to 1. A mistyped name is like the right one.
    pub fn likeness(&self, host: &str) -> f64 {
        match &self.name {
            HostMatch::Any => 0.0,
            HostMatch::Exactly(name) => strsim::normalized_damerau_levenshtein(name, host),
            HostMatch::Below(suffix) => {
                // The tail has the suffix's number of labels.
                let labels = suffix.matches('.').count();
                let tail = host.rmatch_indices('.').nth(labels - 1).map_or(host, |(dot, _)| &host[dot + 1..]);
                strsim::normalized_damerau_levenshtein(&suffix[1..], tail)
            }
        }
    }

    /// An example of a matching origin, with HTTPS.
    pub fn example(&self) -> Origin {
        let host = match &self.name {
            HostMatch::Any => "any.invalid".to_owned(),
            HostMatch::Below(suffix) => format!("any{suffix}"),
            HostMatch::Exactly(name) => name.clone(),
        };
        Origin { scheme: Scheme::Https, host: host.into(), port: self.port.unwrap_or(443) }
    }

    /// The port that the pattern names, if any.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Host and port of a URL as copied from a page or a client, without user name and password; `None` if `text`
    /// is no URL. The caller still has to parse them.
    pub fn in_url(text: &str) -> Option<&str> {
        let authority = text.split_once("://")?.1.split(['/', '?', '#']).next()?;
        Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
    }

    /// Name of the single host, or the domain above all hosts; `None` for `*`.
    pub fn name(&self) -> Option<&str> {
        match &self.name {
            HostMatch::Any => None,
            HostMatch::Exactly(name) => Some(name),
            HostMatch::Below(suffix) => Some(&suffix[1..]),
        }
    }

    /// Orders patterns by how specific they are: a name beats `*.example.com` beats `*`; a port breaks ties, and of
    /// two suffixes the longer one wins.
    pub(super) fn weight(&self) -> (usize, usize, bool) {
        match &self.name {
            HostMatch::Exactly(_) => (2, 0, self.port.is_some()),
            HostMatch::Below(suffix) => (1, suffix.len(), self.port.is_some()),
            HostMatch::Any => (0, 0, self.port.is_some()),
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
            "*" => HostMatch::Any,
            _ => match host.strip_prefix("*.") {
                Some(below) => HostMatch::Below(format!(".{}", canonical_host(below).ok_or_else(wrong)?)),
                None => HostMatch::Exactly(canonical_host(host).ok_or_else(wrong)?),
            },
        };
        Ok(Self { name, port })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            HostMatch::Any => f.write_str("*")?,
            HostMatch::Below(suffix) => write!(f, "*{suffix}")?,
            HostMatch::Exactly(name) if name.contains(':') => write!(f, "[{name}]")?,
            HostMatch::Exactly(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_if_a_host_may_be_of_both() {
        let overlap = |(one, two): (&str, &str)| {
            let [one, two] = [one, two].map(|text| text.parse::<HostPattern>().unwrap());
            assert_eq!(one.overlaps(&two), two.overlaps(&one));
            one.overlaps(&two)
        };
        let both = [("a.test", "*.test"), ("*", "a.test:80"), ("*.b.test", "*.test"), ("a.test:80", "a.test")];
        assert!(both.into_iter().all(overlap));
        let none = [("a.test", "b.test"), ("test", "*.test"), ("a.test:80", "a.test:81"), ("*.ab.test", "*.b.test")];
        assert!(!none.into_iter().any(overlap));
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
