//! Judges the evidence of an answer.

use std::time::Duration;

use http::StatusCode;

use super::{
    Cause, Dialect, Hint, Hopeless, Signal, Strength,
    evidence::{Evidence, ReportedBudget},
};

/// Longest wait that is believed on words alone; afterwards the request is tried again.
const MAX_WAIT_IN_WORDS: Duration = Duration::from_secs(60);
const ROUNDED: Duration = Duration::from_secs(2);

/// Judges an answer with this status.
pub(super) fn classify(status: StatusCode, mut evidence: Evidence) -> Hint {
    evidence.sort();
    // A wait shorter than a nanosecond counts as none.
    for asked in [&mut evidence.retry_after, &mut evidence.other_scope, &mut evidence.said] {
        *asked = asked.filter(|asked| !asked.is_zero());
    }
    if status == StatusCode::OK && repeats_a_reset(&evidence) {
        // The reset of the budget is kept instead.
        evidence.retry_after = None;
    }
    let refused = is_refused(status, &evidence);
    let strength = strength(status, &evidence);
    if refused {
        let is_believed = strength != Strength::Words;
        let said = evidence.said.map(|said| if is_believed { said } else { said.min(MAX_WAIT_IN_WORDS) });
        evidence.retry_after = evidence.retry_after.or(said);
        evidence.renewed = evidence.renewed.filter(|_| is_believed);
    }
    let used_up = || evidence.budgets.iter().filter(|budget| stops(budget));
    let hopeless = if refused { hopeless(&evidence) } else { None };
    let (signal, wait) = if hopeless.is_some() {
        (Signal::FatalQuota, evidence.renewed)
    } else if refused {
        match wait_when_refused(&evidence) {
            wait if status == StatusCode::IM_A_TEAPOT => (Signal::Banned, wait),
            None => (Signal::Backoff, None),
            wait => (Signal::Throttled, wait),
        }
    } else if used_up().next().is_some() {
        (Signal::Exhausted, longest(used_up()))
    } else if evidence.warning || is_nearly_used_up(&evidence) {
        (Signal::Slow, Some(Duration::ZERO))
    } else {
        (Signal::Ok, Some(Duration::ZERO))
    };
    let cause = if refused { cause(status, &evidence) } else { Cause::None };
    let dialect = evidence.dialect.unwrap_or(if refused { Dialect::STATUS } else { Dialect::NONE });
    // A served answer has a result, unless its body says otherwise.
    let done = refused && evidence.done.unwrap_or(status.is_success());
    let Evidence { budgets, retry_after, later, other_scope, scope, .. } = evidence;
    let later = retry_after.map_or(Duration::ZERO, |_| later);
    let buckets = budgets.into_iter().map(|budget| budget.bucket).collect();
    Hint {
        signal,
        cause,
        wait,
        retry_after: retry_after.or(other_scope),
        later,
        scope,
        dialect,
        buckets,
        hopeless,
        strength,
        done,
        unavailable: status == StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Reason why waiting does not help a refused request, if there is one.
///
/// A cap on a day's use counts only if the answer does not report when it ends; otherwise it is an ordinary wait. A
/// limit of 0 with a name never ends. Okta reports its concurrency limit as a limit of 0 without a name.
fn hopeless(evidence: &Evidence) -> Option<Hopeless> {
    let lasts = |why: &Hopeless| *why != Hopeless::Cap || evidence.spends || wait_when_refused(evidence).is_none();
    let mut used_up = evidence.budgets.iter().filter(|budget| budget.binds && budget.is_used_up()).peekable();
    let nothing_allowed = |budget: &ReportedBudget| budget.bucket.limit == Some(0.0) && budget.bucket.name.is_some();
    let not_on_plan = used_up.peek().is_some() && used_up.all(nothing_allowed);
    let not_on_plan = not_on_plan.then_some(Hopeless::NotOnPlan);
    evidence.fatal.or(evidence.in_words.filter(lasts)).or(not_on_plan)
}

/// How surely a request that was refused was not done.
fn strength(status: StatusCode, evidence: &Evidence) -> Strength {
    let is_told = || {
        let used_up = evidence.budgets.iter().any(|budget| budget.is_used_up() && budget.binds);
        evidence.retry_after.or(evidence.other_scope).is_some() || status == StatusCode::FORBIDDEN && used_up
    };
    match (evidence.refusal, status.as_u16()) {
        (Some(Strength::Code), _) | (_, 529) => Strength::Code,
        (Some(Strength::Head), _) | (_, 418 | 420 | 429 | 509) => Strength::Head,
        _ if is_told() => Strength::Head,
        _ => Strength::Words,
    }
}

/// Returns whether a request was refused because of a limit, or for lack of capacity.
pub(super) fn is_refused(status: StatusCode, evidence: &Evidence) -> bool {
    if evidence.refusal.is_some() || evidence.fatal.is_some() || always_refuses(status) {
        return true;
    }
    let asked = evidence.retry_after.is_some();
    match status.as_u16() {
        403 => asked || evidence.budgets.iter().any(|budget| budget.is_used_up() && budget.binds),
        // On other 2xx and 3xx answers, the wait says when to ask again about work in progress or a moved resource.
        200 | 400.. => asked,
        _ => false,
    }
}

/// Returns whether the requested wait repeats the reset of a budget in the same answer. Limiters such as
/// rate-limiter-flexible and slowapi send both with each answer. The wait may be rounded up to a second, and the reset
/// measured from a `Date` that is rounded down, or vice versa.
fn repeats_a_reset(evidence: &Evidence) -> bool {
    let mut resets = evidence.budgets.iter().filter_map(|budget| budget.bucket.remaining.and(budget.bucket.reset));
    evidence.retry_after.is_some_and(|asked| resets.any(|reset| reset.abs_diff(asked) <= ROUNDED))
}

/// Returns whether the status alone means a refusal.
pub(super) fn always_refuses(status: StatusCode) -> bool {
    matches!(status.as_u16(), 418 | 420 | 429 | 503 | 509 | 529)
}

/// Wait of a refused request. The requested wait goes first, then the longest reset of the used-up budgets, then any
/// reset if the answer reports no remainder. If all reported budgets have something left, an unreported limit refused,
/// and the wait is unknown.
fn wait_when_refused(evidence: &Evidence) -> Option<Duration> {
    if let Some(asked) = evidence.retry_after {
        return Some(asked);
    }
    let used_up = longest(evidence.budgets.iter().filter(|budget| budget.binds && budget.is_used_up()));
    if let Some(least) = evidence.at_least {
        return Some(used_up.map_or(least, |used_up| used_up.max(least)));
    }
    let silent =
        || evidence.budgets.iter().filter(|budget| budget.binds).all(|budget| budget.bucket.remaining.is_none());
    used_up
        .or(evidence.other_scope)
        .or_else(|| silent().then(|| longest(evidence.budgets.iter().filter(|budget| budget.binds)))?)
}

/// Longest wait for the resets of the budgets; a reset of zero is ignored.
fn longest<'a>(budgets: impl Iterator<Item = &'a ReportedBudget>) -> Option<Duration> {
    let wait = |budget: &ReportedBudget| budget.bucket.reset.filter(|reset| !reset.is_zero()).or(budget.probe);
    budgets.filter_map(wait).filter(|wait| !wait.is_zero()).max()
}

/// Returns whether an empty budget keeps the next request from being served. On a served answer, a limit of zero is not
/// in use.
fn stops(budget: &ReportedBudget) -> bool {
    budget.binds && budget.is_used_up() && budget.bucket.limit != Some(0.0)
}

/// Returns whether at most a tenth is left of a window of unknown length. APIs send these fields only (SharePoint) or
/// mostly when it matters. If the window is reported, the pace follows from it instead.
fn is_nearly_used_up(evidence: &Evidence) -> bool {
    let [ReportedBudget { bucket, .. }] = evidence.budgets.as_slice() else { return false };
    let plain = evidence.dialect == Some(Dialect::RATELIMIT)
        && bucket.name.is_none()
        && !bucket.coarse
        && bucket.window.is_none();
    // A tenth of a small limit is a request or two, which any window may have left.
    let limit = bucket.limit.filter(|limit| *limit >= 100.0);
    plain && bucket.reset.is_some() && limit.zip(bucket.remaining).is_some_and(|(limit, left)| left <= limit / 10.0)
}

fn cause(status: StatusCode, evidence: &Evidence) -> Cause {
    if let Some(cause) = evidence.cause {
        return cause;
    }
    let mut used_up = evidence.budgets.iter().filter(|budget| budget.binds && budget.is_used_up()).peekable();
    let nothing_allowed = |budget: &ReportedBudget| budget.bucket.limit == Some(0.0) && budget.bucket.name.is_none();
    match status.as_u16() {
        // Okta reports its concurrency limit as a limit of 0 without a name.
        _ if used_up.peek().is_some_and(|budget| nothing_allowed(budget))
            && evidence.dialect == Some(Dialect::X_RATELIMIT) =>
        {
            Cause::Concurrency
        }
        _ if used_up.peek().is_some() => Cause::Quota,
        500.. => Cause::Overload,
        _ => Cause::Quota,
    }
}
