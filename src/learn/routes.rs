//! Kinds of requests that an API refuses although its quota has room: each kind pauses separately.

use std::{collections::HashMap, time::Duration};

use andante_clock::Instant;
use andante_limit::Seq;

use super::RouteKey;

/// Kinds of requests that pause.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    paused: HashMap<u32, Pause>,
    suspects: HashMap<u32, Suspect>,
    /// Kinds refused for the first time since a request was served.
    strangers: u32,
    /// Number of times that too many kinds were refused since a kind was last found to be refused alone.
    all_refused: u32,
    all_refused_at: Instant,
}

/// A kind that is refused while others are served.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    refused: u32,
    /// Requests of other kinds that were served since.
    others: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Instant,
    until: Instant,
    /// Consecutive pauses that were too short.
    again: i32,
    /// Probe for the whole kind.
    trying: Option<Seq>,
    /// When the API renews the cap that its answer named, if it named one.
    cap: Option<Instant>,
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const A_DAY: Duration = Duration::from_secs(86_400);
/// If a probe stays unanswered this long, another one is sent.
const TRYING: Duration = Duration::from_secs(2);
/// Refusals of one kind, while others are served, that show a limit of this kind.
const ALONE: u32 = 3;
/// Requests of other kinds that must have been served meanwhile.
const OTHERS: u32 = 10;
/// Maximum number of suspected kinds.
const SUSPECTS: usize = 8;
/// Number of kinds refused in a row, with none served, after which the kind is not the reason. Each such event halves
/// the number for the next one, down to [`FEWEST`].
const STRANGERS: u32 = 16;
const FEWEST: u32 = 4;
/// Such events are forgotten after this time.
const TOGETHER: Duration = Duration::from_secs(600);
/// Maximum number of kinds that are told apart.
const MOST: usize = 256;

// === impl Routes ===

impl Routes {
    /// End of the pause of this kind, if it pauses.
    pub(super) fn pause(&self, route: &RouteKey) -> Option<Instant> {
        self.paused.get(&route.id()).map(|pause| pause.until)
    }

    /// When the API renews the cap that makes this kind pause, if a cap is the reason.
    pub(super) fn cap(&self, route: &RouteKey) -> Option<Instant> {
        self.paused.get(&route.id()).and_then(|pause| pause.cap)
    }

    /// Records that the API renews the cap on this paused kind at `renewed`.
    pub(super) fn capped(&mut self, route: &RouteKey, renewed: Instant) {
        self.paused.entry(route.id()).and_modify(|pause| pause.cap = Some(renewed));
    }

    /// Records that a request of this kind may leave. In a pause it is the kind's probe, and others wait a moment
    /// longer.
    pub(super) fn take(&mut self, route: &RouteKey, seq: Seq, now: Instant) {
        if self.paused.is_empty() {
            return;
        }
        if let Some(pause) = self.paused.get_mut(&route.id()) {
            (pause.until, pause.trying) = (now + TRYING, Some(seq));
        }
    }

    /// Records that the request `seq` was not sent, or that its answer says nothing about its kind. If it was the
    /// probe, another one may try.
    pub(super) fn return_unused(&mut self, route: &RouteKey, seq: Seq, now: Instant) {
        if let Some(pause) = self.paused.get_mut(&route.id()).filter(|pause| pause.trying == Some(seq)) {
            (pause.until, pause.trying) = (now, None);
        }
    }

    /// Latest end of all pauses.
    pub(super) fn last_pause(&self) -> Option<Instant> {
        self.paused.values().map(|pause| pause.until).max()
    }

    /// Counts one refusal. Returns true if this kind is refused repeatedly while all others are served.
    pub(super) fn is_alone(&mut self, route: &RouteKey) -> bool {
        let route = route.id();
        if self.suspects.len() >= SUSPECTS && !self.suspects.contains_key(&route) {
            let oldest = self.suspects.iter().max_by_key(|(_, suspect)| suspect.others).map(|(route, _)| *route);
            oldest.map(|oldest| self.suspects.remove(&oldest));
        }
        let suspect = self.suspects.entry(route).or_default();
        suspect.refused += 1;
        let alone = suspect.refused >= ALONE && suspect.others >= OTHERS;
        if alone {
            self.all_refused = 0;
        }
        alone
    }

    /// Forgets this kind, which is now paced separately.
    pub(super) fn forget(&mut self, route: &RouteKey) {
        self.paused.remove(&route.id());
        self.suspects.remove(&route.id());
    }

    /// Returns true if this kind may pause separately: not if too many kinds do, or if all are refused.
    pub(super) fn has_room(&mut self, route: &RouteKey, now: Instant) -> bool {
        if self.paused.contains_key(&route.id()) {
            return true;
        }
        if self.paused.len() >= MOST {
            self.paused.retain(|_, pause| pause.until > now);
        }
        self.paused.len() < MOST && self.strangers < self.most_strangers()
    }

    /// Records that a request of this kind was refused, or has used up the kind's quota. `wait`: the time that the API
    /// asked for. Returns how long the kind pauses from now on.
    pub(super) fn refused(
        &mut self,
        route: &RouteKey,
        wait: Option<Duration>,
        sent: Instant,
        now: Instant,
    ) -> Option<Duration> {
        let route = route.id();
        let wait = wait.unwrap_or_default().min(A_DAY);
        match self.paused.get_mut(&route) {
            // The request was in flight before the pause.
            Some(pause) if sent < pause.since => None,
            Some(pause) => {
                let again = (pause.again + 1).min(20);
                let length = FIRST.mul_f64(2f64.powi(again)).min(LONGEST).max(wait);
                *pause = Pause { since: now, until: now + length, again, trying: None, cap: None };
                Some(length)
            }
            None => {
                self.strangers += 1;
                if now.since(self.all_refused_at) >= TOGETHER {
                    self.all_refused = 0;
                }
                if self.strangers == self.most_strangers() {
                    (self.all_refused, self.all_refused_at) = (self.all_refused + 1, now);
                }
                let length = FIRST.max(wait);
                let pause = Pause { since: now, until: now + length, again: 0, trying: None, cap: None };
                self.paused.insert(route, pause);
                Some(length)
            }
        }
    }

    fn most_strangers(&self) -> u32 {
        STRANGERS.checked_shr(self.all_refused).unwrap_or(0).max(FEWEST)
    }

    /// Records that a request of this kind was served. Ends the kind's pause if the request was sent after the pause
    /// had begun.
    pub(super) fn served(&mut self, route: &RouteKey, sent: Instant) {
        let route = route.id();
        self.strangers = 0;
        if self.paused.get(&route).is_some_and(|pause| pause.since <= sent) {
            self.paused.remove(&route);
        }
        if !self.suspects.is_empty() {
            self.suspects.remove(&route);
            self.suspects.values_mut().for_each(|suspect| suspect.others = suspect.others.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(of: u64) -> Instant {
        Instant::START + Duration::from_secs(of)
    }

    #[test]
    fn one_tries_for_all_of_its_kind_and_pauses_grow() {
        let (mut routes, kind) = (Routes::default(), RouteKey::new("GET", "/a"));
        assert_eq!(routes.refused(&kind, None, s(0), s(1)), Some(FIRST));
        assert_eq!(routes.refused(&kind, None, s(0), s(1)), None, "it was under way before");
        assert_eq!(routes.pause(&kind), Some(s(2)));
        assert_eq!(routes.pause(&RouteKey::new("GET", "/b")), None);
        routes.take(&kind, 7, s(2));
        assert_eq!(routes.pause(&kind), Some(s(4)), "the others wait for what the first one finds");
        assert_eq!(routes.refused(&kind, None, s(2), s(2)), Some(FIRST * 2));
        routes.served(&kind, s(1));
        assert_eq!(routes.pause(&kind), Some(s(4)), "it was under way before as well");
        routes.served(&kind, s(4));
        assert_eq!(routes.pause(&kind), None);
    }

    #[test]
    fn a_cap_is_known_until_its_kind_is_refused_for_another_reason_or_served() {
        let (mut routes, kind) = (Routes::default(), RouteKey::new("POST", "/spend"));
        routes.capped(&kind, s(100_000));
        assert_eq!(routes.cap(&kind), None, "it does not pause");
        routes.refused(&kind, Some(Duration::from_secs(100_000)), s(0), s(1));
        routes.capped(&kind, s(100_000));
        assert_eq!((routes.cap(&kind), routes.pause(&kind)), (Some(s(100_000)), Some(s(86_401))));
        assert_eq!(routes.cap(&RouteKey::new("GET", "/spend")), None);
        routes.refused(&kind, None, s(86_401), s(86_402));
        assert_eq!(routes.cap(&kind), None);
    }

    #[test]
    fn a_try_that_is_given_back_makes_room_for_another() {
        let (mut routes, kind) = (Routes::default(), RouteKey::new("GET", "/a"));
        routes.refused(&kind, None, s(0), s(1));
        routes.return_unused(&kind, 1, s(1));
        assert_eq!(routes.pause(&kind), Some(s(2)), "it was no try");
        routes.take(&kind, 7, s(2));
        routes.return_unused(&kind, 3, s(3));
        assert_eq!(routes.pause(&kind), Some(s(4)), "it was another one that tries");
        routes.return_unused(&kind, 7, s(3));
        assert_eq!(routes.pause(&kind), Some(s(3)));
    }

    #[test]
    fn one_kind_that_is_refused_among_others_that_are_served_is_alone() {
        let (mut routes, kind) = (Routes::default(), RouteKey::new("GET", "/a"));
        let served = |routes: &mut Routes| (0..5).for_each(|_| routes.served(&RouteKey::new("GET", "/b"), s(0)));
        assert!(!routes.is_alone(&kind));
        served(&mut routes);
        assert!(!routes.is_alone(&kind));
        served(&mut routes);
        assert!(routes.is_alone(&kind));
        assert!(!routes.is_alone(&RouteKey::new("GET", "/b")), "which is refused as well, but mostly served");
        assert!(routes.is_alone(&kind));
        routes.served(&kind, s(0));
        assert!(!routes.is_alone(&kind));
    }
}
