//! Random hints, for lanes and for what they have learned: no answer of an API breaks anything.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_hint::{Bucket, Cause, Dialect, Hint, Signal, Strength};
use andante_learn::{AnswerReport, Learned, Observation, Reason};
use andante_limit::{Budget, Charge, Cost, MarginSpec};
use andante_policy::{Policy, Spend, Trust};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{super::random::worst_window, World, kind, ms};

const DAY: Duration = Duration::from_secs(86_400);

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1 => Just(Duration::ZERO),
        4 => (0u64..5_000).prop_map(ms),
        2 => (0u64..7200).prop_map(Duration::from_secs),
        1 => (0u64..400).prop_map(|days| DAY * days as u32),
    ]
}

fn count() -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(0.0), 6 => (0u32..200).prop_map(f64::from), 1 => 0.0..1.0f64, 1 => Just(1e15)]
}

fn bucket() -> impl Strategy<Value = Bucket> {
    let name = prop::option::of(prop::sample::select(&["a", "b", "c"][..]));
    let (count, time) = (|| prop::option::of(count()), || prop::option::of(time()));
    (name, any::<bool>(), count(), count(), time(), time(), any::<bool>(), any::<bool>()).prop_map(
        |(name, requests, limit, remaining, reset, window, coarse, refills)| Bucket {
            name: name.map(Into::into),
            requests,
            limit,
            remaining,
            reset,
            window,
            coarse,
            refills,
        },
    )
}

fn hint() -> impl Strategy<Value = Hint> {
    use Signal::*;
    let signal =
        prop::sample::select(&[Ok, Slow, Exhausted, Throttled, Backoff, Banned, FatalQuota, Informational][..]);
    let cause =
        prop::sample::select(&[Cause::None, Cause::None, Cause::Quota, Cause::Concurrency, Cause::Overload][..]);
    let time = || prop::option::of(time());
    (signal, cause, time(), time(), prop::collection::vec(bucket(), 0..4)).prop_map(
        |(signal, cause, wait, retry_after, buckets)| Hint {
            signal,
            cause,
            wait,
            retry_after,
            later: Duration::ZERO,
            scope: None,
            dialect: Dialect::NONE,
            buckets,
            hopeless: None,
            strength: Strength::Head,
            done: false,
            unavailable: false,
        },
    )
}

/// The next event.
#[derive(Clone, Debug)]
enum Action {
    Passes(Duration),
    Takes,
    /// A request in flight, given by its place, is answered.
    Answered(usize, Box<Hint>, bool),
    Broke(usize),
    Ended(usize, bool),
}

fn step() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => time().prop_map(Action::Passes),
        6 => Just(Action::Takes),
        4 => (0usize..8, hint(), any::<bool>()).prop_map(|(at, hint, failed)| Action::Answered(at, hint.into(), failed)),
        1 => (0usize..8).prop_map(Action::Broke),
        1 => (0usize..8, any::<bool>()).prop_map(|(at, sent)| Action::Ended(at, sent)),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let spend = prop::sample::select(&[Spend::Even, Spend::Mostly, Spend::Greedy][..]);
    let trust = prop::sample::select(&[Trust::Waits, Trust::Stricter, Trust::Api][..]);
    (spend, trust, any::<bool>()).prop_map(|(spend, trust, limited)| {
        let mut policy = Policy::new("test", Vec::new());
        (policy.spend, policy.trust) = (spend, trust);
        policy.limits = if limited { vec!["10/s".parse().unwrap()] } else { Vec::new() };
        policy
    })
}

/// A lane's learned state without its lane.
struct Mind {
    learned: Learned,
    budget: Budget,
    now: Instant,
    under_way: Vec<(Charge, Instant)>,
}

impl Mind {
    fn earliest(&mut self) -> Instant {
        let scope = self.learned.scope(&kind());
        let at = self.learned.earliest(self.now, &Cost::MIN, scope);
        assert!(at >= self.now, "{at:?} is past at {:?}", self.now);
        assert!(at == Instant::FAR || at.since(self.now) <= DAY, "a pause of {:?}", at.since(self.now));
        if let Some((until, _)) = self.learned.closed(self.now, scope) {
            assert!(until.since(self.now) <= DAY, "closed for {:?}", until.since(self.now));
        }
        at.max(self.budget.ready(self.now, &Cost::MIN, scope).instant(self.now))
    }

    fn take(&mut self) {
        let scope = self.learned.scope(&kind());
        let gate = self.learned.closed(self.now, scope).is_some_and(|(_, reason)| reason != Reason::Exhausted);
        let charge = self.budget.take(self.now, self.now, Cost::MIN, scope);
        self.learned.take(self.now, &charge, &kind(), true, &mut self.budget);
        self.budget.sent(charge, self.now);
        self.under_way.push((charge, self.now));
        let next = self.earliest();
        assert!(!gate || next.since(self.now) >= Duration::from_secs(2), "two try at once whether a gate may open");
    }

    fn answered(&mut self, at: usize, hint: &Hint, failed: bool) {
        let (charge, sent) = self.under_way.remove(at);
        self.budget.answered(charge, sent, self.now);
        let heard = AnswerReport { hint, failed, route: None };
        let seen = Observation { heard, charge, kind: kind(), rule: None, crowd: 1, sent, at: self.now, waiting: true };
        self.learned.heard(&seen, &mut self.budget);
    }

    fn go(&mut self, step: Action) {
        let known = |at: usize, under_way: &[_]| at < under_way.len();
        match step {
            Action::Passes(time) => self.now = self.now + time,
            Action::Takes if self.earliest() <= self.now => self.take(),
            Action::Answered(at, hint, failed) if known(at, &self.under_way) => self.answered(at, &hint, failed),
            Action::Broke(at) if known(at, &self.under_way) => {
                // A connection was made for it, and it was never sent.
                let (charge, _) = self.under_way.remove(at);
                self.budget.recall(charge);
                self.learned.broke(self.now, charge.seq);
                self.learned.ended(self.now, charge, &kind(), false);
                self.budget.return_unused(charge);
            }
            Action::Ended(at, sent) if known(at, &self.under_way) => {
                let (charge, _) = self.under_way.remove(at);
                self.learned.ended(self.now, charge, &kind(), sent);
                self.budget.abandoned(charge, self.now);
            }
            _ => {}
        }
        self.earliest();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_stops_anybody_for_ever(policy in policy(), steps in prop::collection::vec(step(), 1..80)) {
        let budget = Budget::new(&policy.limits, MarginSpec::Fixed(ms(10)), Instant::START);
        let budget = if policy.trust == Trust::Api { budget.yielding() } else { budget };
        let learned = Learned::new(&policy);
        let mut mind = Mind { learned, budget, now: Instant::START, under_way: Vec::new() };
        steps.into_iter().for_each(|step| mind.go(step));
        // From now on all requests are served, and answers report nothing more.
        for _ in 0..50 {
            let at = mind.earliest();
            if at == Instant::FAR {
                prop_assert!(!mind.under_way.is_empty(), "nothing is under way that could say more");
                mind.answered(0, &Hint::NOTHING, false);
            } else {
                mind.now = at;
                mind.take();
            }
        }
        prop_assert!(mind.now.since(Instant::START) < DAY * 40_000);
    }
}

/// Sends `arrivals` requests, each answered by one of `hints`, and returns when they left.
fn simulate(limits: &str, hints: Vec<(u64, Hint)>) -> Vec<(Instant, u32)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = Arc::new(World::with(limits, |policy| {
            policy.margin = MarginSpec::Fixed(ms(10));
            policy.max_wait = Duration::MAX;
        }));
        let (left, mut tasks) = (Arc::new(Mutex::new(Vec::new())), tokio::task::JoinSet::new());
        for (latency, hint) in hints {
            let (world, left) = (world.clone(), left.clone());
            tasks.spawn(async move {
                let mut permit = world.permit().await;
                permit.sent();
                left.lock().push((world.clock.now(), 1));
                tokio::time::sleep(ms(latency)).await;
                permit.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let end = world.lane.snapshot();
        assert_eq!((end.queue.waiting, end.in_flight.count), (0, 0), "somebody was forgotten");
        std::mem::take(&mut *left.lock())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_configured_is_kept_whatever_answers_say(
        hints in prop::collection::vec((0u64..300, prop_oneof![3 => Just(Hint::NOTHING), 1 => hint()]), 20..80),
        (limits, per, most) in prop_oneof![Just(("10/s", 1000, 10)), Just(("10/s burst 10", 1000, 10)), Just(("30/2s burst 5", 2000, 30))]
    ) {
        let mut left = simulate(limits, hints);
        let worst = worst_window(&mut left, ms(per));
        prop_assert!(worst <= most, "{worst} in a window of {limits}");
    }
}
