//! Facts from one pass over a head: whether the answer may say something about limits, and the kind of its body.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};

use super::{coding::Coding, fields};

/// Facts about a head. Code that iterates over the fields anyway notes each of them here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance<'a> {
    /// True if one of the fields may be about limits.
    pub told: bool,
    pub(super) kind: Option<&'a HeaderValue>,
    pub(super) length: Option<&'a HeaderValue>,
    pub(super) coding: Coding,
}

// === impl Glance ===

impl<'a> Glance<'a> {
    /// Takes a glance at `headers`.
    pub fn of(headers: &'a HeaderMap) -> Self {
        let mut glance = Self::default();
        headers.iter().for_each(|(name, value)| glance.note(name, value));
        glance
    }

    /// Notes one field.
    pub fn note(&mut self, name: &HeaderName, value: &'a HeaderValue) {
        match *name {
            CONTENT_TYPE => _ = self.kind.get_or_insert(value),
            CONTENT_LENGTH => _ = self.length.get_or_insert(value),
            CONTENT_ENCODING => self.coding = self.coding.and(value),
            _ => self.told |= fields::may_tell(name),
        }
    }

    /// Content of a `body`, without its content coding; `None` if the coding is unknown, or the content is too long for
    /// a complaint.
    pub fn decode<'b>(&self, body: Cow<'b, [u8]>) -> Option<Cow<'b, [u8]>> {
        self.coding.decode(body)
    }

    /// Media type of the body, as sent.
    pub(super) fn kind(&self) -> &'a str {
        self.kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default()
    }
}
