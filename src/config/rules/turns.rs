//! Keys of a rule for the order of waiting requests.

use super::values;
use crate::{
    config::{
        diagnostic::{Diagnostic, Spanned},
        keys,
        reader::{Reader, Table},
    },
    policy::{AssignedWeight, ShareBy, ShareLevel, ShareOf, Turns},
};

/// Reads who may be urgent, and how clients and flows share.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Turns {
    let urgent = values(reader.several(table, &keys::URGENT));
    let urgency = reader.one(table, &keys::URGENCY).map(|urgency| urgency.value);
    let share_by = share_by(reader, table);
    let flow_order = reader.one(table, &keys::FLOW_ORDER).map(|order| order.value).unwrap_or_default();
    let weights = reader.several(table, &keys::WEIGHTS);
    let reserve = reader.one(table, &keys::RESERVE).and_then(|reserve| reserve.value);
    let turns = Turns { urgent, urgency, share_by, flow_order, weights: Vec::new(), reserve };
    for weight in weights.iter().flat_map(|weights| &weights.value) {
        reader.problems.extend(unused(weight, &turns));
    }
    Turns { weights: values(weights).unwrap_or_default(), ..turns }
}

fn share_by<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> ShareBy {
    let before = reader.problems.len();
    let Some(levels) = reader.several(table, &keys::SHARE_BY) else { return ShareBy::default() };
    if reader.problems.len() > before {
        return ShareBy::default();
    }
    let named: Vec<_> = levels.value.iter().map(|level| level.value).collect();
    ShareBy::of(&named).unwrap_or_else(|| {
        let what = "expected one or two levels, each of them once";
        let hint = "write [\"client\", \"flow\"], [\"flow\", \"client\"], [\"client\"] or [\"flow\"]";
        reader.problems.push(Diagnostic::error(&levels, what, hint));
        ShareBy::default()
    })
}

/// Reports a weight of a level that does not share.
fn unused(weight: &Spanned<AssignedWeight>, turns: &Turns) -> Option<Diagnostic> {
    let (level, name) = match weight.value.of {
        ShareOf::Clients(_) => (ShareLevel::Client, "clients"),
        ShareOf::Flow(_) => (ShareLevel::Flow, "flows"),
    };
    let what = format!("this weight has no effect: by `share-by` and `flow-order`, {name} do not share");
    let hint = "leave it out, or see docs/fairness.md for the levels that share";
    (!turns.shares(level)).then(|| Diagnostic::warning(weight, what, hint))
}
