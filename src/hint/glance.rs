//! What a head shows at a glance: whether it may say something of limits, and what kind of body it has.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};

use super::{coding::Coding, fields};

/// What was seen of a head. Whoever looks through its fields anyway notes each of them here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance<'a> {
    /// One of the fields may be about limits.
    pub told: bool,
    pub(super) kind: Option<&'a HeaderValue>,
    pub(super) length: Option<&'a HeaderValue>,
    pub(super) coding: Coding,
}

// === impl Glance ===

impl<'a> Glance<'a> {
    /// What `headers` show.
    pub fn of(headers: &'a HeaderMap) -> Self {
        let mut glance = Self::default();
        headers.iter().for_each(|(name, value)| glance.note(name, value));
        glance
    }

    /// There is this field.
    pub fn note(&mut self, name: &HeaderName, value: &'a HeaderValue) {
        match *name {
            CONTENT_TYPE => _ = self.kind.get_or_insert(value),
            CONTENT_LENGTH => _ = self.length.get_or_insert(value),
            CONTENT_ENCODING => self.coding = self.coding.and(value),
            _ => self.told |= fields::may_tell(name),
        }
    }

    /// The content of a `body`, without its content coding; `None` if that is not known, or the content too long to be a complaint.
    pub fn decode<'b>(&self, body: Cow<'b, [u8]>) -> Option<Cow<'b, [u8]>> {
        self.coding.decode(body)
    }

    /// The media type of the body, as it is written.
    pub(super) fn kind(&self) -> &'a str {
        self.kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default()
    }
}
