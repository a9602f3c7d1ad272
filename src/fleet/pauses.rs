//! Pauses that an API has asked one member for, and that all members observe.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use andante_clock::Instant;
use parking_lot::Mutex;

use super::words::{Pause, PauseCause, micros};

/// A pause that an API has asked this member for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPause {
    /// The API's name of the budget that pauses; empty if the whole lane pauses.
    pub budget: Box<str>,
    /// End of the pause.
    pub until: Instant,
    /// Cause of the pause.
    pub cause: PauseCause,
}

/// Fleet's knowledge of one lane's pauses: no member reports a pause that the store has told it, or knows already.
#[derive(Clone, Debug, Default)]
pub struct SharedPauses {
    known: Vec<KnownPause>,
    /// Pauses that the call in flight reports.
    under_way: Vec<KnownPause>,
    /// Budgets whose pauses an operator has ended here, still unknown to the store.
    ended: Vec<Box<str>>,
    /// An operator has cleared learned limits here, still unknown to the store.
    forgotten: bool,
    /// A call to the store is due.
    calls: bool,
}

#[derive(Clone, Debug)]
struct KnownPause {
    budget: Box<str>,
    /// End of the pause; [`Instant::START`] if an operator has ended it.
    until: Instant,
}

/// Pauses that other members were asked for, for lanes that are created later. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct RunningPauses {
    pauses: Arc<Mutex<BTreeMap<Arc<str>, RunningPause>>>,
}

#[derive(Clone, Copy, Debug)]
struct RunningPause {
    until: Instant,
    cause: PauseCause,
}

/// Minimum length of a pause that is shared: `SHORTEST_EMPTY` for an exhausted quota, otherwise `SHORTEST`.
const SHORTEST: Duration = Duration::from_millis(500);
const SHORTEST_EMPTY: Duration = Duration::from_secs(2);
/// Name of a budget whose pause tells members that an operator has cleared learned limits. No real budget has this
/// name, so older members have nothing that pauses.
pub const FORGOTTEN: &str = "\nforgotten";
/// Lifetime of this message, for members that could not call at once.
const FORGETTING: Duration = Duration::from_secs(60);
/// Minimum extension of a pause that is reported: successive responses name about the same end.
const SAME: Duration = Duration::from_millis(100);

// === impl AskedPause ===

impl AskedPause {
    /// Returns true if the pause is over before other members could benefit.
    fn is_short(&self, now: Instant) -> bool {
        let shortest = match self.cause {
            PauseCause::RetryAfter | PauseCause::Banned => SHORTEST,
            PauseCause::Exhausted => SHORTEST_EMPTY,
        };
        self.until < now + shortest
    }
}

// === impl SharedPauses ===

impl SharedPauses {
    /// Records the pauses that the API currently asks for.
    pub fn asked(&mut self, now: Instant, asked: &[AskedPause]) {
        self.calls |= asked.iter().any(|pause| self.is_news(now, pause));
    }

    /// Returns true if a call to the store is due.
    pub fn is_calling(&self) -> bool {
        self.calls
    }

    /// Returns true, once for each reason, if a call to the store is due.
    pub fn calls(&mut self) -> bool {
        std::mem::take(&mut self.calls)
    }

    /// Builds the pauses of the next call for the lane called `name`; the API has `asked` for these pauses. With
    /// `reports`, the store may have lost its state.
    pub fn speak(&mut self, now: Instant, name: &str, asked: Vec<AskedPause>, reports: bool) -> Vec<Pause> {
        self.calls = false;
        self.known.retain(|known| !reports && known.until > now);
        let called = |budget: &str| if budget.is_empty() { name.into() } else { format!("{name}\n{budget}").into() };
        let mut pauses = Vec::new();
        for budget in self.ended.drain(..) {
            // The cause of an ended pause is irrelevant.
            pauses.push(Pause { name: called(&budget), left: 0, cause: PauseCause::RetryAfter });
            self.under_way.push(KnownPause { budget, until: Instant::START });
        }
        if std::mem::take(&mut self.forgotten) {
            let left = micros(FORGETTING);
            pauses.push(Pause { name: called(FORGOTTEN), left, cause: PauseCause::RetryAfter });
            self.under_way.push(KnownPause { budget: FORGOTTEN.into(), until: now + FORGETTING });
        }
        for pause in asked {
            if self.is_news(now, &pause) {
                let AskedPause { budget, until, cause } = pause;
                pauses.push(Pause { name: called(&budget), left: micros(until.since(now)), cause });
                self.under_way.push(KnownPause { budget, until });
            }
        }
        pauses
    }

    /// Records that the store has received the last report.
    pub fn heard(&mut self) {
        for KnownPause { budget, until } in std::mem::take(&mut self.under_way) {
            if until > Instant::START && *budget != *FORGOTTEN {
                self.know(&budget, until);
            }
        }
    }

    /// Records that the store may not have received the last report.
    pub fn unheard(&mut self) {
        self.forgotten |= self.under_way.iter().any(|pause| *pause.budget == *FORGOTTEN);
        let ended = self.under_way.drain(..).filter(|pause| pause.until == Instant::START);
        self.ended.extend(ended.map(|pause| pause.budget));
    }

    /// Records that the store does not know this process any more, and may have lost its state.
    pub fn lost(&mut self) {
        let is_empty = self.known.is_empty() && self.under_way.is_empty() && self.ended.is_empty();
        self.calls |= !is_empty || self.forgotten;
        self.unheard();
        self.known.clear();
    }

    /// Records that, as the store reports, `budget` pauses until `until`.
    pub fn told(&mut self, now: Instant, budget: &str, until: Instant) {
        self.known.retain(|known| known.until > now);
        self.know(budget, until);
    }

    /// Records that, as the store reports, an operator has ended the pause of `budget`. Returns the latest end by what
    /// the store had reported or received.
    pub fn told_of_end(&mut self, budget: &str) -> Option<Instant> {
        let at = self.known.iter().position(|known| *known.budget == *budget)?;
        Some(self.known.swap_remove(at).until + SAME)
    }

    /// Records that an operator clears learned limits: all pauses known to the store end, and other members clear
    /// theirs as well.
    pub fn forget(&mut self, now: Instant) {
        let known = self.known.drain(..).chain(self.under_way.iter().cloned());
        let known = known.filter(|pause| pause.until > now && *pause.budget != *FORGOTTEN);
        self.ended.extend(known.map(|pause| pause.budget));
        (self.forgotten, self.calls) = (true, true);
    }

    fn is_news(&self, now: Instant, pause: &AskedPause) -> bool {
        let known = self.known.iter().find(|known| known.budget == pause.budget).map(|known| known.until);
        !pause.is_short(now) && known.is_none_or(|until| pause.until > until + SAME)
    }

    fn know(&mut self, budget: &str, until: Instant) {
        match self.known.iter_mut().find(|known| *known.budget == *budget) {
            Some(known) => known.until = known.until.max(until),
            None => self.known.push(KnownPause { budget: budget.into(), until }),
        }
    }
}

// === impl Pause ===

impl Pause {
    /// Budget of the lane called `lane` that pauses: empty for the whole lane; `None` if another lane pauses.
    pub fn budget_of(&self, lane: &str) -> Option<&str> {
        let budget = self.name.strip_prefix(lane)?;
        if budget.is_empty() { Some(budget) } else { budget.strip_prefix('\n') }
    }

    /// End of the pause as received at `now`: later than at the member that was asked for it, by the reply's delay.
    pub fn until(&self, now: Instant) -> Instant {
        now + Duration::from_micros(self.left.unsigned_abs())
    }
}

// === impl RunningPauses ===

impl RunningPauses {
    /// Records `pauses` that the store reports.
    pub fn told(&self, now: Instant, pauses: &[Pause]) {
        let mut running = self.pauses.lock();
        running.retain(|_, pause| pause.until > now);
        for pause in pauses {
            let (name, told) = (&pause.name, RunningPause { until: pause.until(now), cause: pause.cause });
            if pause.left == 0 {
                running.remove(name);
            } else if running.get(name).is_none_or(|known| known.until < told.until) {
                running.insert(name.clone(), told);
            }
        }
    }

    /// Pauses that hold at `now` for the lane called `lane`.
    pub fn of(&self, now: Instant, lane: &str) -> Vec<Pause> {
        let running = self.pauses.lock();
        let named = running
            .range::<str, _>((Bound::Included(lane), Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(lane));
        let running = named.filter(|(_, pause)| pause.until > now);
        let left = |(name, pause): (&Arc<str>, &RunningPause)| Pause {
            name: name.clone(),
            left: micros(pause.until.since(now)),
            cause: pause.cause,
        };
        running.map(left).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(of: u64) -> Instant {
        Instant::START + Duration::from_secs(of)
    }

    fn lane(until: u64) -> Vec<AskedPause> {
        vec![AskedPause { budget: "".into(), until: s(until), cause: PauseCause::RetryAfter }]
    }

    fn said(pauses: &[Pause]) -> Vec<(&str, i64)> {
        pauses.iter().map(|pause| (&*pause.name, pause.left / 1_000_000)).collect()
    }

    #[test]
    fn a_pause_is_said_until_the_store_has_heard_it_and_no_more() {
        let mut pauses = SharedPauses::default();
        pauses.asked(s(1), &lane(31));
        assert!(pauses.calls() && !pauses.calls());
        assert_eq!(said(&pauses.speak(s(2), "api", lane(31), false)), [("api", 29)]);
        pauses.unheard();
        assert_eq!(said(&pauses.speak(s(3), "api", lane(31), false)), [("api", 28)]);
        pauses.heard();
        assert_eq!(said(&pauses.speak(s(4), "api", lane(31), false)), []);
        pauses.asked(s(4), &lane(31));
        assert!(!pauses.calls());
        pauses.asked(s(5), &lane(45));
        assert!(pauses.calls(), "it has become longer");
    }

    #[test]
    fn what_was_said_to_a_store_that_knows_this_member_no_more_is_said_again() {
        let mut pauses = SharedPauses::default();
        pauses.asked(s(1), &lane(31));
        assert!(pauses.calls());
        assert_eq!(said(&pauses.speak(s(2), "api", lane(31), false)), [("api", 29)]);
        pauses.lost();
        assert!(pauses.calls());
        assert_eq!(said(&pauses.speak(s(3), "api", lane(31), false)), [("api", 28)]);
    }

    #[test]
    fn what_the_store_has_said_is_not_said_to_it_unless_it_forgets() {
        let mut pauses = SharedPauses::default();
        pauses.told(s(1), "", s(31));
        assert_eq!(said(&pauses.speak(s(2), "api", lane(31), false)), []);
        assert_eq!(said(&pauses.speak(s(2), "api", lane(31), true)), [("api", 29)]);
    }

    #[test]
    fn what_is_over_soon_is_not_said() {
        let mut pauses = SharedPauses::default();
        let soon = s(1) + Duration::from_millis(400);
        let mut asked = lane(3);
        asked[0].until = soon;
        assert_eq!(said(&pauses.speak(s(1), "api", asked.clone(), false)), []);
        // The API reports one reset again and again.
        asked[0] = AskedPause { until: s(2), cause: PauseCause::Exhausted, ..asked[0].clone() };
        assert_eq!(said(&pauses.speak(s(1), "api", asked, false)), []);
    }

    #[test]
    fn what_an_operator_has_forgotten_is_said_until_the_store_has_heard_it() {
        let mut pauses = SharedPauses::default();
        pauses.told(s(1), "core", s(31));
        pauses.forget(s(2));
        assert!(pauses.calls());
        let all = [("api\ncore", 0), ("api\n\nforgotten", 60)];
        assert_eq!(said(&pauses.speak(s(2), "api", vec![], false)), all);
        pauses.unheard();
        assert_eq!(said(&pauses.speak(s(3), "api", vec![], false)), all);
        pauses.heard();
        assert_eq!(said(&pauses.speak(s(4), "api", vec![], false)), []);
    }

    #[test]
    fn a_lane_that_is_opened_later_finds_what_runs() {
        let running = RunningPauses::default();
        let pause = |name: &str, left| Pause { name: name.into(), left, cause: PauseCause::Banned };
        running.told(s(1), &[pause("a\nb", 5_000_000), pause("a\nb\ncore", 9_000_000), pause("a\nbc", 5_000_000)]);
        let of = |now, lane| running.of(now, lane).iter().filter_map(|pause| pause.budget_of(lane)).count();
        assert_eq!((of(s(2), "a\nb"), of(s(7), "a\nb"), of(s(2), "\na"), of(s(2), "\nb")), (2, 1, 0, 0));
        running.told(s(3), &[pause("a\nb", 0)]);
        assert_eq!(of(s(3), "a\nb"), 1);
    }
}
