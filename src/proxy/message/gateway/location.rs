//! Keeps a client on the gateway: turns the references in an answer into gateway paths again.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ALT_SVC, CONTENT_LOCATION, Entry, LINK, LOCATION, SET_COOKIE},
    uri::PathAndQuery,
};

use crate::{
    policy::{Origin, Scheme},
    proxy::message::{gateway::cookie, in_order},
};

/// A client's location on the gateway: needed when the answer comes.
#[derive(Debug)]
pub(crate) struct LocationRewriter {
    /// Path prefix of the upstream: `/https://api.example.com` as the client wrote it, or `/openai`.
    prefix: Box<str>,
    /// Path that `prefix` includes beyond the host: a named route's `/v1`, or nothing.
    base: Box<str>,
    scheme: Scheme,
    authority: Box<str>,
    /// Path of the request at the upstream.
    path: PathAndQuery,
    /// True if nothing came after the prefix: clients then take its last segment for the name of a file.
    bare: bool,
}

/// A reference (RFC 3986 §4.1), by the parts that it omits.
enum Reference<'a> {
    /// `https://host/x`, `//host/x`: the rest begins with `/`, `?` or `#`, or is empty.
    Full(Scheme, &'a [u8], &'a [u8]),
    /// `/x`
    Rooted(&'a [u8]),
    /// `x`, `../x`
    Relative(&'a [u8]),
    /// `?x`, `#x`, `mailto:x`: valid in any place.
    Fixed,
}

// === impl LocationRewriter ===

impl LocationRewriter {
    pub(crate) fn new(prefix: &str, base: &str, upstream: (Scheme, &str), path: &PathAndQuery, bare: bool) -> Self {
        let (scheme, authority) = upstream;
        Self { prefix: prefix.into(), base: base.into(), scheme, authority: authority.into(), path: path.clone(), bare }
    }

    /// Rewrites references that lead away from the gateway. Everything else keeps its bytes, and so do invalid
    /// references.
    pub(crate) fn rewrite(&self, fields: &mut HeaderMap) {
        // `Alt-Svc` offers another way to the API, past the gateway and its limits.
        in_order::remove(fields, |name| name == ALT_SVC);
        each(fields, LOCATION, |value| self.reference(value));
        each(fields, CONTENT_LOCATION, |value| self.reference(value));
        each(fields, LINK, |value| self.links(value));
        each(fields, SET_COOKIE, |value| cookie::rewrite(value, |path| self.cookie_path(path)));
    }

    /// `reference` as a gateway path; `None` if it may stay as it is.
    fn reference(&self, reference: &[u8]) -> Option<Vec<u8>> {
        match Reference::read(reference, self.scheme) {
            Reference::Full(scheme, authority, tail) => self.full(scheme, authority, tail),
            Reference::Rooted(tail) => Some(self.own(&within_root(tail))),
            Reference::Relative(tail) => self.relative(tail),
            Reference::Fixed => None,
        }
    }

    fn full(&self, scheme: Scheme, authority: &[u8], tail: &[u8]) -> Option<Vec<u8>> {
        let authority = str::from_utf8(authority).ok()?;
        // User information is dropped: andante would refuse it, and clients that honour it write its password into
        // logs.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let parse = |text| Origin::parse(scheme, text, Some(scheme.default_port())).ok();
        let leads_to = parse(authority)?;
        let tail = within_root(tail);
        let same = scheme == self.scheme && parse(&self.authority) == Some(leads_to);
        Some(if same { self.own(&tail) } else { written_out(scheme, authority, &tail) })
    }

    /// Relative references stay valid on the gateway, unless they could climb into the prefix.
    fn relative(&self, reference: &[u8]) -> Option<Vec<u8>> {
        if !self.bare && !climbs(reference) {
            return None;
        }
        let path = self.path.path();
        let folder = path.rfind('/').map_or("/", |end| &path[..=end]);
        Some(self.own(&within_root(&[folder.as_bytes(), reference].concat())))
    }

    /// The gateway path for `tail` on the same upstream.
    fn own(&self, tail: &[u8]) -> Vec<u8> {
        match beyond(tail, &self.base) {
            Some(rest) => [self.prefix.as_bytes(), rest].concat(),
            None => written_out(self.scheme, &self.authority, tail),
        }
    }

    /// The `Path` of a cookie for `path`; `None` if the client's default is right.
    fn cookie_path(&self, path: Option<&[u8]>) -> Option<Vec<u8>> {
        let path = match path {
            // From `/openai` a client would derive `/`, and send the cookie to every other upstream.
            None => return self.bare.then(|| self.prefix.as_bytes().to_vec()),
            // No slash at the end: the cookie is also for a request without a path after the prefix.
            Some(b"/") => b"",
            Some(path) => path,
        };
        // A path for the whole host becomes the path of the whole route.
        let rest = self.base.as_bytes().strip_prefix(path);
        let above = rest.is_some_and(|rest| rest.starts_with(b"/") || path.ends_with(b"/") && !rest.is_empty());
        Some(if above { self.prefix.as_bytes().to_vec() } else { self.own(path) })
    }

    /// Rewrites the targets of a `Link` field (RFC 8288 §3): any text in `<…>`, but not in quotes.
    fn links(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut rewritten = None::<Vec<u8>>;
        let (mut copied, mut at, mut quoted) = (0, 0, false);
        while at < value.len() {
            match value[at] {
                b'\\' if quoted => at += 1,
                b'"' => quoted = !quoted,
                b'<' if !quoted => {
                    let Some(length) = value[at + 1..].iter().position(|byte| *byte == b'>') else { break };
                    let end = at + 1 + length;
                    if let Some(target) = self.reference(&value[at + 1..end]) {
                        let rewritten = rewritten.get_or_insert_default();
                        rewritten.extend_from_slice(&value[copied..=at]);
                        rewritten.extend_from_slice(&target);
                        copied = end;
                    }
                    at = end;
                }
                _ => {}
            }
            at += 1;
        }
        let mut rewritten = rewritten?;
        rewritten.extend_from_slice(&value[copied..]);
        Some(rewritten)
    }
}

// === impl Reference ===

impl<'a> Reference<'a> {
    /// Parses `text`; `scheme` is that of the message that contains it.
    fn read(text: &'a [u8], scheme: Scheme) -> Self {
        if let Some(after) = text.strip_prefix(b"//") {
            return Self::authority(scheme, after);
        }
        match text.first() {
            Some(b'/') => return Self::Rooted(text),
            None | Some(b'?' | b'#') => return Self::Fixed,
            Some(_) => {}
        }
        let end = text.iter().position(|byte| matches!(byte, b':' | b'/' | b'?' | b'#')).unwrap_or(text.len());
        let Some(after) = text[end..].strip_prefix(b":").filter(|_| is_scheme(&text[..end])) else {
            return Self::Relative(text);
        };
        let named = |known: &Scheme| text[..end].eq_ignore_ascii_case(known.as_str().as_bytes());
        match ([Scheme::Https, Scheme::Http].into_iter().find(named), after.strip_prefix(b"//")) {
            (Some(scheme), Some(after)) => Self::authority(scheme, after),
            _ => Self::Fixed,
        }
    }

    fn authority(scheme: Scheme, after: &'a [u8]) -> Self {
        let end = after.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(after.len());
        Self::Full(scheme, &after[..end], &after[end..])
    }
}

/// Rewrites every line of a field for which `rewrite` returns a new value.
fn each(fields: &mut HeaderMap, name: HeaderName, rewrite: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let Entry::Occupied(mut lines) = fields.entry(name) else { return };
    for line in lines.iter_mut() {
        if let Some(Ok(mut new)) = rewrite(line.as_bytes()).map(HeaderValue::try_from) {
            new.set_sensitive(line.is_sensitive());
            *line = new;
        }
    }
}

/// RFC 3986 §3.1.
fn is_scheme(text: &[u8]) -> bool {
    let rest = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(rest)
}

fn written_out(scheme: Scheme, authority: &str, tail: &[u8]) -> Vec<u8> {
    [b"/", scheme.as_str().as_bytes(), b"://", authority.as_bytes(), tail].concat()
}

/// The part of `tail` after `base`, if `tail` is below `base` or equal to it.
fn beyond<'a>(tail: &'a [u8], base: &str) -> Option<&'a [u8]> {
    let rest = tail.strip_prefix(base.as_bytes())?;
    matches!(rest.first(), None | Some(b'/' | b'?' | b'#')).then_some(rest)
}

/// Returns whether any segment of the path in `reference` is `..`, which on the gateway could lead into the prefix.
fn climbs(reference: &[u8]) -> bool {
    path_of(reference).0.split(|byte| *byte == b'/').any(is_parent)
}

/// Resolves `..` as clients do (RFC 3986 §5.2.4); at an upstream it ends at the root.
fn within_root(tail: &[u8]) -> Cow<'_, [u8]> {
    if !climbs(tail) {
        return Cow::Borrowed(tail);
    }
    let (path, rest) = path_of(tail);
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if is_parent(segment) {
            kept.pop();
        }
        let dots = is_parent(segment) || is_current(segment);
        if !dots {
            kept.push(segment);
        } else if segments.peek().is_none() {
            kept.push(b"");
        }
    }
    let path = kept.iter().flat_map(|segment| [b"/", *segment]);
    Cow::Owned(path.chain([rest]).collect::<Vec<_>>().concat())
}

/// Splits `tail` into the path, and the query or fragment.
fn path_of(tail: &[u8]) -> (&[u8], &[u8]) {
    tail.split_at(tail.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(tail.len()))
}

/// `..`, in each of the spellings that browsers accept for it (WHATWG URL, double-dot path segment).
fn is_parent(segment: &[u8]) -> bool {
    ["..", ".%2e", "%2e.", "%2e%2e"].iter().any(|dots| segment.eq_ignore_ascii_case(dots.as_bytes()))
}

fn is_current(segment: &[u8]) -> bool {
    [".", "%2e"].iter().any(|dot| segment.eq_ignore_ascii_case(dot.as_bytes()))
}
