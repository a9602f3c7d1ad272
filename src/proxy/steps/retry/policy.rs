//! Decides which requests may be sent again, how often, and after what pause. Reads nothing and waits for nothing.

use std::time::Duration;

use http::StatusCode;

use super::replay::ReplayRequest;
use crate::{
    error::{Error, Retryable},
    hint::{Cause, Hint, Signal, Strength},
    lane::Lane,
    metrics::RetryReason,
    proxy::outbound::route::Route,
};

/// Maximum of the first back-off; each further maximum doubles.
const FIRST: Duration = Duration::from_millis(250);
/// Minimum back-off.
const FLOOR: Duration = Duration::from_millis(50);
/// Maximum back-off.
const LONGEST: Duration = Duration::from_secs(30);
/// Maximum tries at an upstream that is reachable and fails.
const TRIES: u32 = 5;
/// Maximum tries at an API that lacks capacity. Nothing was processed, and the pauses add up to a minute. If half of
/// all requests are rejected so, the breaker opens.
const TRIES_OVERLOADED: u32 = 8;
/// Maximum refusals of a request while more other requests are served: waiting does not help it.
pub(crate) const REFUSALS: u32 = 12;
/// Maximum tries at an upstream that has never answered: its name may be wrong.
const TRIES_UNKNOWN: u32 = 3;

/// Reason to send an answered request again, if allowed.
pub(crate) fn reason_of_answer(
    hint: &Hint,
    status: StatusCode,
    replay: &ReplayRequest,
    lane: &Lane,
) -> Option<RetryReason> {
    match hint.cause {
        _ if hint.done || hint.signal == Signal::FatalQuota => None,
        _ if hint.is_hearsay() && !replay.is_repeatable() => None,
        Cause::Quota => Some(RetryReason::Refused),
        Cause::Concurrency => Some(RetryReason::Crowded),
        // Clients may have written the text: only this kind of request pauses.
        Cause::Overload if hint.is_hearsay() => Some(RetryReason::Refused),
        // A wait that only the text mentions is no request to wait.
        Cause::Overload if hint.retry_after.is_some() && hint.strength > Strength::Words => Some(RetryReason::Refused),
        // The answer itself says that nothing was done.
        Cause::Overload if hint.strength == Strength::Code => Some(RetryReason::Overloaded),
        // While other requests are served, a 503 comes from a rate limiter (nginx): the lane knows when to try
        // again.
        Cause::Overload if replay.is_repeatable() && lane.is_alive() => Some(RetryReason::Refused),
        // A 500 or 509 with a wait is a refusal for overload, too.
        Cause::Overload if status != StatusCode::SERVICE_UNAVAILABLE => Some(RetryReason::Failed),
        _ => (matches!(status.as_u16(), 502..=504) && replay.is_repeatable()).then_some(RetryReason::Failed),
    }
}

/// Reason to send a request again that failed with `error`, if allowed.
pub(crate) fn reason_of_error(error: &Error, replay: &ReplayRequest) -> Option<RetryReason> {
    match error.retryable() {
        Retryable::Unreached => Some(RetryReason::Unreached),
        Retryable::NotProcessed => Some(RetryReason::NotProcessed),
        Retryable::IfRepeatable => replay.is_repeatable().then_some(RetryReason::Cut),
        Retryable::Never => None,
    }
}

/// Returns whether the request waits by itself from its first retry on, and not with its lane.
pub(crate) fn waits(reason: RetryReason) -> bool {
    !matches!(reason, RetryReason::Refused | RetryReason::NotProcessed)
}

/// Returns whether sending the request again makes things worse for an upstream in trouble.
pub(crate) fn is_budgeted(reason: RetryReason) -> bool {
    matches!(reason, RetryReason::Failed | RetryReason::Cut)
}

/// Pause after `tries` tries: exponential with full jitter, and a floor. `dice` is from 0 to 1.
pub(crate) fn back_off(reason: RetryReason, tries: u32, dice: f64) -> Duration {
    // A request that was not processed goes to another connection at once; that may help, but only once.
    if !waits(reason) && (reason != RetryReason::NotProcessed || tries == 1) {
        return Duration::ZERO;
    }
    let most = FIRST.saturating_mul(2u32.saturating_pow(tries - 1)).min(LONGEST);
    most.mul_f64(dice).max(FLOOR)
}

/// Returns whether a request that was tried `tries` times is not tried again.
pub(crate) fn gives_up(reason: RetryReason, tries: u32, route: &Route) -> bool {
    if let Some(most) = route.lane.policy().retry.and_then(|retry| retry.tries) {
        return tries >= most.get();
    }
    match reason {
        RetryReason::Refused | RetryReason::Crowded => false,
        RetryReason::Unreached if !route.has_answered() => tries >= TRIES_UNKNOWN,
        // While the breaker is open, failures do not use up tries.
        RetryReason::Unreached => false,
        RetryReason::Overloaded => tries >= TRIES_OVERLOADED && !route.lane.is_broken(),
        RetryReason::Failed | RetryReason::Cut => tries >= TRIES && !route.lane.is_broken(),
        RetryReason::NotProcessed => tries >= TRIES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_a_bound_and_is_never_nothing() {
        let most = |tries| back_off(RetryReason::Failed, tries, 1.0);
        assert_eq!([most(1), most(2), most(3)], [FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!((most(12), most(4_000_000_000)), (LONGEST, LONGEST));
        assert_eq!(back_off(RetryReason::Cut, 1, 0.0), FLOOR);
        assert_eq!(back_off(RetryReason::Refused, 3, 1.0), Duration::ZERO, "the lane knows");
        let not_processed = |tries| back_off(RetryReason::NotProcessed, tries, 1.0);
        assert_eq!([not_processed(1), not_processed(2), not_processed(3)], [Duration::ZERO, FIRST * 2, FIRST * 4]);
    }
}
