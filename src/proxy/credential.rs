//! Whose request it is: APIs that limit by key limit each key by itself.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

use http::HeaderMap;

/// Where APIs look for a key.
const FIELDS: [&str; 9] = [
    "authorization",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "private-token",
];

/// A hash of the credential that `headers` bring, 0 without any. Its key is random and dies with this process: what is
/// kept tells whether two credentials are the same, and nothing else. It is written nowhere.
pub(super) fn hash(headers: &HeaderMap) -> u32 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut found = None;
    for field in FIELDS {
        for value in headers.get_all(field) {
            let hasher = found.get_or_insert_with(|| KEY.build_hasher());
            hasher.write(field.as_bytes());
            hasher.write(value.as_bytes());
            hasher.write_u8(0xff);
        }
    }
    found.map_or(0, |hasher| (hasher.finish() as u32).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&'static str, &'static str)]) -> u32 {
        hash(&fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
    }

    #[test]
    fn two_keys_differ_and_other_fields_do_not_matter() {
        let one = of(&[("authorization", "Bearer one"), ("accept", "*/*")]);
        assert_eq!(one, of(&[("authorization", "Bearer one"), ("user-agent", "me")]));
        assert_ne!(one, of(&[("authorization", "Bearer two")]));
        assert_ne!(one, of(&[("x-api-key", "Bearer one")]));
        assert_ne!(one, 0);
        assert_eq!(of(&[("accept", "*/*")]), 0);
    }
}
