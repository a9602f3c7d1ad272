//! An answer that may be used again: whether it may be stored, whether it may be used now, and how it is validated
//! (RFC 9111 §3 and §4).

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

/// What describes the stored body, which a 304 does not replace (RFC 9111 §3.2).
const OF_BODY: [HeaderName; 4] =
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, HeaderName::from_static("content-md5")];
/// What describes a body, which a 304 does not have (RFC 9110 §15.4.5).
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

/// What may be done with a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Use it.
    Fresh,
    /// It is stale, or has to be validated each time.
    Stale,
    /// It is fresh, but the request wants more.
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
    /// The head of an answer to a GET, with `status` and `fields`, if a private cache may store it, and has something of it.
    pub(crate) fn of(status: StatusCode, fields: &HeaderMap, received: &Received) -> Option<Self> {
        let directives = AnswerDirectives::of(fields);
        let freshness = Freshness::of(fields, &directives, received);
        // A session that begins is one worker's, and many share a credential.
        let forbidden = directives.no_store
            || (directives.must_understand && !is_understood(status))
            || fields.contains_key(SET_COOKIE);
        // RFC 9111 §3: what says that it may be stored, or has a status that may be without a word.
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

    /// The same after a 304 with the fields `new` (RFC 9111 §4.3.4); `None` if that is about another answer than this one,
    /// or has it not stored any more.
    pub(crate) fn freshened(&self, new: &HeaderMap, received: &Received) -> Option<Self> {
        let same = |name: &HeaderName| match (self.fields.get(name), new.get(name)) {
            (Some(stored), Some(new)) => weak(stored.as_bytes()) == weak(new.as_bytes()),
            (None, Some(_)) => false,
            (_, None) => true,
        };
        // The tag counts where there is one.
        let validator = if new.contains_key(ETAG) { ETAG } else { LAST_MODIFIED };
        if !same(&validator) {
            return None;
        }
        let mut fields = self.fields.clone();
        // It is as old as the 304 says, and that comes from where the answer lies.
        fields.remove(AGE);
        // Without a date it is from now (RFC 9110 §6.6.1).
        fields.remove(DATE);
        for name in new.keys().filter(|name| !OF_BODY.contains(name) && **name != SET_COOKIE) {
            fields.remove(name);
            for value in new.get_all(name) {
                fields.append(name, value.clone());
            }
        }
        // Each may add some: no head is larger than an API may send.
        if fields.len() > MAX_FIELDS {
            return None;
        }
        Self::of(self.status, &fields, received)
    }

    /// Whether it may be used at `now` for a request that says `asked`; with `always` it is never used without validation.
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

    /// Makes a request with these `fields` ask whether the answer is still the same. `false`: it has nothing to ask with.
    pub(crate) fn ask(&self, fields: &mut HeaderMap) -> bool {
        let (tag, modified) = (self.fields.get(ETAG), self.fields.get(LAST_MODIFIED));
        tag.map(|tag| fields.insert(IF_NONE_MATCH, tag.clone()));
        modified.map(|modified| fields.insert(IF_MODIFIED_SINCE, modified.clone()));
        tag.is_some() || modified.is_some()
    }

    /// Whether the worker has what it is: the preconditions of a request with these `fields` (RFC 9111 §4.3.2).
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

    /// Its status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Its fields as they are sent at `now` (RFC 9111 §5.1).
    pub(crate) fn fields(&self, now: Instant) -> HeaderMap {
        let mut fields = self.fields.clone();
        fields.insert(AGE, HeaderValue::from(self.freshness.age(now).as_secs()));
        fields
    }

    /// The same for a worker that has the body.
    pub(crate) fn fields_of_304(&self, now: Instant) -> HeaderMap {
        let mut fields = self.fields(now);
        for name in NOT_OF_304 {
            fields.remove(name);
        }
        fields
    }

    /// How many bytes it takes.
    pub(crate) fn cost(&self) -> usize {
        kept_head::cost(&self.fields)
    }
}

/// A part of an answer, and what is about another one, is not stored. Of some statuses their RFC says that caches must not
/// store them (RFC 6585 §3 to §6).
fn is_complete_and_final(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status.as_u16(), 206 | 304 | 428 | 429 | 431 | 511)
}

/// RFC 9110 §15.1.
fn is_storable_by_default(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether we know what it means (RFC 9110 §15); we do nothing with one but pass it on.
fn is_understood(status: StatusCode) -> bool {
    status.canonical_reason().is_some()
}

fn has_validator(fields: &HeaderMap) -> bool {
    fields.contains_key(ETAG) || date(fields, &LAST_MODIFIED).is_some()
}

/// An entity tag as it is compared weakly (RFC 9110 §8.8.3.2).
fn weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}
