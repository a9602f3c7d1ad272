//! Answers that a rule declares to be refusals.

use crate::{
    config::{
        diagnostic::Diagnostic,
        keys,
        reader::{Reader, Table},
    },
    policy::RefusedAnswer,
};

/// Reads the declarations of a rule. Warns of a declaration that matches every success.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Vec<RefusedAnswer> {
    let declared = reader.several(table, &keys::REFUSED).map(|declared| declared.value).unwrap_or_default();
    for answer in declared.iter().filter(|answer| answer.value.takes_success()) {
        let what = format!("every answer with {} is a refusal: such requests are sent again and again", answer.value);
        let hint = "name what tells a refusal from a success: \"status = 200 and body.error.code = TOO_MANY\"";
        reader.problems.push(Diagnostic::warning(answer, what, hint));
    }
    declared.into_iter().map(|answer| answer.value).collect()
}
