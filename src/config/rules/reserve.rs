//! Checks a rule's reserve for urgent requests, and the size of its limits.

use super::RawRule;
use crate::{
    config::diagnostic::Diagnostic,
    policy::{Reserve, TooSmall},
};

/// Checks that some of each limit is reserved, and that the costs of other requests fit the rest.
pub(super) fn check(draft: &RawRule, problems: &mut Vec<Diagnostic>) {
    let (Some(reserve), Some(rest)) = (draft.policy.turns.reserve, draft.policy.besides_reserve()) else { return };
    let limits = draft.policy.limits.iter().map(|limit| (limit.rate.count, limit.to_string()));
    let calendar = draft.policy.calendar.iter().map(|limit| (limit.count, limit.to_string()));
    let limits: Vec<_> = limits.chain(calendar).collect();
    if limits.is_empty() {
        let hint = "write limits = [\"500/min\"], or leave it out";
        let what = format!("a reserve of {reserve} has no effect: the rule has no rate limit");
        problems.push(Diagnostic::warning(&draft.named, what, hint));
    }
    if let Some(urgency) = draft.policy.turns.urgency.filter(|urgency| *urgency < Reserve::PATIENT) {
        let what =
            format!("the reserve is for requests of urgency 0 and 1, which all requests have by `urgency = {urgency}`");
        let hint = "write the urgency into a rule for the path of urgent requests, or leave the reserve out";
        problems.push(Diagnostic::warning(&draft.named, what, hint));
    }
    for (_, limit) in limits.iter().filter(|(count, _)| reserve.rest(*count) == *count) {
        let what = format!("nothing is kept of {limit}: others may use the only one");
        problems.push(Diagnostic::warning(&draft.named, what, "write a limit of a longer window"));
    }
    if let Some(cost) = &draft.cost
        && draft.policy.too_small_for(&cost.value.known).is_none()
        && let Some(TooSmall { cost: much, limit }) = rest.too_small_for(&cost.value.known)
    {
        let least = Reserve::PATIENT;
        let what = format!("a request of urgency {least} to 7 that costs {much} fits no window of {limit}");
        let hint = format!("that is the limit without the reserve of {reserve}: lower the cost, or the reserve");
        problems.push(Diagnostic::error(cost, what, hint));
    }
}
