//! What some APIs say in ways of their own. Each looks at how a value is built, or at words in a name, and takes what
//! it understands away from those who come after it.

mod anthropic;
mod names;
mod pairs;
mod usage;

use super::{evidence::Evidence, fields::Fields, time::Now};

/// Reads them all.
pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    anthropic::read(fields, now, evidence);
    pairs::read(fields, now, evidence);
    usage::read(fields, now, evidence);
    names::read(fields, now, evidence);
}
