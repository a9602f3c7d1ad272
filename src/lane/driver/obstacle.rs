//! Block reasons other than used-up limits, for clients that are refused because of them.

use andante_learn::Reason;

use super::Lane;
use crate::{Refusal, journal::why};

/// What lets nothing leave for a time, although limits may have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is.
    pub what: String,
    /// What to do about it, if anything but waiting helps.
    pub hint: Option<&'static str>,
    /// True if the API's own quota or cap is used up until a known time.
    pub is_quota: bool,
}

impl Lane {
    /// The block reason, other than used-up limits, behind this `refusal`.
    pub fn obstacle_of(&self, refusal: &Refusal) -> Option<Obstacle> {
        let hint = "raise the cap at the API, and end the pause with `andante ctl forget HOST`";
        let cap = refusal.cap().map(|what| Obstacle { what, hint: Some(hint), is_quota: true });
        cap.or_else(|| self.obstacle())
    }

    /// The current block reason of the lane, other than used-up limits.
    pub fn obstacle(&self) -> Option<Obstacle> {
        if let Some(store) = self.lost_store() {
            return Some(Obstacle {
                what: format!("the store {store}, by which andantes share this limit, cannot be used"),
                hint: Some(
                    "see to it that the store answers (`andante status` says what is wrong with it), or let `store-down` say \
                     what may leave without it",
                ),
                is_quota: false,
            });
        }
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        let is_held = state.held(now).is_some();
        let learned = state.learned();
        let closed = learned.closed(now, learned.usual_scope()).map(|(_, reason)| reason);
        drop(state);
        let reason = if is_held { Reason::Operator } else { closed? };
        let hint = match reason {
            Reason::Breaker => Some(
                "see why the upstream fails; until it serves again, one request at a time tries it (`breaker = \"off\"` in \
                 its rule lets all of them try)",
            ),
            Reason::Operator => Some("ask the operator who paused it, or end the pause: andante ctl resume"),
            Reason::RetryAfter | Reason::Exhausted | Reason::Refused | Reason::Banned => None,
        };
        let what = format!("nothing leaves ({}): {}", reason.as_str(), why(reason));
        Some(Obstacle { what, hint, is_quota: reason == Reason::Exhausted })
    }
}
