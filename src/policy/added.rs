//! Rules for some requests of their hosts, in addition to the hosts' own rule.

use std::{fmt, str::FromStr};

use super::normal_form::{PathReadings, Segments, unescaped};

/// Requests that a rule matches at its hosts, and the key that gives each value a budget of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Pattern of the requests' paths.
    pub path: Option<PathPattern>,
    /// Methods of the requests; empty means any.
    pub methods: Vec<Box<str>>,
    /// Header fields that must all be present, in small letters.
    pub headers: Vec<Box<str>>,
    /// Parts of the key that tells the budgets apart, besides the host.
    pub key: Vec<KeyPart>,
    /// Exempts these requests from further added rules and from the limits of the hosts' own rule.
    pub only: bool,
    /// Matches requests that may not use the [reserve](super::Reserve) of their hosts' own rule.
    pub patient: bool,
}

/// Pattern of a path: `/v1/{tenant}/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    segments: Vec<Segment>,
    /// Any further segments match.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Plain(Box<str>),
    Any,
    Named(Box<str>),
}

/// A part of the key that tells a rule's budgets apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The host.
    Host,
    /// The method.
    Method,
    /// A segment of the path that the rule's `path` names.
    Path(Box<str>),
    /// The value of a header field.
    Header(Box<str>),
    /// The value of a parameter of the query.
    Query(Box<str>),
    /// The flow (`Andante-Flow`).
    Flow,
    /// The client.
    Client,
}

/// Reason why a rule does not match a request to one of its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch<'a> {
    /// The rule is for other methods.
    Method,
    /// The rule is for other paths.
    Path,
    /// The rule is for requests with this header field.
    Header(&'a str),
    /// The request is urgent.
    Urgent,
}

/// Reason why a text is no pattern, or no part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPart(&'static str);

// === impl Added ===

impl Added {
    /// Reason why the rule does not match a request with this method, path and header fields; `None` if it matches.
    pub fn mismatch(
        &self,
        method: &str,
        path: &PathReadings<'_>,
        has_header: impl Fn(&str) -> bool,
    ) -> Option<Mismatch<'_>> {
        if !self.methods.is_empty() && self.methods.iter().all(|one| **one != *method) {
            return Some(Mismatch::Method);
        }
        if self.matching(path).next().is_none() {
            return Some(Mismatch::Path);
        }
        self.headers.iter().find(|header| !has_header(header)).map(|header| Mismatch::Header(header))
    }

    /// Returns whether the rule matches every request, and so also those inside a blind tunnel.
    pub fn is_for_unseen(&self) -> bool {
        self.path.is_none() && self.methods.is_empty() && self.headers.is_empty()
    }

    /// The readings of `path` that the rule matches.
    pub fn matching<'a, 'p>(&self, path: &'p PathReadings<'a>) -> impl Iterator<Item = &'p Segments<'a>> {
        path.iter().filter(|reading| self.path.as_ref().is_none_or(|pattern| pattern.matches(reading)))
    }

    /// Returns whether no further rule applies to a request with this `path`, which [matches](Self::mismatch) this
    /// rule. If a server may read the path as another one, the limits for that other path hold too.
    pub fn is_only_for(&self, path: &PathReadings<'_>) -> bool {
        self.only && self.matching(path).count() == path.iter().count()
    }

    /// Returns whether a request may match both this rule and the `other` one.
    pub fn overlaps(&self, other: &Self) -> bool {
        let methods = self.methods.is_empty()
            || other.methods.is_empty()
            || self.methods.iter().any(|method| other.methods.contains(method));
        methods && self.path.as_ref().zip(other.path.as_ref()).is_none_or(|(one, other)| one.overlaps(other))
    }

    /// The segment called `name` of a [reading](Self::matching) of a path.
    pub fn named<'a>(&self, name: &str, path: &'a Segments<'_>) -> Option<&'a str> {
        let at = self.path.as_ref()?.position(name)?;
        path.get(at).map(|segment| &**segment)
    }
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("it is for other methods"),
            Self::Path => f.write_str("it is for other paths"),
            Self::Header(name) => write!(f, "it is for requests with the field {name}"),
            Self::Urgent => f.write_str("it is for requests of urgency 2 to 7"),
        }
    }
}

// === impl PathPattern ===

impl PathPattern {
    /// Returns whether the pattern has a segment called `name`.
    pub fn names(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.segments.iter().position(|segment| matches!(segment, Segment::Named(named) if **named == *name))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (shorter, longer) = if self.segments.len() <= other.segments.len() { (self, other) } else { (other, self) };
        let alike = |(one, other): (&Segment, &Segment)| match (one, other) {
            (Segment::Plain(one), Segment::Plain(other)) => one == other,
            _ => true,
        };
        (shorter.open || shorter.segments.len() == longer.segments.len())
            && shorter.segments.iter().zip(&longer.segments).all(alike)
    }

    fn matches(&self, path: &Segments<'_>) -> bool {
        let fits = if self.open { path.len() >= self.segments.len() } else { path.len() == self.segments.len() };
        fits && self.segments.iter().zip(path).all(|(segment, found)| match segment {
            Segment::Plain(plain) => **plain == **found,
            Segment::Any | Segment::Named(_) => true,
        })
    }
}

impl FromStr for PathPattern {
    type Err = BadPart;

    fn from_str(text: &str) -> Result<Self, BadPart> {
        let below = text.strip_prefix('/').ok_or(BadPart("a path begins with /"))?;
        if text.contains(['?', '#']) {
            return Err(BadPart("a path has no ? and no #"));
        }
        let (below, open) = match below.strip_suffix('*') {
            Some(before) if before.is_empty() || before.ends_with('/') => (before, true),
            _ => (below, false),
        };
        let mut segments: Vec<Segment> = Vec::new();
        for text in below.split('/').filter(|segment| !segment.is_empty()) {
            segments.push(match text.strip_prefix('{').map(|named| named.strip_suffix('}')) {
                _ if text == "*" => Segment::Any,
                Some(Some(name)) if is_name(name) => Segment::Named(name.into()),
                None if !text.contains(['{', '}', '*']) => Segment::Plain(unescaped(text).into()),
                _ => return Err(BadPart("a segment is a text, a name like {tenant}, or *")),
            });
        }
        let mut names: Vec<_> = segments
            .iter()
            .filter_map(|segment| if let Segment::Named(name) = segment { Some(name) } else { None })
            .collect();
        names.sort_unstable();
        if names.windows(2).any(|two| two[0] == two[1]) {
            return Err(BadPart("two segments have one name"));
        }
        Ok(Self { segments, open })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Plain(text) => write!(f, "/{text}")?,
                Segment::Any => f.write_str("/*")?,
                Segment::Named(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.open, self.segments.is_empty()) {
            (true, _) => f.write_str("/*"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

// === impl KeyPart ===

impl FromStr for KeyPart {
    type Err = BadPart;

    fn from_str(text: &str) -> Result<Self, BadPart> {
        Ok(match text.split_once(':') {
            None if text == "host" => Self::Host,
            None if text == "method" => Self::Method,
            None if text == "flow" => Self::Flow,
            None if text == "client" => Self::Client,
            Some(("path", name)) if is_name(name) => Self::Path(name.into()),
            Some(("header", name)) if is_name(name) => Self::Header(name.to_ascii_lowercase().into()),
            Some(("query", name)) if !name.is_empty() => Self::Query(name.into()),
            _ => return Err(BadPart("it is none of host, method, flow, client, path:…, header:… and query:…")),
        })
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Method => f.write_str("method"),
            Self::Path(name) => write!(f, "path:{name}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Flow => f.write_str("flow"),
            Self::Client => f.write_str("client"),
        }
    }
}

impl fmt::Display for Added {
    /// Default name of the rule: `POST /search with x-batch`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if !self.methods.is_empty() {
            words.push(self.methods.join(","));
        }
        words.extend(self.patient.then(|| "of urgency 2 to 7".to_owned()));
        words.extend(self.path.as_ref().map(PathPattern::to_string));
        if !self.headers.is_empty() {
            words.push(format!("with {}", self.headers.join(",")));
        }
        let key: Vec<_> = self.key.iter().filter(|part| **part != KeyPart::Host).map(KeyPart::to_string).collect();
        if !key.is_empty() {
            words.push(format!("by {}", key.join(",")));
        }
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        pattern.parse::<PathPattern>().unwrap().matches(PathReadings::of(path).strict())
    }

    #[test]
    fn a_path_is_matched_as_servers_read_it() {
        for path in ["/search", "/search/", "//search", "/%73earch", "/a/../search", "/./search"] {
            assert!(matches("/search", path), "{path}");
        }
        for path in ["/", "/search/more", "/Search", "/a/search", "/search%2Fmore"] {
            assert!(!matches("/search", path), "{path}");
        }
    }

    #[test]
    fn patterns_overlap_if_a_path_may_be_of_both() {
        let overlap = |(one, two): (&str, &str)| {
            let [one, two] = [one, two].map(|text| text.parse::<PathPattern>().unwrap());
            assert_eq!(one.overlaps(&two), two.overlaps(&one));
            one.overlaps(&two)
        };
        assert!(
            [("/*", "/a/b"), ("/v1/{tenant}/*", "/v1/a"), ("/a/*/c", "/a/b/c"), ("/a/*", "/a")]
                .into_iter()
                .all(overlap)
        );
        assert!(![("/a", "/b"), ("/a", "/a/b"), ("/v1/*", "/v2/a"), ("/a/*", "/")].into_iter().any(overlap));
    }

    #[test]
    fn a_star_at_the_end_is_whatever_follows_and_elsewhere_one_segment() {
        for path in ["/v1/acme", "/v1/acme/", "/v1/acme/a/b"] {
            assert!(matches("/v1/{tenant}/*", path), "{path}");
        }
        assert!(!matches("/v1/{tenant}/*", "/v1"));
        assert!(!matches("/v1/{tenant}", "/v1/acme/a"));
        assert!(matches("/*", "/") && matches("/*", "/a/b"));
        assert!(matches("/a/*/c", "/a/b/c") && !matches("/a/*/c", "/a/c"));
    }

    #[test]
    fn segments_are_called_by_names() {
        let added = Added { path: Some("/v1/{tenant}/*".parse().unwrap()), ..Added::default() };
        let named = |path: &str| added.named("tenant", PathReadings::of(path).strict()).map(str::to_owned);
        assert_eq!(named("/v1/acme/things"), Some("acme".into()));
        assert_eq!(named("/v1/%61cme"), Some("acme".into()));
        assert_eq!(added.named("other", PathReadings::of("/v1/acme").strict()), None);
    }

    #[test]
    fn what_is_no_pattern_is_refused_and_what_is_one_is_written_as_it_was() {
        for wrong in ["", "search", "/a?b", "/{}", "/{a}/{a}", "/a*", "/{a", "/{a b}"] {
            assert!(wrong.parse::<PathPattern>().is_err(), "{wrong}");
        }
        for good in ["/", "/*", "/search", "/v1/{tenant}/*", "/a/*/c"] {
            assert_eq!(good.parse::<PathPattern>().unwrap().to_string(), good);
        }
        for good in ["host", "method", "flow", "client", "path:tenant", "header:x-api-key", "query:api_key"] {
            assert_eq!(good.parse::<KeyPart>().unwrap().to_string(), good);
        }
        assert!("header:".parse::<KeyPart>().is_err() && "cookie".parse::<KeyPart>().is_err());
    }

    #[test]
    fn method_and_header_must_be_there() {
        let added = Added { methods: vec!["POST".into()], headers: vec!["x-batch".into()], ..Added::default() };
        let path = PathReadings::of("/");
        assert_eq!(added.mismatch("POST", &path, |name| name == "x-batch"), None);
        assert_eq!(added.mismatch("GET", &path, |_| true), Some(Mismatch::Method));
        assert_eq!(added.mismatch("POST", &path, |_| false), Some(Mismatch::Header("x-batch")));
        assert_eq!(added.to_string(), "POST with x-batch");
    }
}
