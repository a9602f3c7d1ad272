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
// === impl RetryReason ===

impl RetryReason {
    /// Reason to send an answered request again, if allowed.
    pub(crate) fn of_answer(hint: &Hint, status: StatusCode, replay: &ReplayRequest, lane: &Lane) -> Option<Self> {
        match hint.cause {
            _ if hint.done || hint.signal == Signal::FatalQuota => None,
            _ if hint.is_hearsay() && !replay.is_repeatable() => None,
            Cause::Quota => Some(Self::Refused),
            Cause::Concurrency => Some(Self::Crowded),
            // Clients may have written the text: only this kind of request pauses.
            Cause::Overload if hint.is_hearsay() => Some(Self::Refused),
            // A wait that only the text mentions is no request to wait.
            Cause::Overload if hint.retry_after.is_some() && hint.strength > Strength::Words => Some(Self::Refused),
            // The answer itself says that nothing was done.
            Cause::Overload if hint.strength == Strength::Code => Some(Self::Overloaded),
            // While other requests are served, a 503 comes from a rate limiter (nginx): the lane knows when to try
            // again.
            Cause::Overload if replay.is_repeatable() && lane.is_alive() => Some(Self::Refused),
            // A 500 or 509 with a wait is a refusal for overload, too.
            Cause::Overload if status != StatusCode::SERVICE_UNAVAILABLE => Some(Self::Failed),
            _ => (matches!(status.as_u16(), 502..=504) && replay.is_repeatable()).then_some(Self::Failed),
        }
    }

    /// Reason to send a request again that failed with `error`, if allowed.
    pub(crate) fn of_error(error: &Error, replay: &ReplayRequest) -> Option<Self> {
        match error.retryable() {
            Retryable::Unreached => Some(Self::Unreached),
            Retryable::NotProcessed => Some(Self::NotProcessed),
            Retryable::IfRepeatable => replay.is_repeatable().then_some(Self::Cut),
            Retryable::Never => None,
        }
    }

    /// Returns whether the request waits by itself from its first retry on, and not with its lane.
    pub(crate) fn waits(self) -> bool {
        !matches!(self, Self::Refused | Self::NotProcessed)
    }

    /// Returns whether sending the request again makes things worse for an upstream in trouble.
    pub(crate) fn is_budgeted(self) -> bool {
        matches!(self, Self::Failed | Self::Cut)
    }

    /// Pause after `tries` tries: exponential with full jitter, and a floor. `dice` is from 0 to 1.
    pub(crate) fn back_off(self, tries: u32, dice: f64) -> Duration {
        // A request that was not processed goes to another connection at once; that may help, but only once.
        if !self.waits() && (self != Self::NotProcessed || tries == 1) {
            return Duration::ZERO;
        }
        let most = FIRST.saturating_mul(2u32.saturating_pow(tries - 1)).min(LONGEST);
        most.mul_f64(dice).max(FLOOR)
    }

    /// Returns whether a request that was tried `tries` times is not tried again.
    pub(crate) fn gives_up(self, tries: u32, route: &Route) -> bool {
        match self {
            // The rule sets the number.
            _ if route.lane.policy().retry.is_some_and(|retry| retry.tries.is_some()) => false,
            Self::Refused | Self::Crowded => false,
            Self::Unreached if !route.has_answered() => tries >= TRIES_UNKNOWN,
            // While the breaker is open, failures do not use up tries.
            Self::Unreached => false,
            Self::Overloaded => tries >= TRIES_OVERLOADED && !route.lane.is_broken(),
            Self::Failed | Self::Cut => tries >= TRIES && !route.lane.is_broken(),
            Self::NotProcessed => tries >= TRIES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_a_bound_and_is_never_nothing() {
        let most = |tries| RetryReason::Failed.back_off(tries, 1.0);
        assert_eq!([most(1), most(2), most(3)], [FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!((most(12), most(4_000_000_000)), (LONGEST, LONGEST));
        assert_eq!(RetryReason::Cut.back_off(1, 0.0), FLOOR);
        assert_eq!(RetryReason::Refused.back_off(3, 1.0), Duration::ZERO, "the lane knows");
        let not_processed = |tries| RetryReason::NotProcessed.back_off(tries, 1.0);
        assert_eq!([not_processed(1), not_processed(2), not_processed(3)], [Duration::ZERO, FIRST * 2, FIRST * 4]);
    }
}
