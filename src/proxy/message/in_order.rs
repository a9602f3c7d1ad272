//! Removes fields from a head without changing the order of the others.
//!
//! `HeaderMap::remove` moves the last field into the place of the removed one. Some servers and devices depend on the
//! order that their clients send.

use http::{HeaderMap, HeaderName, HeaderValue, header::Entry};
use smallvec::SmallVec;

/// Removes the fields for whose names `is_removed` returns true. Fields before the first removed one are not touched.
/// Later fields are taken out, last first, and put back.
pub(crate) fn remove(fields: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let Some(first) = fields.keys().position(&is_removed) else { return };
    let names: SmallVec<[HeaderName; 16]> = fields.keys().skip(first).cloned().collect();
    let mut kept: SmallVec<[(HeaderName, HeaderValue); 16]> = SmallVec::new();
    for name in names.into_iter().rev() {
        let keeps = !is_removed(&name);
        let Entry::Occupied(entry) = fields.entry(name) else { continue };
        let (name, values) = entry.remove_entry_mult();
        if keeps {
            let from = kept.len();
            kept.extend(values.map(|value| (name.clone(), value)));
            kept[from..].reverse();
        }
    }
    for (name, value) in kept.into_iter().rev() {
        fields.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn others_keep_their_order(names in proptest::collection::vec(0_u8..12, 0..24), removed in 0_u16..4096) {
            let mut fields = HeaderMap::new();
            for (value, name) in names.iter().enumerate() {
                fields.append(HeaderName::try_from(format!("x-{name}")).unwrap(), HeaderValue::from(value));
            }
            let is_removed = |name: &HeaderName| removed >> name.as_str()[2..].parse::<u16>().unwrap() & 1 == 1;
            let lines = |fields: &HeaderMap| fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>();
            let expected: Vec<_> = lines(&fields).into_iter().filter(|(name, _)| !is_removed(name)).collect();
            remove(&mut fields, is_removed);
            prop_assert_eq!(lines(&fields), expected);
        }
    }
}
