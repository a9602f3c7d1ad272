//! Kinds of requests with budgets of their own: each budget limits its kind, and no other.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use andante_clock::Instant;
use andante_hint as hint;
use andante_learn::{AnswerReport, RouteKey};
use http::HeaderMap;

use super::{CannedAnswer, LATENCY, MORNING, SERVED, World, ms, s};
use crate::{Admission, Permit};

/// A GitHub resource: a window that begins with its first request, and a quota of points for it.
struct Resource {
    name: &'static str,
    kinds: &'static [(&'static str, &'static str)],
    limit: u64,
    window: Duration,
    /// Costs of its requests, in turn.
    costs: &'static [u64],
    used: u64,
    since: Option<Instant>,
    /// Times and costs of accepted requests.
    accepted: Vec<(Instant, u64)>,
    refused: usize,
}

impl Resource {
    /// Handles an arriving request: returns the status and the fields of the answer.
    fn ask(&mut self, now: Instant) -> (u16, Vec<(&'static str, String)>) {
        let since = match self.since {
            Some(since) if now.since(since) < self.window => since,
            _ => {
                self.used = 0;
                *self.since.insert(now)
            }
        };
        let cost = self.costs[self.accepted.len() % self.costs.len()];
        let accepted = self.used + cost <= self.limit;
        if accepted {
            self.used += cost;
            self.accepted.push((now, cost));
        } else {
            self.refused += 1;
        }
        // GitHub reports the second in which its window ends, rounded up.
        let reset = (MORNING + since.since(Instant::START) + self.window).as_secs() + 1;
        let fields = vec![
            ("x-ratelimit-limit", self.limit.to_string()),
            ("x-ratelimit-remaining", (self.limit - self.used.min(self.limit)).to_string()),
            ("x-ratelimit-used", self.used.to_string()),
            ("x-ratelimit-reset", reset.to_string()),
            ("x-ratelimit-resource", self.name.to_owned()),
        ];
        (if accepted { 200 } else { 403 }, fields)
    }
}

/// Sends one request after the other until `end`.
async fn work(world: Rc<World>, resource: Rc<RefCell<Resource>>, number: usize, end: Instant) {
    for turn in number.. {
        let kinds = resource.borrow().kinds;
        let (method, path) = kinds[turn % kinds.len()];
        loop {
            let mut permit = world.permit_for(RouteKey::new(method, path)).await;
            if world.clock.now() >= end {
                return;
            }
            permit.sent();
            tokio::time::sleep(LATENCY / 2).await;
            let (status, fields) = resource.borrow_mut().ask(world.clock.now());
            tokio::time::sleep(LATENCY / 2).await;
            let arrived = MORNING + world.clock.now().since(Instant::START);
            let mut headers = HeaderMap::new();
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(arrived.as_secs()));
            headers.insert("date", date.parse().unwrap());
            fields.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
            let status = http::StatusCode::from_u16(status).unwrap();
            let hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived });
            permit.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
            if status == 200 {
                break;
            }
        }
    }
}

/// <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>: 5,000 an hour, searches 30 a
/// minute, GraphQL 5,000 points an hour. The queue of each resource is never empty.
#[tokio::test(start_paused = true)]
async fn three_resources_of_one_api_are_used_side_by_side() {
    let world = Rc::new(World::unlimited(|policy| policy.max_wait = Duration::MAX));
    let resource = |name, kinds, limit, window, costs| {
        let (accepted, since) = (Vec::new(), None);
        Rc::new(RefCell::new(Resource { name, kinds, limit, window, costs, used: 0, since, accepted, refused: 0 }))
    };
    let resources = [
        resource(
            "core",
            &[("GET", "/repos/a/b"), ("GET", "/users/c"), ("POST", "/repos/a/b/issues")],
            5000,
            s(3600),
            &[1],
        ),
        resource("search", &[("GET", "/search/code"), ("GET", "/search/issues")], 30, s(60), &[1]),
        resource("graphql", &[("POST", "/graphql")], 5000, s(3600), &[1, 3, 1, 7]),
    ];
    let end = world.clock.now() + s(3600);
    let tasks = tokio::task::LocalSet::new();
    for resource in &resources {
        for number in 0..8 {
            tasks.spawn_local(work(world.clone(), resource.clone(), number, end));
        }
    }
    tasks.run_until(tokio::time::sleep(s(3590))).await;
    for resource in &resources {
        let resource = resource.borrow();
        let spent: u64 = resource.accepted.iter().map(|(_, cost)| cost).sum();
        let windows = 3590.0 / resource.window.as_secs_f64();
        let share = spent as f64 / (windows * resource.limit as f64);
        assert!(share >= 0.95, "{}: {share:.3} of what is allowed", resource.name);
        assert!(resource.refused * 50 <= resource.accepted.len(), "{}: {} refused", resource.name, resource.refused);
    }
}

const TOKENS: CannedAnswer<'static> = (
    200,
    &[
        ("x-ratelimit-limit-tokens", "10000"),
        ("x-ratelimit-remaining-tokens", "9000"),
        ("x-ratelimit-reset-tokens", "6s"),
    ],
);

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_says_nothing_is_not_paced_by_what_others_say() {
    let world = World::unlimited(|_| {});
    let (chat, models) = (RouteKey::new("POST", "/v1/chat"), RouteKey::new("GET", "/v1/models"));
    for _ in 0..3 {
        world.call_for(chat, TOKENS).await;
    }
    for wait in [s(0), s(60), s(600)] {
        tokio::time::sleep(wait).await;
        let since = world.elapsed();
        for _ in 0..60 {
            world.call_for(models, SERVED).await;
        }
        let took = world.elapsed() - since;
        assert!(took <= LATENCY * 60 + ms(50), "sixty requests took {took:?}, {wait:?} after the last word");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_mentioned_no_more_holds_nothing_back_after_its_reset() {
    let window: CannedAnswer<'_> =
        (200, &[("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")]);
    for said in [TOKENS, window] {
        let world = World::unlimited(|_| {});
        world.call(said).await;
        tokio::time::sleep(s(40)).await;
        let since = world.elapsed();
        for _ in 0..60 {
            world.call(SERVED).await;
        }
        let took = world.elapsed() - since;
        assert!(took <= LATENCY * 60 + s(1), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_a_reset_that_is_mentioned_no_more_holds_nothing_back() {
    let world = World::unlimited(|_| {});
    for _ in 0..150 {
        world.call(SERVED).await;
    }
    // Only refusals mention it: rack-attack's `throttled_responder`, when the reset is that very second.
    world.call((429, &[("ratelimit-limit", "100"), ("ratelimit-remaining", "0")])).await;
    tokio::time::sleep(s(10)).await;
    world.call(SERVED).await;
    let since = world.elapsed();
    for _ in 0..60 {
        world.call(SERVED).await;
    }
    let took = world.elapsed() - since;
    assert!(took <= s(30), "sixty requests took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_search_does_not_cap_what_has_a_budget_of_its_own() {
    let world = World::unlimited(|_| {});
    let (core, search) = (RouteKey::new("GET", "/users/a"), RouteKey::new("GET", "/search/code"));
    let left = |left: usize| (4000 - left).to_string();
    for at in 0..220 {
        if at == 100 {
            let said = [
                ("x-ratelimit-limit", "30"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1790000060"),
                ("x-ratelimit-resource", "search"),
            ];
            world.call_for(search, (200, &said)).await;
            continue;
        }
        let said = [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", &left(at)),
            ("x-ratelimit-reset", "1790003000"),
            ("x-ratelimit-resource", "core"),
        ];
        world.call_for(core, (200, &said)).await;
    }
    assert!(world.elapsed() <= LATENCY * 220 + s(1), "{:?}", world.elapsed());
    assert!(world.pause(search).is_some_and(|pause| pause > s(50)), "and the search waits for its own");
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_their_kind_stand_in_the_queue_and_not_in_the_way() {
    let refusal: CannedAnswer<'_> = (429, &[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60")]);
    let (paused, other) = (RouteKey::new("GET", "/a"), RouteKey::new("GET", "/b"));
    let world = World::unlimited(|policy| policy.max_waiting = 3);
    world.call_for(paused, refusal).await;
    let since = world.clock.now();
    let waiting: Vec<_> = (0..3).map(|_| world.ask_for(paused)).collect();
    assert_eq!(world.waiting(), 3, "they are counted");
    assert!(matches!(world.ask_for(paused), Admission::Refuse(_)), "and bounded");
    let Admission::Send(passes) = world.ask_for(other) else { panic!("its kind does not pause") };
    drop(passes);
    let mut order = waiting.into_iter().map(|waiting| match waiting {
        Admission::Wait(waiting) => waiting,
        other => panic!("its kind pauses: {other:?}"),
    });
    // The first one tries; as soon as it is served the others follow.
    let mut first = order.next().unwrap().await.unwrap();
    assert_eq!(world.clock.now(), since + s(1));
    first.sent();
    tokio::time::sleep(LATENCY).await;
    assert_eq!(world.waiting(), 2);
    world.answer(first, SERVED);
    let rest: Vec<Permit> = [order.next().unwrap().await.unwrap(), order.next().unwrap().await.unwrap()].into();
    assert_eq!((rest.len(), world.clock.now()), (2, since + s(1) + LATENCY));
}

#[tokio::test(start_paused = true)]
async fn what_turns_out_to_be_free_does_not_stand_behind_what_is_not() {
    let empty: CannedAnswer<'_> =
        (200, &[("x-ratelimit-limit", "30"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1790000060")]);
    let (search, users) = (RouteKey::new("GET", "/search"), RouteKey::new("GET", "/users"));
    let world = World::unlimited(|_| {});
    let mut early = world.permit_for(users).await;
    early.sent();
    world.call_for(search, empty).await;
    // The budget of users is unknown yet: they are taken to draw on the known one, and wait.
    let (first, second) = (world.ask_for(search), world.ask_for(users));
    let Admission::Wait(second) = second else { panic!("it may draw on the same budget") };
    world.answer(early, SERVED);
    let permit = second.await;
    assert!(world.elapsed() < s(1), "{:?}", world.elapsed());
    assert_eq!(world.waiting(), 1);
    drop((permit, first));
}

/// A key that is always refused (revoked, or used up earlier), or a route that is broken.
#[tokio::test(start_paused = true)]
async fn who_is_never_served_holds_up_nobody() {
    let one = RouteKey::new("GET", "/a");
    let key = (one.with_credential(1), one.with_credential(2));
    for ((refused, others), status) in
        [(key, 429), (key, 503), ((RouteKey::new("POST", "/a"), one), 429), ((RouteKey::new("POST", "/a"), one), 503)]
    {
        let world = Rc::new(World::unlimited(|policy| policy.max_wait = Duration::MAX));
        // Late enough for any calculation from the start to show.
        tokio::time::sleep(s(7200)).await;
        let end = world.clock.now() + s(120);
        let served = Rc::new(RefCell::new(0));
        let tasks = tokio::task::LocalSet::new();
        for (key, said) in [(refused, (status, &[] as &[(&str, &str)])), (others, SERVED)] {
            let (world, served) = (world.clone(), served.clone());
            tasks.spawn_local(async move {
                // Two a second.
                while world.clock.now() < end {
                    world.call_for(key, said).await;
                    *served.borrow_mut() += usize::from(key == others);
                    tokio::time::sleep(ms(500)).await;
                }
            });
        }
        tasks.await;
        // Two a second are 235 with the network time; a tenth may be lost until the limit is known.
        let served = *served.borrow();
        assert!(served >= 210, "{status}: {served} served");
        // All of them meet another limit: its pauses are not computed from the start.
        world.call_for(others, (429, &[])).await;
        world.call_for(others, (429, &[])).await;
        let pause = world.pause(others).unwrap_or_default();
        assert!(pause <= s(30), "{status}: {pause:?} after two refusals");
    }
}
