//! A reusable answer: whether it may be stored, whether it may be used now, and how it is validated (RFC 9111 §3 and
//! §4).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        AGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
        IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, SET_COOKIE,
    },
};

use super::freshness::{Freshness, Received, date};
use crate::{
    clock::Instant,
    proxy::{
        message::{
            cache_control::{AnswerDirectives, RequestDirectives},
            kept_head,
            quoted_list::quoted_members,
        },
        protocol::MAX_FIELDS,
    },
};

/// Fields that describe the stored body, which a 304 does not replace (RFC 9111 §3.2).
const OF_BODY: [HeaderName; 4] =
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, HeaderName::from_static("content-md5")];
/// Fields that describe a body, which a 304 does not have (RFC 9110 §15.4.5).
const NOT_OF_304: [HeaderName; 5] = [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, CONTENT_LANGUAGE];

/// The head of an answer that may be stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    status: StatusCode,
    fields: HeaderMap,
    directives: AnswerDirectives,
    freshness: Freshness,
}

/// A stored answer.
#[derive(Clone, Debug)]
pub(crate) struct StoredAnswer {
    pub(crate) head: StoredHead,
    pub(crate) body: Bytes,
}

/// A stored answer whose body a worker reads.
struct ReadAnswer(Arc<StoredAnswer>);

/// Decision about a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The answer may be used.
    Fresh,
    /// The answer is stale, or has to be validated each time.
    Stale,
    /// The answer is fresh, but does not meet the request's directives.
    NotAsAsked,
}

// === impl StoredAnswer ===

impl StoredAnswer {
    /// The body for a worker. The answer counts as in use until the last clone of it is dropped.
    pub(crate) fn reader(self: Arc<Self>) -> Bytes {
        Bytes::from_owner(ReadAnswer(self))
    }
}

impl AsRef<[u8]> for ReadAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.0.body
    }
}

// === impl StoredHead ===

impl StoredHead {
    /// The head of an answer to a GET, with `status` and `fields`, if a private cache may store and reuse the answer.
    pub(crate) fn of(status: StatusCode, fields: &HeaderMap, received: &Received) -> Option<Self> {
        let directives = AnswerDirectives::of(fields);
        let freshness = Freshness::of(fields, &directives, received);
        // A new session belongs to one worker, but many workers share a credential.
        let forbidden = directives.no_store
            || (directives.must_understand && !is_understood(status))
            || fields.contains_key(SET_COOKIE);
        // RFC 9111 §3: the answer says that it may be stored, or its status is storable by default.
        let allowed = directives.storable || freshness.is_explicit() || is_storable_by_default(status);
        let useful = (freshness.was_fresh() && !directives.no_cache) || has_validator(fields);
        if !is_complete_and_final(status) || forbidden || !allowed || !useful {
            return None;
        }
        let mut fields = fields.clone();
        if !fields.contains_key(DATE) {
            // RFC 9110 §6.6.1.
            let at = std::time::UNIX_EPOCH + received.time_of_day;
            fields.insert(DATE, HeaderValue::try_from(httpdate::fmt_http_date(at)).expect("visible ASCII"));
        }
        kept_head::settle(&mut fields);
        Some(Self { status, fields, directives, freshness })
    }

    /// The head after a 304 with the fields `new` (RFC 9111 §4.3.4); `None` if the 304 is about another answer, or the
    /// result may no longer be stored.
    pub(crate) fn freshened(&self, new: &HeaderMap, received: &Received) -> Option<Self> {
        let same = |name: &HeaderName| match (self.fields.get(name), new.get(name)) {
            (Some(stored), Some(new)) => weak(stored.as_bytes()) == weak(new.as_bytes()),
            (None, Some(_)) => false,
            (_, None) => true,
        };
        // The entity tag takes precedence.
        let validator = if new.contains_key(ETAG) { ETAG } else { LAST_MODIFIED };
        if !same(&validator) {
            return None;
        }
        let mut fields = self.fields.clone();
        // The 304 states the age at the place where the answer is stored.
        fields.remove(AGE);
        // An answer without a date counts from now (RFC 9110 §6.6.1).
        fields.remove(DATE);
        for name in new.keys().filter(|name| !OF_BODY.contains(name) && **name != SET_COOKIE) {
            fields.remove(name);
            for value in new.get_all(name) {
                fields.append(name, value.clone());
            }
        }
        // Each 304 may add fields: the head must not grow beyond the limit for an API's head.
        if fields.len() > MAX_FIELDS {
            return None;
        }
        Self::of(self.status, &fields, received)
    }

    /// Decides whether the answer may be used at `now` for a request with the directives `asked`. With `always`, an
    /// answer is never used without validation.
    pub(crate) fn reuse(&self, asked: &RequestDirectives, always: bool, now: Instant) -> Reuse {
        if always || self.directives.no_cache {
            return Reuse::Stale;
        }
        let old = asked.max_age.is_some_and(|most| self.freshness.age(now) > most);
        match self.freshness.left(now) {
            Ok(_) if asked.no_cache || old => Reuse::NotAsAsked,
            Ok(left) if asked.min_fresh.is_some_and(|least| left < least) => Reuse::NotAsAsked,
            Ok(_) => Reuse::Fresh,
            Err(_) if asked.no_cache || old || self.directives.must_revalidate => Reuse::Stale,
            Err(stale) if asked.max_stale.is_some_and(|most| stale <= most) => Reuse::Fresh,
            Err(_) => Reuse::Stale,
        }
    }

    /// Makes a request with these `fields` conditional on a change of the answer. Returns `false` if the answer has no
    /// validator.
    pub(crate) fn ask(&self, fields: &mut HeaderMap) -> bool {
        let (tag, modified) = (self.fields.get(ETAG), self.fields.get(LAST_MODIFIED));
        tag.map(|tag| fields.insert(IF_NONE_MATCH, tag.clone()));
        modified.map(|modified| fields.insert(IF_MODIFIED_SINCE, modified.clone()));
        tag.is_some() || modified.is_some()
    }

    /// Returns whether the worker has this answer already, by the preconditions in these `fields` (RFC 9111 §4.3.2).
    pub(crate) fn is_known_to(&self, fields: &HeaderMap) -> bool {
        if self.status != StatusCode::OK {
            return false;
        }
        if fields.contains_key(IF_NONE_MATCH) {
            let tag = self.fields.get(ETAG).map(|tag| weak(tag.as_bytes()));
            let mut tags = fields.get_all(IF_NONE_MATCH).into_iter().flat_map(|line| quoted_members(line.as_bytes()));
            return tags.any(|known| known == b"*" || Some(weak(known)) == tag);
        }
        let since = date(fields, &IF_MODIFIED_SINCE);
        let modified = date(&self.fields, &LAST_MODIFIED).or_else(|| date(&self.fields, &DATE));
        since.zip(modified).is_some_and(|(since, modified)| modified <= since)
    }

    /// Status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Fields of the answer as they are sent at `now` (RFC 9111 §5.1).
    pub(crate) fn fields(&self, now: Instant) -> HeaderMap {
        let mut fields = self.fields.clone();
        fields.insert(AGE, HeaderValue::from(self.freshness.age(now).as_secs()));
        fields
    }

    /// Fields of a 304 for a worker that has the body.
    pub(crate) fn fields_of_304(&self, now: Instant) -> HeaderMap {
        let mut fields = self.fields(now);
        for name in NOT_OF_304 {
            fields.remove(name);
        }
        fields
    }

    /// Bytes that the head takes.
    pub(crate) fn cost(&self) -> usize {
        kept_head::cost(&self.fields)
    }
}

/// Returns whether an answer with this status may be stored. Partial answers, and answers about another answer, are not
/// stored. RFC 6585 §3 to §6 forbid it for some statuses.
fn is_complete_and_final(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status.as_u16(), 206 | 304 | 428 | 429 | 431 | 511)
}

/// RFC 9110 §15.1.
fn is_storable_by_default(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Returns whether andante knows the status (RFC 9110 §15); every status is only passed on.
fn is_understood(status: StatusCode) -> bool {
    status.canonical_reason().is_some()
}

fn has_validator(fields: &HeaderMap) -> bool {
    fields.contains_key(ETAG) || date(fields, &LAST_MODIFIED).is_some()
}

/// An entity tag in the form for weak comparison (RFC 9110 §8.8.3.2).
fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}
