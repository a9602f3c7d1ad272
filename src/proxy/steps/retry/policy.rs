//! Which requests may be sent again, how often, and after what pause. Reads nothing and waits for nothing.

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

/// The first back-off is up to this long, each further one up to twice as long as the one before.
const FIRST: Duration = Duration::from_millis(250);
/// None is shorter.
const FLOOR: Duration = Duration::from_millis(50);
/// None is longer.
const LONGEST: Duration = Duration::from_secs(30);
/// So often is a request sent to an upstream that is there and fails.
const TRIES: u32 = 5;
/// So often is one sent to an API that lacks capacity. Nothing was done, and the pauses add up to a minute. If half of all
/// are refused so, the breaker opens.
const TRIES_OVERLOADED: u32 = 8;
/// So often is one refused, while more others are served: it is not waiting that helps it.
pub(crate) const REFUSALS: u32 = 12;
/// So often is one sent to an upstream that has never answered anybody: its name may be wrong.
const TRIES_UNKNOWN: u32 = 3;
// === impl RetryReason ===

impl RetryReason {
    /// Why a request that was answered may be sent again, if it may.
    pub(crate) fn of_answer(hint: &Hint, status: StatusCode, replay: &ReplayRequest, lane: &Lane) -> Option<Self> {
        match hint.cause {
            _ if hint.done || hint.signal == Signal::FatalQuota => None,
            _ if hint.is_hearsay() && !replay.is_repeatable() => None,
            Cause::Quota => Some(Self::Refused),
            Cause::Concurrency => Some(Self::Crowded),
            // Its kind of request pauses, if anybody may have written it.
            Cause::Overload if hint.is_hearsay() => Some(Self::Refused),
            // A wait in words alone is none that a refusal asks for.
            Cause::Overload if hint.retry_after.is_some() && hint.strength > Strength::Words => Some(Self::Refused),
            // It says itself that nothing was done.
            Cause::Overload if hint.strength == Strength::Code => Some(Self::Overloaded),
            // While others are served a 503 is a limiter's (nginx): the lane knows when to try again.
            Cause::Overload if replay.is_repeatable() && lane.is_alive() => Some(Self::Refused),
            // So was one that is refused for overload alone (500 and 509 with a wait).
            Cause::Overload if status != StatusCode::SERVICE_UNAVAILABLE => Some(Self::Failed),
            _ => (matches!(status.as_u16(), 502..=504) && replay.is_repeatable()).then_some(Self::Failed),
        }
    }

    /// Why a request that failed with `error` may be sent again, if it may.
    pub(crate) fn of_error(error: &Error, replay: &ReplayRequest) -> Option<Self> {
        match error.retryable() {
            Retryable::Unreached => Some(Self::Unreached),
            Retryable::NotProcessed => Some(Self::NotProcessed),
            Retryable::IfRepeatable => replay.is_repeatable().then_some(Self::Cut),
            Retryable::Never => None,
        }
    }

    /// Whether it waits by itself from its first time on, and not with its lane.
    pub(crate) fn waits(self) -> bool {
        !matches!(self, Self::Refused | Self::NotProcessed)
    }

    /// Whether sending it again makes things worse for an upstream that is in trouble.
    pub(crate) fn is_budgeted(self) -> bool {
        matches!(self, Self::Failed | Self::Cut)
    }

    /// How long to wait after `tries` tries: exponential with full jitter, and a floor. `dice` is from 0 to 1.
    pub(crate) fn back_off(self, tries: u32, dice: f64) -> Duration {
        // What an upstream has not looked at goes to another of its connections at once; that may help, but once.
        if !self.waits() && (self != Self::NotProcessed || tries == 1) {
            return Duration::ZERO;
        }
        let most = FIRST.saturating_mul(2u32.saturating_pow(tries - 1)).min(LONGEST);
        most.mul_f64(dice).max(FLOOR)
    }

    /// Whether it is no use to try once more after `tries` of them.
    pub(crate) fn gives_up(self, tries: u32, route: &Route) -> bool {
        match self {
            // Its rule says how many.
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
