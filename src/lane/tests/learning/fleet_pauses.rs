//! Pauses shared by the members of a fleet: what a member reports of an answer, and how the others apply it.

use andante_fleet::{Lease, Pause, PauseCause, PoolGrant};
use andante_learn::Reason;
use tokio::sync::mpsc;

use super::*;
use crate::{Lane, Sharing, state::SharedNames};
use std::sync::Arc;

/// A lane without limits that one member has, and the store's side of it.
struct SharedWorld {
    world: World,
    wakes: mpsc::UnboundedReceiver<Arc<Lane>>,
}

impl SharedWorld {
    fn new() -> Self {
        let (sender, wakes) = mpsc::unbounded_channel();
        let names = SharedNames { pools: "\napi.test".into(), pauses: "\napi.test".into() };
        let World { lane, clock } = World::unlimited(|_| {});
        let lane = Arc::into_inner(lane)
            .unwrap()
            .shared(&Sharing::new("redis://store".into(), Lease::default(), sender), names);
        Self { world: World { lane: Arc::new(lane), clock }, wakes }
    }

    /// The pauses that it reports to the store, if it asks for a call: names, whole seconds and causes.
    fn tells(&mut self) -> Vec<(String, u64, PauseCause)> {
        if self.wakes.try_recv().is_err() {
            return Vec::new();
        }
        let said = self.world.lane.speak(false).pauses;
        self.world.lane.given(std::iter::empty());
        let seconds = |pause: &Pause| pause.left.unsigned_abs().div_ceil(1_000_000);
        said.iter().map(|pause| (pause.name.to_string(), seconds(pause), pause.cause)).collect()
    }

    fn hears(&self, name: &str, seconds: i64, cause: PauseCause) {
        self.world.lane.told_of_pauses(&[Pause { name: name.into(), left: seconds * 1_000_000, cause }]);
    }
}

/// RFC 9110, 10.2.3; <https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-10.html>;
/// <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>.
#[tokio::test(start_paused = true)]
async fn what_the_api_asks_for_is_told_and_what_a_member_guesses_is_not() {
    const LANE: &str = "\napi.test";
    let reset = (MORNING.as_secs() + 31).to_string();
    let (empty, named) = ([("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "0")], "\napi.test\nsearch");
    let with = |more: &[(&'static str, &'static str)]| [&empty[..], more].concat();
    let reset: &'static str = reset.leak();
    let [plain, soon, github] = [
        with(&[("x-ratelimit-reset", "30")]),
        with(&[("x-ratelimit-reset", "1")]),
        with(&[("x-ratelimit-reset", reset), ("x-ratelimit-resource", "search"), ("x-ratelimit-used", "100")]),
    ];
    let cases: [(CannedAnswer<'_>, Option<(&str, PauseCause)>); 8] = [
        ((429, &[("retry-after", "30")]), Some((LANE, PauseCause::RetryAfter))),
        ((503, &[("retry-after", "30")]), Some((LANE, PauseCause::RetryAfter))),
        ((200, &plain), Some((LANE, PauseCause::Exhausted))),
        ((200, &github), Some((named, PauseCause::Exhausted))),
        ((200, &soon), None),
        ((429, &[("retry-after-ms", "100")]), None),
        ((429, &[]), None),
        ((500, &[]), None),
    ];
    for (answer, told) in cases {
        let mut one = SharedWorld::new();
        one.world.call(answer).await;
        let said = one.tells();
        match told {
            Some((name, cause)) => {
                assert_eq!((said.len(), &*said[0].0, said[0].2), (1, name, cause), "{answer:?}: {said:?}");
                // A time of day in whole seconds may be a second later.
                let latest = if cause == PauseCause::Exhausted { 32 } else { 30 };
                assert!((30..=latest).contains(&said[0].1), "{answer:?}: {said:?}");
                assert_eq!(one.tells(), [], "{answer:?}: once");
            }
            None => assert_eq!(said, [], "{answer:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_told_holds_and_is_not_told_again() {
    let mut other = SharedWorld::new();
    let waiting = waits({
        other.hears("\napi.test", 30, PauseCause::RetryAfter);
        other.world.ask()
    });
    let (reason, opens) = other.world.lane.snapshot().queue.gate.unwrap();
    assert_eq!((reason, opens), (Reason::RetryAfter, s(30)));
    // Neither of these is longer, and none is the lane's.
    other.hears("\napi.test", 10, PauseCause::RetryAfter);
    other.hears("\nother.test", 90, PauseCause::RetryAfter);
    assert_eq!(other.tells(), []);
    drop(waiting.await.unwrap());
    assert_eq!(other.world.elapsed(), s(30));
    assert!(other.world.call(SERVED).await < s(31));
}

#[tokio::test(start_paused = true)]
async fn of_what_is_told_and_what_a_member_was_asked_itself_the_longer_holds() {
    for (own, told) in [("30", 10), ("10", 30)] {
        let mut both = SharedWorld::new();
        both.world.call((429, &[("retry-after", own)])).await;
        both.hears("\napi.test", told, PauseCause::RetryAfter);
        let pause = both.world.pause(kind()).unwrap();
        assert!(pause > ms(29_900) && pause <= s(30), "{own}, {told}: {pause:?}");
        assert_eq!(both.tells().len(), usize::from(own == "30"), "what is shorter is of no use to others");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_a_named_budget_is_for_those_that_know_it() {
    let (search, users) = (get("/search"), get("/users"));
    let left = |resource| {
        [
            ("x-ratelimit-limit", "30"),
            ("x-ratelimit-remaining", "20"),
            ("x-ratelimit-reset", "60"),
            ("x-ratelimit-resource", resource),
        ]
    };
    let (mut knows, blank) = (SharedWorld::new(), SharedWorld::new());
    knows.world.call_for(search, (200, &left("search"))).await;
    knows.world.call_for(users, (200, &left("core"))).await;
    for one in [&knows, &blank] {
        one.hears("\napi.test\nsearch", 40, PauseCause::Exhausted);
    }
    assert!(knows.world.pause(search).is_some_and(|pause| pause > s(35)));
    assert_eq!((knows.world.pause(users), blank.world.pause(search)), (None, None));
    assert_eq!(knows.tells(), []);
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_forgets_at_one_member_is_over_at_all() {
    let (mut one, mut other) = (SharedWorld::new(), SharedWorld::new());
    one.world.call((429, &[("retry-after", "3600")])).await;
    assert_eq!(one.tells().len(), 1);
    other.hears("\napi.test", 3600, PauseCause::RetryAfter);
    let waiting = waits(other.world.ask());

    one.world.lane.forget_learned();
    let said = one.tells();
    let [ended, forgotten] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*ended, ("\napi.test".to_owned(), 0, PauseCause::RetryAfter));
    assert_eq!((&*forgotten.0, forgotten.1), ("\napi.test\n\nforgotten", 60));
    other.hears("\napi.test", 0, PauseCause::RetryAfter);
    drop(waiting.await.unwrap());
    assert!(other.world.elapsed() < s(1));
    assert_eq!(other.tells(), []);
}

/// A forgotten report of the API's quota is unknown until the API reports again.
#[tokio::test(start_paused = true)]
async fn what_an_operator_has_forgotten_at_one_member_is_forgotten_at_all() {
    let reports = [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "90"), ("x-ratelimit-reset", "60")];
    let (mut one, mut other) = (SharedWorld::new(), SharedWorld::new());
    for member in [&mut one, &mut other] {
        member.world.call((200, &reports)).await;
        assert_eq!(member.world.lane.snapshot().learned.quotas.len(), 1);
        member.tells();
    }
    one.world.lane.forget_learned();
    for (name, left, cause) in one.tells() {
        other.hears(&name, left as i64, cause);
    }
    for member in [&mut one, &mut other] {
        assert_eq!(member.world.lane.snapshot().learned.quotas.len(), 0);
        assert_eq!(member.tells(), [], "once is enough");
    }
    // The quota is learned again, and stays.
    other.world.call((200, &reports)).await;
    assert_eq!(other.world.lane.snapshot().learned.quotas.len(), 1);
}

/// The API reported to this member that nothing is left, and a later refusal asks for the same pause.
#[tokio::test(start_paused = true)]
async fn what_an_operator_forgets_elsewhere_is_over_where_the_api_asked_for_it() {
    let empty = [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1800")];
    let mut one = SharedWorld::new();
    one.world.call((200, &empty)).await;
    assert_eq!(one.tells(), [("\napi.test".to_owned(), 1800, PauseCause::Exhausted)]);
    one.hears("\napi.test", 0, PauseCause::RetryAfter);
    drop(one.world.permit().await);
    assert!(one.world.elapsed() < s(1));
    assert_eq!(one.tells(), [], "it would pause all again");

    let mut one = SharedWorld::new();
    let asked = [("retry-after", "3600")];
    let [first, second] = one.world.send_all(2).await.try_into().unwrap();
    one.world.answer(first, (503, &asked));
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(one.tells().len(), 1);
    one.world.answer(second, (503, &asked));
    one.hears("\napi.test", 0, PauseCause::RetryAfter);
    drop(one.world.permit().await);
    assert!(one.world.elapsed() < s(1));
}

/// A member's own guess holds although another member's pause is over.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_told_pause_ends_no_other() {
    let other = SharedWorld::new();
    other.world.call((429, &[("retry-after", "60")])).await;
    other.hears("\napi.test", 0, PauseCause::RetryAfter);
    assert!(other.world.pause(kind()).is_some_and(|pause| pause > s(59)), "the store was not told of it yet");
}

/// The documented window is an hour
/// (<https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>). The lane started in the middle
/// of a window and sent half of it. No request leaves for long, so none of its own answers can correct it.
#[tokio::test(start_paused = true)]
async fn a_window_that_another_has_seen_ends_one_that_was_only_documented() {
    let one = SharedWorld::new();
    let reset = (MORNING.as_secs() + 11).to_string();
    for (left, permit) in (0..50).rev().zip(one.world.send_all(50).await) {
        let (left, used) = (left.to_string(), (200 - left).to_string());
        let said = [
            ("x-ratelimit-limit", "200"),
            ("x-ratelimit-remaining", &left),
            ("x-ratelimit-used", &used),
            ("x-ratelimit-reset", &reset),
            ("x-ratelimit-resource", "core"),
        ];
        one.world.answer(permit, (200, &said));
    }
    let limits = || one.world.lane.snapshot().limits.iter().map(|limit| limit.spec.rate.per).collect::<Vec<_>>();
    assert_eq!(limits(), [s(3600)]);
    let shares = one.world.lane.speak(true).entries;
    let word = "200 10000000 at-reset core\n";
    let grant = PoolGrant {
        holds: 50,
        target: 50.0,
        wanted: true,
        over: false,
        queued: false,
        limit: 200,
        pace: 50.0,
        word: word.into(),
    };
    one.world.lane.given(shares.iter().map(|entry| (entry, &grant)));
    assert_eq!(limits(), [Duration::ZERO; 0]);
    drop(one.world.permit().await);
    // In whole seconds, the reset may be one later.
    assert!((s(9)..=s(13)).contains(&one.world.elapsed()), "{:?}", one.world.elapsed());
}
