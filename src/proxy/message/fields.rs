//! Header fields at the border: fields of one hop stay on that hop (RFC 9110 §7.6).

use std::collections::HashSet;

use bytes::Bytes;
/// The field that says how a cache, or a call that several requests share, made the answer (RFC 9211).
pub(crate) use http::header::CACHE_STATUS;
use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPECT, HOST,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT, VIA,
        WWW_AUTHENTICATE,
    },
};
use http_body::Frame;

use super::{in_order, keep_alive::KEEP_ALIVE, server_timing};
use crate::proxy::protocol::MAX_FIELDS;

const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");
/// andante's own field, never taken from other hops (RFC 9209).
pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// andante's id of the request. Fields with this name from others are removed.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("andante-request-id");

/// Removes the fields of the hop by which the message came (RFC 9110 §7.6.1), and the message's framing, which is
/// generated again.
///
/// Returns whether the message allowed trailers with `TE`; the next hop is then to allow them again.
pub(crate) fn remove_hop_by_hop(fields: &mut HeaderMap) -> bool {
    FoundFields::of(fields).remove_hop_by_hop(fields)
}

/// The length that an answer of `version` states, which is generated again from its body.
///
/// # Errors
/// Defects that hyper accepts. Names may be invalid (RFC 9113 §8.2.1): only the parser of HTTP/1 refuses them. Other
/// recipients may read the framing differently (RFC 9112 §6.3).
pub(crate) fn told_length(
    fields: &HeaderMap,
    found: FoundFields,
    version: Version,
) -> Result<Option<HeaderValue>, &'static str> {
    if version == Version::HTTP_2 && fields.keys().any(|name| !is_token(name)) {
        return Err("it has a field whose name is no token");
    }
    if version == Version::HTTP_2 && fields.len() > MAX_FIELDS {
        // hyper counts the fields of HTTP/1 as it reads them.
        return Err("it has more fields than an answer may have");
    }
    if found.coding
        && let Some(coding) = fields.get(TRANSFER_ENCODING)
    {
        let alone = fields.get_all(TRANSFER_ENCODING).iter().nth(1).is_none();
        if !(alone && coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
            return Err("its transfer coding is not \"chunked\" alone, and no other was requested");
        }
        let both = found.length && fields.contains_key(CONTENT_LENGTH);
        return if both { Err("it has both a Transfer-Encoding and a Content-Length") } else { Ok(None) };
    }
    if !found.length {
        return Ok(None);
    }
    // hyper checks the length only if there is a body, but it is passed on in any case. Equal lengths count once (RFC
    // 9112 §6.3).
    let lines = fields.get_all(CONTENT_LENGTH).iter();
    let mut lengths = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let Some(length) = lengths.next() else { return Ok(None) };
    let valid = !length.is_empty() && length.iter().all(u8::is_ascii_digit) && lengths.all(|other| other == length);
    match HeaderValue::from_bytes(length) {
        Ok(length) if valid => Ok(Some(length)),
        _ => Err("its Content-Length is not one number"),
    }
}

/// Describes a defect of fields that h2 accepts (RFC 9113 §8.2.1). The parser of HTTP/1 lets neither defect through.
pub(crate) fn malformed(fields: &HeaderMap) -> Option<&'static str> {
    if fields.keys().any(|name| !is_token(name)) {
        return Some("a field whose name is no token");
    }
    let blank = |value: &HeaderValue| value.as_bytes() != trimmed(value);
    fields.values().any(blank).then_some("a field whose value begins or ends with a blank")
}

/// Trims the values' outer whitespace, which HTTP/1 would not have made part of the value.
pub(crate) fn trim(fields: &mut HeaderMap) {
    for value in fields.values_mut() {
        let inner = trimmed(value);
        if inner.len() != value.len()
            && let Ok(mut inner) = HeaderValue::from_bytes(inner)
        {
            inner.set_sensitive(value.is_sensitive());
            *value = inner;
        }
    }
}

fn trimmed(value: &HeaderValue) -> &[u8] {
    value.as_bytes().trim_ascii()
}

/// Returns whether the name is a token (RFC 9110 §5.6.2). Only quotes need a check: the library allows them in HTTP/2
/// names.
pub(crate) fn is_token(name: &HeaderName) -> bool {
    !name.as_str().contains('"')
}

/// Flags for the fields that every message is searched for. One pass over a message's few fields replaces a dozen
/// look-ups of fields that are usually absent.
#[derive(Clone, Copy, Default)]
pub(crate) struct FoundFields {
    pub(crate) coding: bool,
    pub(crate) length: bool,
    pub(crate) expect: bool,
    pub(crate) upgrade: bool,
    pub(crate) via: bool,
    /// A field with which a request states its terms: `Prefer`, `Priority`, `Andante-…`.
    pub(crate) term: bool,
    /// A field that may hold a key or a password for the API.
    pub(crate) credential: bool,
    pub(crate) timing: bool,
    /// A field in which a server asks for credentials.
    pub(crate) challenge: bool,
    connection: bool,
    te: bool,
    /// A `Keep-Alive` field: how long the connection is kept.
    pub(crate) keep_alive: bool,
    proxy: bool,
    cache: bool,
    andante: bool,
}

impl FoundFields {
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        Self::passing(fields, |_, _| {})
    }

    /// Flags of `fields`; calls `look` for each field.
    pub(crate) fn passing<'a>(fields: &'a HeaderMap, mut look: impl FnMut(&HeaderName, &'a HeaderValue)) -> Self {
        let mut found = Self::default();
        for (name, value) in fields {
            found.note(name);
            look(name, value);
        }
        found
    }

    fn note(&mut self, name: &HeaderName) {
        // Names that the library knows are compared as numbers.
        match *name {
            TRANSFER_ENCODING => self.coding = true,
            CONTENT_LENGTH => self.length = true,
            EXPECT => self.expect = true,
            UPGRADE => self.upgrade = true,
            VIA => self.via = true,
            CONNECTION => self.connection = true,
            TE => self.te = true,
            CACHE_STATUS => self.cache = true,
            AUTHORIZATION => self.credential = true,
            WWW_AUTHENTICATE | PROXY_AUTHENTICATE => self.challenge = true,
            // Fields that nearly every message has need no flag.
            CONTENT_TYPE | DATE | SERVER | HOST | USER_AGENT | ACCEPT | ACCEPT_ENCODING => {}
            _ => match name.as_str().as_bytes() {
                [b'p', b'r', b'o', b'x', b'y', b'-', ..] => self.proxy = true,
                [b'a', b'n', b'd', b'a', b'n', b't', b'e', b'-', ..] => (self.andante, self.term) = (true, true),
                b"prefer" | b"priority" => self.term = true,
                b"keep-alive" => self.keep_alive = true,
                b"server-timing" => self.timing = true,
                name => self.credential |= is_key(name),
            },
        }
    }

    /// [`remove_hop_by_hop`] for the `fields` in which these flags were found. The remaining fields keep their order.
    pub(crate) fn remove_hop_by_hop(self, fields: &mut HeaderMap) -> bool {
        let trailers = self.te && allows_trailers(fields);
        let named = if self.connection { named_by_connection(fields) } else { HashSet::new() };
        let is_of_hop = |name: &HeaderName| match *name {
            CONNECTION => self.connection,
            CONTENT_LENGTH => self.length,
            TRANSFER_ENCODING => self.coding,
            TE | UPGRADE | EXPECT => true,
            PROXY_AUTHORIZATION => self.proxy,
            _ if self.keep_alive && *name == KEEP_ALIVE => true,
            _ if self.proxy && (*name == PROXY_CONNECTION || *name == PROXY_AUTHENTICATION_INFO) => true,
            _ => self.andante && name.as_str().starts_with("andante-") || !named.is_empty() && named.contains(name),
        };
        in_order::remove(fields, is_of_hop);
        if !named.is_empty() && fields.contains_key(TRAILER) {
            announce_others(fields, &named);
        }
        if self.proxy && fields.contains_key(PROXY_STATUS) {
            remove_our_status(fields, PROXY_STATUS);
        }
        if self.cache {
            remove_our_status(fields, CACHE_STATUS);
        }
        trailers
    }
}

/// Returns whether the field holds a key or a password for the API, according to the manuals of the APIs.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || is_key(name.as_str().as_bytes())
}

fn is_key(name: &[u8]) -> bool {
    matches!(
        name,
        b"x-api-key"
            | b"api-key"
            | b"apikey"
            | b"x-auth-token"
            | b"x-access-token"
            | b"x-goog-api-key"
            | b"ocp-apim-subscription-key"
            | b"private-token"
    )
}

fn allows_trailers(fields: &HeaderMap) -> bool {
    tokens(fields, &TE).any(|token| token.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("trailers"))
}

/// The fields that `Connection` names, on all of its lines.
fn named_by_connection(fields: &HeaderMap) -> HashSet<HeaderName> {
    // `Connection: close, host` must not remove fields that the message needs.
    const KEPT: [&str; 4] = ["host", "via", "cache-control", "content-type"];
    // Nearly all lines only state how long the connection lives, and name no other field.
    const OF_CONNECTION: [&str; 2] = ["keep-alive", "close"];
    let is = |token: &str, names: &[&str]| names.iter().any(|name| token.eq_ignore_ascii_case(name));
    let named = tokens(fields, &CONNECTION).filter(|token| !is(token, &OF_CONNECTION) && !is(token, &KEPT));
    named.filter_map(|token| token.parse().ok()).collect()
}

/// Removes the `named` fields from `Trailer`: they do not pass as trailers either, and only announced trailers are sent
/// on.
fn announce_others(fields: &mut HeaderMap, named: &HashSet<HeaderName>) {
    let passes = |token: &&str| !token.parse().is_ok_and(|name: HeaderName| named.contains(&name));
    let announced = tokens(fields, &TRAILER).filter(passes).collect::<Vec<_>>().join(", ");
    match HeaderValue::try_from(announced) {
        Ok(announced) if !announced.is_empty() => drop(fields.insert(TRAILER, announced)),
        _ => in_order::remove(fields, |name| name == TRAILER),
    }
}

/// Removes invalid fields from trailers, and fields that come too late there.
pub(crate) fn clean_trailers(frame: &mut Frame<Bytes>) {
    let Some(trailers) = frame.trailers_mut() else { return };
    remove_hop_by_hop(trailers);
    trim(trailers);
    let misplaced = |name: &&HeaderName| belongs_into_head(name) || !is_token(name);
    let misplaced: Vec<HeaderName> = trailers.keys().filter(misplaced).cloned().collect();
    for name in misplaced {
        trailers.remove(name);
    }
    server_timing::remove(trailers);
}

/// Returns whether a field frames, routes, authenticates, modifies or controls its message, or describes its content.
/// Such a field is of no use in trailers, and may deceive a recipient (RFC 9110 §6.5.1).
fn belongs_into_head(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(
        name,
        "accept"
            | "accept-charset"
            | "accept-encoding"
            | "accept-language"
            | "age"
            | "authorization"
            | "cache-control"
            | "content-disposition"
            | "content-encoding"
            | "content-language"
            | "content-location"
            | "content-range"
            | "content-type"
            | "cookie"
            | "cookie2"
            | "date"
            | "expires"
            | "forwarded"
            | "host"
            | "idempotency-key"
            | "location"
            | "max-forwards"
            | "origin"
            | "pragma"
            | "prefer"
            | "priority"
            | "proxy-authenticate"
            | "range"
            | "referer"
            | "retry-after"
            | "set-cookie"
            | "set-cookie2"
            | "trailer"
            | "user-agent"
            | "vary"
            | "via"
            | "warning"
            | "www-authenticate"
    ) || ["access-control-", "if-", "sec-", "x-forwarded-"].iter().any(|kind| name.starts_with(kind))
}

/// Removes every line of the field `name` in which another hop uses andante's name.
#[cold]
pub(crate) fn remove_our_status(fields: &mut HeaderMap, name: HeaderName) {
    let is_ours = |member: &str| {
        let name = member.split(';').next().unwrap_or_default();
        name.trim().trim_matches('"').eq_ignore_ascii_case("andante")
    };
    let has_ours = |line: &HeaderValue| members(line).any(is_ours);
    if !fields.get_all(&name).iter().any(has_ours) {
        return;
    }
    let lines: Vec<HeaderValue> = fields.get_all(&name).into_iter().cloned().collect();
    in_order::remove(fields, |other| *other == name);
    for line in lines {
        if !has_ours(&line) {
            fields.append(&name, line);
        }
    }
}

/// The members of a comma-separated field, over all its lines. Members that are not text are skipped.
pub(crate) fn tokens<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    fields.get_all(name).into_iter().flat_map(members)
}

fn members(line: &HeaderValue) -> impl Iterator<Item = &str> {
    let members = line.as_bytes().split(|byte| *byte == b',').filter_map(|member| str::from_utf8(member).ok());
    members.map(str::trim).filter(|member| !member.is_empty())
}

/// Appends andante to the message's `Via` (RFC 9110 §7.6.3).
pub(crate) fn add_via(fields: &mut HeaderMap, via: &[HeaderValue; 3], received: Version) {
    let by = match received {
        Version::HTTP_10 => 1,
        Version::HTTP_2 => 2,
        _ => 0,
    };
    fields.append(VIA, via[by].clone());
}

/// Returns whether the message has passed this process before.
pub(crate) fn is_loop(fields: &HeaderMap, via: &[HeaderValue; 3]) -> bool {
    let name = |via: &HeaderValue| via.as_bytes().rsplit(|b| *b == b' ').next().map(<[u8]>::to_vec).unwrap_or_default();
    let ours = name(&via[0]);
    tokens(fields, &VIA).any(|hop| hop.split_whitespace().nth(1).is_some_and(|by| by.as_bytes() == ours))
}

/// Memory of the fields of a head, or of trailers.
pub(crate) fn fields_bytes(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}
