//! Credential of a request: an API that limits by key limits each key by itself.

use http::{HeaderMap, header::AUTHORIZATION};

use super::keyed_hash;
use crate::{policy::normal_form, proxy::message::fields};

/// [Hash](keyed_hash) of the credential in `headers`, 0 without any. The hash is written nowhere.
pub(crate) fn hash(headers: &HeaderMap) -> u32 {
    // A sum, so that the order of the fields does not matter.
    let credentials = headers.iter().filter(|(field, _)| fields::is_credential(field));
    let hashes = credentials.map(|(field, value)| match *field {
        AUTHORIZATION => keyed_hash::of((field.as_str(), &*normal_form::credential(value.as_bytes()))),
        _ => keyed_hash::of((field.as_str(), value.as_bytes())),
    });
    hashes.reduce(u64::wrapping_add).map_or(0, |hash| (hash as u32).max(1))
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
        assert_eq!(one, of(&[("authorization", "bearer  one")]));
        assert_ne!(one, of(&[("authorization", "Bearer two")]));
        assert_ne!(one, of(&[("x-api-key", "Bearer one")]));
        assert_ne!(one, 0);
        assert_eq!(of(&[("accept", "*/*")]), 0);
    }

    #[test]
    fn of_several_fields_all_count_and_their_order_does_not() {
        let (one, other) = (("authorization", "Bearer one"), ("x-api-key", "two"));
        assert_eq!(of(&[one, other]), of(&[other, one]));
        assert_ne!(of(&[one, other]), of(&[one]));
        assert_ne!(of(&[one, one]), of(&[one]));
    }
}
