//! What some APIs say in ways of their own. Each looks at how a value is built, or at words in a name, and takes what it
//! understands away from those who come after it.

mod anthropic;
mod names;
mod pairs;
mod usage;

use super::{fields::Fields, finding::Findings, time::Now};

/// Reads them all.
pub(super) fn read(fields: &mut Fields<'_>, now: Now, findings: &mut Findings) {
    anthropic::read(fields, now, findings);
    pairs::read(fields, now, findings);
    usage::read(fields, now, findings);
    names::read(fields, now, findings);
}
