//! One request of a batch.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use url::Url;

/// A request that is to be answered once.
#[derive(Clone, Debug)]
pub struct Item {
    /// The line that it is in, from 1.
    pub line: u64,
    /// What its answer is called.
    pub id: Id,
    /// What it asks for.
    pub method: Method,
    /// Of whom; http or https, without user name.
    pub url: Url,
    /// Its fields.
    pub headers: HeaderMap,
    /// Its content; often empty.
    pub body: Bytes,
}

/// What an item and its answer are called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The member that has it: `id`, `custom_id` as in OpenAI's batch files, or `line`.
    pub member: &'static str,
    /// The name, or the number of the line.
    pub name: String,
}

/// RFC draft-ietf-httpapi-idempotency-key-header: whoever sends it lets the request be repeated.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How an andante is asked for `url`.
pub(super) fn gateway_address(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    format!("/{url}")
}

// === impl Id ===

impl Id {
    /// The usual member.
    pub const MEMBER: &str = "id";
    /// That of OpenAI's batch files.
    pub const CUSTOM: &str = "custom_id";
    /// That of items without a name: it holds for as long as no line is put in before them.
    pub const LINE: &str = "line";
}

// === impl Item ===

impl Item {
    /// Whether doing it twice is as good as doing it once (RFC 9110 §9.2.2), or the API sees to that.
    pub fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key(IDEMPOTENCY_KEY)
    }

    /// What it asks for, as bytes: equal for items that are the same but for their names.
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
