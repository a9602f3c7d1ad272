//! Request of a batch.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use url::Url;

/// Request that is to be answered once.
#[derive(Clone, Debug)]
pub struct Item {
    /// Line of the input, from 1.
    pub line: u64,
    /// Id of the request and of its answer.
    pub id: Id,
    /// Method of the request.
    pub method: Method,
    /// URL with the scheme http or https, without user name and password.
    pub url: Url,
    /// Header fields.
    pub headers: HeaderMap,
    /// Body, which is often empty.
    pub body: Bytes,
}

/// Id of an item and of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// Member that holds the id: `id`, `custom_id` as in OpenAI's batch files, or `line`.
    pub member: &'static str,
    /// Name of the item, or the number of its line.
    pub name: String,
}

/// Field with which an API recognizes a repeated request (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Returns the gateway address of `url`, as the request target at an andante.
pub(super) fn gateway_address(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    format!("/{url}")
}

// === impl Id ===

impl Id {
    /// Usual member.
    pub const MEMBER: &str = "id";
    /// Member in OpenAI's batch files.
    pub const CUSTOM: &str = "custom_id";
    /// Member of items without a name. The number changes if a line is inserted above.
    pub const LINE: &str = "line";
}

// === impl Item ===

impl Item {
    /// Returns whether the request may be sent twice: its method is idempotent (RFC 9110 §9.2.2), or the API recognizes
    /// a repetition.
    pub fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key(IDEMPOTENCY_KEY)
    }

    /// Method, URL, fields and body as bytes. Items that differ only in their names have equal bytes.
    pub fn content(&self) -> Vec<u8> {
        let mut fields: Vec<_> = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        fields.sort_unstable();
        let mut content = format!("{} {}\n", self.method, self.url).into_bytes();
        for (name, value) in fields {
            content.extend([name.as_bytes(), b":", value, b"\n"].concat());
        }
        content.push(b'\n');
        content.extend_from_slice(&self.body);
        content
    }
}
