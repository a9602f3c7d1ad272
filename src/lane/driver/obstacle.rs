//! Block reasons other than used-up limits, for clients that are refused because of them.

use andante_clock::Instant;
use andante_learn::Reason;
use andante_limit::Ready;

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
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        if let (Some(store), ready @ (Ready::At(_) | Ready::OnEvent)) = (self.store(), state.store_ready(now)) {
            return Some(of_store(store, ready, now));
        }
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

/// The block reason of a lane whose shared limits let nothing leave until the store is `ready`.
fn of_store(store: &str, ready: Ready, now: Instant) -> Obstacle {
    let (what, hint) = match ready {
        Ready::At(at) => (
            format!(
                "the store {store} is new, or has lost its data: it gives out this limit in {:.1} s",
                at.since(now).as_secs_f64()
            ),
            "wait until the store opens; to avoid this with a later new store, run `andante fleet init` before the first andante \
             starts",
        ),
        Ready::Now | Ready::OnEvent => (
            format!("the store {store}, by which andantes share this limit, cannot be used"),
            "make the store reachable (`andante status` shows the problem), or set `store-down` to `floor` or `open`",
        ),
    };
    Obstacle { what, hint: Some(hint), is_quota: false }
}
