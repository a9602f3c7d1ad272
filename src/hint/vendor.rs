//! Readers of formats that single APIs use. Each reader looks at the form of a value or at words in a name, and removes
//! the fields that it understands before the next reader.

mod anthropic;
mod json_fields;
mod names;
mod pairs;
mod usage;

use super::{evidence::Evidence, fields::Fields, time::Now};

/// Calls all readers.
pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    anthropic::read(fields, now, evidence);
    anthropic::tiers(fields, now, evidence);
    json_fields::read(fields, now, evidence);
    pairs::read(fields, now, evidence);
    usage::read(fields, now, evidence);
    names::read(fields, now, evidence);
}
