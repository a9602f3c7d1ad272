//! Groups of requests with limits of their own that the API does not report: requests of one kind, or with one
//! credential. Each group has its own estimator and gate.

mod evidence;
mod own;

use std::{collections::HashMap, fmt, time::Duration};

use andante_clock::Instant;
use andante_limit::Seq;

use self::{
    evidence::{RefusalCounts, Suspicion},
    own::GroupPace,
};
use super::{
    Changes, RouteKey,
    grounds::{OwnGroup, OwnLimit, Who},
    rate_estimator::{AnsweredRequest, ApiRefusal, RateEstimator},
    route_key::RouteName,
};

/// Refusal counts of all groups, and the groups that turned out to have limits of their own.
#[derive(Clone, Default)]
pub(super) struct OwnLimits {
    routes: RefusalCounts,
    credentials: RefusalCounts,
    own: HashMap<RouteGroup, GroupPace>,
    /// Number of credentials that turned out to have limits of their own.
    numbered: u32,
    /// Kind that was asked for last, and when it last differed from the previous one.
    asked: Option<RouteKey>,
    several: Option<Instant>,
    /// Kind that was refused last, and until when other kinds are to try whether they are refused as well.
    behind: Option<(RouteKey, Instant)>,
    /// Kind that was refused last, until a request of it is served, and the number of others served since.
    doubted: Option<(RouteKey, u32)>,
    /// Budget of the request that was refused last, and the send time of that request. Cleared once a later request of
    /// another budget is served.
    short: Option<(u32, Instant)>,
    /// When expired groups were last removed.
    swept: Instant,
}

/// A group of requests with a common property.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RouteGroup {
    Route(u32),
    Credential(u32),
    /// Requests that draw on one budget of a sub-limit.
    Budget(u32),
}

/// Maximum number of groups found from refusals, and maximum number of all groups, including budgets of sub-limits.
const MOST: usize = 64;
const MOST_BUDGETS: usize = 4096;
/// Interval at which expired groups are removed.
const SWEEP: Duration = Duration::from_secs(10);
/// If several kinds were asked for this recently, another kind than the refused one probes next; and its head start.
const LATELY: Duration = Duration::from_secs(20);
const ADVANTAGE: Duration = Duration::from_millis(2);
/// Requests of other kinds after which a refused kind is no longer waited for.
const BESIDE: u32 = 10;

// === impl OwnLimits ===

impl OwnLimits {
    /// End of the pause of this kind because of a limit of its own, if it has one.
    pub(super) fn pause(&self, kind: &RouteKey) -> Option<Instant> {
        let behind = self.behind.filter(|(behind, _)| behind == kind).map(|(_, until)| until);
        if self.own.is_empty() {
            return behind;
        }
        groups(kind).filter_map(|group| self.own.get(&group)).map(GroupPace::earliest).chain(behind).max()
    }

    /// Key of the group that pauses with requests of this kind, if there is one.
    #[inline]
    pub(super) fn line(&self, kind: &RouteKey, route_pauses: bool) -> Option<RouteKey> {
        // Usually nothing pauses separately.
        if self.own.is_empty() && self.behind.is_none() && !route_pauses {
            return None;
        }
        self.pausing_line(kind, route_pauses)
    }

    fn pausing_line(&self, kind: &RouteKey, route_pauses: bool) -> Option<RouteKey> {
        if self.behind.as_ref().is_some_and(|(behind, _)| behind == kind) {
            return Some(*kind);
        }
        let route = route_pauses || self.own.contains_key(&RouteGroup::Route(kind.id()));
        let credential = self.own.contains_key(&RouteGroup::Credential(kind.credential()));
        let budget = self.own.contains_key(&RouteGroup::Budget(kind.budget()));
        (route || credential || budget).then(|| kind.only(route, credential, budget))
    }

    /// Time between two requests of this kind, if it has a limit of its own.
    pub(super) fn slot(&self, kind: &RouteKey) -> Duration {
        let own = groups(kind).filter_map(|group| self.own.get(&group));
        own.map(GroupPace::slot).max().unwrap_or_default()
    }

    /// Latest end of all pauses.
    pub(super) fn last_pause(&self) -> Option<Instant> {
        self.own.values().filter_map(GroupPace::closed).max()
    }

    /// Returns true if no group has a limit of its own.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Returns true if requests of this kind have a limit of their own.
    pub(super) fn is_own(&self, kind: &RouteKey) -> bool {
        !self.own.is_empty() && groups(kind).any(|group| self.own.contains_key(&group))
    }

    /// Records that a request of this kind asks for a slot.
    pub(super) fn asked(&mut self, kind: &RouteKey, now: Instant) {
        if self.asked.as_ref() == Some(kind) {
            return;
        }
        if self.asked.replace(*kind).is_some() {
            self.several = Some(now);
        }
    }

    /// Lets other kinds probe first, because a request of this kind was refused and the lane pauses until `until`.
    pub(super) fn let_others_try(&mut self, kind: &RouteKey, now: Instant, until: Instant) {
        let several = self.several.is_some_and(|at| now.since(at) < LATELY);
        self.behind = several.then_some((*kind, until + ADVANTAGE));
        self.doubted = several.then_some((*kind, 0));
    }

    /// Returns true if this served request may say nothing about the refusal of another kind, which then probes next.
    pub(super) fn says_nothing_of_refused(&mut self, kind: &RouteKey) -> bool {
        let Some((doubted, others)) = &mut self.doubted else { return false };
        *others += 1;
        let beside = doubted != kind && *others < BESIDE;
        if !beside {
            self.doubted = None;
        }
        beside
    }

    /// Records the end of the lane's pause.
    pub(super) fn opened(&mut self) {
        self.behind = None;
    }

    /// Records that a request leaves as `seq`.
    pub(super) fn take(&mut self, kind: &RouteKey, seq: Seq, now: Instant, waited: bool) {
        if self.own.is_empty() {
            return;
        }
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.own.retain(|_, own| !own.is_over(now));
        }
        self.each(kind, |own| own.take(now, seq, waited));
    }

    /// Records that a request was served.
    pub(super) fn served(&mut self, kind: &RouteKey, answered: AnsweredRequest, estimator: &RateEstimator) {
        if self.short.is_some_and(|(budget, sent)| budget != kind.budget() && sent < answered.sent) {
            self.short = None;
        }
        if self.is_own(kind) {
            self.each(kind, |own| own.served(answered));
            self.routes.passes(kind.id(), answered.sent, answered.at);
            self.credentials.passes(kind.credential(), answered.sent, answered.at);
        } else {
            self.routes.served(kind.id(), answered.sent, answered.at, estimator.cycle_began());
            self.credentials.served(kind.credential(), answered.sent, answered.at, estimator.cycle_began());
        }
    }

    /// Records the refusal of a request that has a limit of its own.
    pub(super) fn refused(&mut self, kind: &RouteKey, answered: AnsweredRequest, refusal: ApiRefusal) {
        // While the group pauses, refusals belong to its own limit.
        let mut paused = false;
        self.each(kind, |own| {
            paused |= own.closed().is_some();
            own.refused(answered, refusal);
        });
        if !paused {
            self.routes.fails(kind.id(), answered.sent);
            self.credentials.fails(kind.credential(), answered.sent);
        }
    }

    /// Records that the API calls the number of concurrent requests of this kind too large.
    pub(super) fn too_many(&mut self, kind: &RouteKey) {
        self.each(kind, GroupPace::too_many);
    }

    /// Records the refusal of a request whose sub-limit had only the rule's limit so far. Returns true if that budget
    /// now gets a limit of its own, which it does unless requests of other budgets were refused just before.
    pub(super) fn is_short(
        &mut self,
        kind: &RouteKey,
        rule: Option<&str>,
        answered: AnsweredRequest,
        newest: Seq,
        estimator: &RateEstimator,
    ) -> bool {
        let budget = kind.budget();
        let others = self.short.is_some_and(|(short, _)| short != budget);
        self.short = Some((budget, answered.sent));
        if budget == 0 || others || self.own.len() >= MOST_BUDGETS {
            return false;
        }
        let since = answered.sent.since(Instant::START).as_secs_f64();
        let who = OwnGroup { who: Who::Rule(rule.map(Into::into)), refused: 1, others: 0 };
        let pace = GroupPace::new(estimator.of_kind(since, 0.0, 0.0), who, answered.at, newest);
        self.own.insert(RouteGroup::Budget(budget), pace);
        true
    }

    /// Records the refusal of a request without a limit of its own. Returns true if its group gets one now; the lane's
    /// limit then follows from the other requests. `alone`: the group was suspected before.
    pub(super) fn suspect(
        &mut self,
        kind: &RouteKey,
        route_name: Option<RouteName<'_>>,
        answered: AnsweredRequest,
        newest: Seq,
        alone: bool,
        estimator: &mut RateEstimator,
    ) -> bool {
        let route = self.routes.refused(kind.id(), answered.sent, answered.at, alone);
        let credential = self.credentials.refused(kind.credential(), answered.sent, answered.at, false);
        let contrast = |suspicion: &Option<Suspicion>| suspicion.map_or(0.0, |suspicion| suspicion.contrast);
        let credential = credential.filter(|_| kind.credential() != 0);
        let route = route.filter(|_| kind.id() != 0);
        let (group, suspicion) = if contrast(&credential) > contrast(&route) {
            (RouteGroup::Credential(kind.credential()), credential)
        } else {
            (RouteGroup::Route(kind.id()), route)
        };
        let Some(Suspicion { since, served, share, refused, others, .. }) =
            suspicion.filter(|_| self.found_out() < MOST)
        else {
            return false;
        };
        let who = match group {
            RouteGroup::Route(id) => {
                self.routes.forget(id);
                Who::Route(route_name.map(|name| name.to_string().into()))
            }
            RouteGroup::Credential(id) | RouteGroup::Budget(id) => {
                self.credentials.forget(id);
                self.numbered += 1;
                Who::Credential(self.numbered)
            }
        };
        let who = OwnGroup { who, refused, others };
        self.own.insert(group, GroupPace::new(estimator.of_kind(since, served, share), who, answered.at, newest));
        estimator.start_again(since);
        self.doubted = None;
        true
    }

    /// Reports limits of this kind that have changed.
    pub(super) fn found(&mut self, kind: &RouteKey, now: Instant, changes: &mut Changes) {
        self.each(kind, |own| own.found(now, changes));
    }

    /// All groups with limits of their own, in any order, for status output.
    pub(super) fn looked_at(&self, now: Instant) -> Vec<OwnLimit> {
        self.own.values().map(|own| own.looked_at(now)).collect()
    }

    /// Group of this kind that has a limit of its own.
    pub(super) fn group_of(&self, kind: &RouteKey) -> Option<OwnGroup> {
        groups(kind).find_map(|group| self.own.get(&group)).map(GroupPace::group)
    }

    /// Records that a request was answered in any way, or will not be.
    pub(super) fn ended(&mut self, kind: &RouteKey, seq: Seq) {
        self.each(kind, |own| own.ended(seq));
    }

    /// Number of groups with unreported limits of their own.
    fn found_out(&self) -> usize {
        self.own.keys().filter(|group| !matches!(group, RouteGroup::Budget(_))).count()
    }

    fn each(&mut self, kind: &RouteKey, mut act: impl FnMut(&mut GroupPace)) {
        if !self.own.is_empty() {
            groups(kind).for_each(|group| self.own.get_mut(&group).into_iter().for_each(&mut act));
        }
    }
}

impl fmt::Debug for OwnLimits {
    /// Hides the hashes of credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnLimits").field("own", &self.own.len()).finish_non_exhaustive()
    }
}

fn groups(kind: &RouteKey) -> impl Iterator<Item = RouteGroup> {
    let (route, credential, budget) = (kind.id(), kind.credential(), kind.budget());
    let route = (route != 0).then_some(RouteGroup::Route(route));
    let credential = (credential != 0).then_some(RouteGroup::Credential(credential));
    route.into_iter().chain(credential).chain((budget != 0).then_some(RouteGroup::Budget(budget)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends requests of several kinds, one every 10 ms, each answered 30 ms later. `limit` returns whether a request
    /// is served. Returns the kinds that are split off.
    fn split(kinds: &[(&str, usize)], mut limit: impl FnMut(usize, usize) -> bool) -> Vec<String> {
        let (mut groups, mut estimator) = (OwnLimits::default(), RateEstimator::new(None));
        let keys: Vec<_> = kinds.iter().map(|(path, _)| RouteKey::new("GET", path)).collect();
        let turns: Vec<_> = kinds.iter().enumerate().flat_map(|(kind, (_, many))| vec![kind; *many]).collect();
        for number in 0..2000 {
            // Mixed deterministically.
            let kind = turns[number * 7919 % turns.len()];
            let sent = Instant::START + Duration::from_millis(number as u64 * 10);
            let answered = AnsweredRequest { seq: number as Seq, sent, at: sent + Duration::from_millis(30), crowd: 3 };
            if limit(number, kind) {
                estimator.served(answered, false);
                groups.served(&keys[kind], answered, &estimator);
            } else if !groups.is_own(&keys[kind]) {
                groups.suspect(&keys[kind], None, answered, answered.seq, false, &mut estimator);
            }
        }
        let own = keys.iter().zip(kinds).filter(|(key, _)| groups.is_own(key));
        own.map(|(_, (path, _))| (*path).to_owned()).collect()
    }

    #[test]
    fn who_is_refused_while_others_are_served_has_a_limit_of_its_own() {
        // Thirty requests per second are allowed for `/a`, and about 43 are sent.
        let mut served = 0;
        let split = split(&[("/a", 3), ("/b", 4)], |number, kind| {
            served = if number % 100 == 0 { 0 } else { served + usize::from(kind == 0) };
            kind == 1 || served <= 30
        });
        assert_eq!(split, ["/a"]);
    }

    #[test]
    fn who_are_refused_alike_share_a_limit_however_unequal_they_are() {
        for kinds in [[("/a", 1), ("/b", 1)], [("/a", 1), ("/b", 19)], [("/a", 7), ("/b", 3)]] {
            // Serves the first part of each second, or of each two seconds, and then at random.
            assert!(split(&kinds, |number, _| number % 100 < 80).is_empty(), "{kinds:?}");
            assert!(split(&kinds, |number, _| number % 200 < 100).is_empty(), "{kinds:?}");
            let mut dice = fastrand::Rng::with_seed(1);
            assert!(split(&kinds, |_, _| dice.f64() > 0.02).is_empty(), "{kinds:?}");
            assert!(split(&kinds, |_, _| dice.f64() > 0.2).is_empty(), "{kinds:?}");
        }
    }

    #[test]
    fn keys_of_one_route_are_told_apart_and_requests_without_one_are_not() {
        let route = RouteKey::new("GET", "/a");
        let (free, paid) = (route.with_credential(7), route.with_credential(8));
        for (refused, others) in [(free, paid), (route, paid)] {
            let (mut groups, mut estimator) = (OwnLimits::default(), RateEstimator::new(None));
            let mut split = false;
            for number in 0..200 {
                let sent = Instant::START + Duration::from_millis(number * 10);
                let answered = AnsweredRequest { seq: number, sent, at: sent, crowd: 1 };
                if number % 2 == 0 {
                    groups.served(&others, answered, &estimator);
                } else if number < 20 {
                    groups.served(&refused, answered, &estimator);
                } else if !split {
                    split = groups.suspect(&refused, None, answered, answered.seq, false, &mut estimator);
                }
            }
            assert_eq!(split, refused == free);
            assert_eq!(groups.is_own(&free), refused == free);
            assert!(!groups.is_own(&paid) && !groups.is_own(&route));
            assert_eq!(groups.line(&free, false), split.then(|| free.only(false, true, false)), "whatever it asks for");
        }
    }

    #[test]
    fn a_group_that_nobody_uses_is_forgotten() {
        let (mut groups, estimator) = (OwnLimits::default(), RateEstimator::new(None));
        let (kind, other) = (RouteKey::new("GET", "/a"), RouteKey::new("GET", "/b"));
        let at = |seconds| Instant::START + Duration::from_secs(seconds);
        let group = OwnGroup { who: Who::Route(None), refused: 3, others: 4 };
        groups
            .own
            .insert(RouteGroup::Route(kind.id()), GroupPace::new(estimator.of_kind(0.0, 1.0, 0.1), group, at(0), 0));
        groups.take(&other, 1, at(60), false);
        assert!(groups.is_own(&kind));
        groups.take(&other, 2, at(700), false);
        assert!(!groups.is_own(&kind) && groups.is_empty());
    }
}
