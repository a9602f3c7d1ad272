//! Reach of an API's announcements: the kinds of requests that they limit, and those that they do not.

use andante_learn::RouteKey;

use super::{CannedAnswer, FOREVER, LATENCY, SERVED, World, get, ms, s, waits};
use crate::{Admission, Permit};

const ROOM: CannedAnswer<'static> = (429, &[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60")]);

/// GitHub's fields for the budget on which all requests but searches draw, with `left` of it left.
fn core(left: &str) -> [(&str, &str); 4] {
    [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", left),
        ("x-ratelimit-reset", "1790003000"),
        ("x-ratelimit-resource", "core"),
    ]
}

#[tokio::test(start_paused = true)]
async fn objects_with_names_in_paths_do_not_make_a_lane_forget_what_a_search_draws_on() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let search = get("/search/code");
    let mut sent = 0;
    let mut call = async |path: &str| {
        sent += 1;
        world.call_for(get(path), (200, &core(&(5000 - sent).to_string()))).await;
    };
    call("/users/a").await;
    let said = [
        ("x-ratelimit-limit", "30"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1790003000"),
        ("x-ratelimit-resource", "search"),
    ];
    world.call_for(search, (200, &said)).await;
    let searches: Vec<_> = (0..20).map(|_| waits(world.ask_for(search))).collect();
    for number in 0..1000 {
        call(&format!("/repos/owner{number}x/repo/issues")).await;
        assert_eq!(
            world.waiting(),
            20,
            "searches left after {number} repositories, {:?} after the start",
            world.elapsed()
        );
    }
    drop(searches);
}

#[tokio::test(start_paused = true)]
async fn objects_with_names_in_paths_do_not_set_free_what_has_been_paced() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let (code, issues) = (get("/search/code"), get("/search/issues"));
    let search = async |kind, left: &str| {
        let said = [
            ("x-ratelimit-limit", "30"),
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-reset", "1790000300"),
            ("x-ratelimit-resource", "search"),
        ];
        world.call_for(kind, (200, &said)).await;
    };
    let mut sent = 0;
    let mut repository = async |path: &str| {
        sent += 1;
        world.call_for(get(path), (200, &core(&(5000 - sent).to_string()))).await;
    };
    for path in ["/users/a", "/users/b", "/users/c", "/users/d"] {
        repository(path).await;
    }
    search(code, "20").await;
    search(issues, "19").await;
    search(code, "0").await;
    let queue: Vec<_> = (0..40).map(|turn| waits(world.ask_for(if turn % 2 == 0 { code } else { issues }))).collect();
    for number in 0..1000 {
        repository(&format!("/repos/owner{number}x/repo/issues")).await;
        assert_eq!(world.waiting(), 40, "after {number} repositories, at {:?} of 300 s", world.elapsed());
    }
    drop(queue);
}

#[tokio::test(start_paused = true)]
async fn each_kind_that_is_refused_pauses_however_many_they_are() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let kinds: Vec<_> = (0..300).map(|number| get(&format!("/users/name{number}x"))).collect();
    world.call_for(get("/a"), SERVED).await;
    let mut permits = Vec::new();
    for kind in &kinds {
        let mut permit = world.permit_for(*kind).await;
        permit.sent();
        permits.push(permit);
    }
    tokio::time::sleep(LATENCY).await;
    permits.into_iter().for_each(|permit| world.answer(permit, ROOM));
    let at_once = kinds.iter().filter(|kind| world.pause(**kind).is_none()).count();
    // A worker of the last kind, whose refused requests are resent while it has patience.
    let (since, mut sent) = (world.elapsed(), 0);
    while world.elapsed() < since + s(1) {
        let Ok(mut permit) = tokio::time::timeout(s(1), world.permit_for(kinds[299])).await else { break };
        permit.sent();
        sent += 1;
        tokio::time::sleep(LATENCY).await;
        world.answer(permit, ROOM);
    }
    assert!(sent <= 2 && at_once == 0, "{at_once} of 300 kinds do not pause; one worker sent {sent} in a second");
}

#[tokio::test(start_paused = true)]
async fn a_hidden_limit_is_found_although_each_object_is_a_kind_of_its_own() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let said = [("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "900"), ("x-ratelimit-reset", "1790080000")];
    let (since, mut refused, mut accepted) = (world.elapsed(), 0, 0);
    let mut number = 0;
    while world.elapsed() < since + s(300) && refused < 2000 {
        number += 1;
        let kind = get(&format!("/users/name{number}x"));
        let mut permit = world.permit_for(kind).await;
        permit.sent();
        tokio::time::sleep(LATENCY).await;
        // Thirty in each minute.
        if accepted < 30 * (1 + world.elapsed().as_secs() / 60) {
            accepted += 1;
            world.answer(permit, (200, &said));
        } else {
            refused += 1;
            world.answer(permit, (429, &said));
        }
    }
    println!("{refused} refused and {accepted} accepted");
    assert!(accepted >= 150, "{accepted} of 150 accepted, and {refused} refused");
    assert!(refused <= 80, "{refused} refused and {accepted} accepted in {:?}, one after the other", world.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_turns_out_to_be_free_by_its_neighbours_does_not_stand_behind_what_is_not() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let (core, put) = (get("/users/a"), RouteKey::new("PUT", "/q"));
    let post = |path| RouteKey::new("POST", path);
    let mut early = [world.permit_for(post("/p/a")).await, world.permit_for(post("/p/b")).await];
    early.iter_mut().for_each(Permit::sent);
    let [a, b] = early;
    let empty: CannedAnswer<'_> =
        (200, &[("x-ratelimit-limit", "30"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1790003000")]);
    world.call_for(core, empty).await;
    let (first, second) = (waits(world.ask_for(core)), waits(world.ask_for(put)));
    world.answer(a, SERVED);
    tokio::time::sleep(ms(300)).await;
    world.answer(b, SERVED);
    tokio::time::sleep(ms(300)).await;
    let overtaken = matches!(world.ask_for(put), Admission::Send(_));
    let left = tokio::time::timeout(s(600), second).await;
    assert!(left.is_ok(), "it waits for {:?}; another one of its kind overtakes it: {overtaken}", world.elapsed());
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_asked_for_holds_all_that_draws_on_the_budget_that_it_is_about() {
    let resource = |name, limit, left: &'static str| -> [(&str, &str); 4] {
        [
            ("x-ratelimit-limit", limit),
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-reset", "1790003000"),
            ("x-ratelimit-resource", name),
        ]
    };
    let mut wrong = Vec::new();
    for other in ["nothing", "a search", "an endpoint that says nothing"] {
        let world = World::unlimited(|policy| policy.max_wait = FOREVER);
        for path in ["/users/a", "/users/b", "/repos/c"] {
            world.call_for(get(path), (200, &resource("core", "5000", "4000"))).await;
        }
        match other {
            "a search" => _ = world.call_for(get("/search/code"), (200, &resource("search", "30", "29"))).await,
            "an endpoint that says nothing" => _ = world.call_for(get("/zen"), SERVED).await,
            _ => {}
        }
        let mut refusal = resource("core", "5000", "3990").to_vec();
        refusal.push(("retry-after", "60"));
        world.call_for(get("/users/a"), (429, &refusal)).await;
        let pauses =
            [get("/users/a"), get("/users/b"), get("/repos/c"), get("/repos/new")].map(|kind| world.pause(kind));
        if pauses.iter().any(|pause| pause.is_none_or(|pause| pause < s(59))) {
            wrong.push(format!("with {other}: {pauses:?}"));
        }
    }
    assert!(wrong.is_empty(), "the API asked for 60 s; {wrong:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_pauses_is_remembered_until_its_pause_is_over() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let core = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4000"), ("x-ratelimit-resource", "core")];
    let search = [("x-ratelimit-limit", "30"), ("x-ratelimit-remaining", "20"), ("x-ratelimit-resource", "search")];
    world.call_for(get("/users/a"), (200, &core)).await;
    world.call_for(get("/search/code"), (200, &search)).await;
    let mut refusal = search.to_vec();
    refusal.push(("retry-after", "3600"));
    world.call_for(get("/search/code"), (429, &refusal)).await;
    let began = world.elapsed();
    for _ in 0..10 {
        tokio::time::sleep(s(60)).await;
        world.call_for(get("/users/a"), (200, &core)).await;
    }
    let pause = world.pause(get("/search/code"));
    let due = s(3600) - (world.elapsed() - began);
    assert!(pause.is_some_and(|pause| pause + s(1) >= due), "{pause:?} instead of {due:?}");
}

#[tokio::test(start_paused = true)]
async fn an_api_that_refuses_everything_for_a_while_is_left_alone() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let said = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", "1790003000")];
    world.call_for(get("/users/a"), (200, &said)).await;
    world.call_for(get("/zen"), SERVED).await;
    let mut refusal = said.to_vec();
    refusal.push(("retry-after", "60"));
    let (since, mut refused) = (world.elapsed(), 0);
    for number in 0..1000 {
        let kind = get(&format!("/users/name{number}x"));
        let Ok(mut permit) =
            tokio::time::timeout((since + s(50)).saturating_sub(world.elapsed()), world.permit_for(kind)).await
        else {
            break;
        };
        permit.sent();
        tokio::time::sleep(LATENCY).await;
        refused += 1;
        world.answer(permit, (429, &refusal));
    }
    assert!(refused <= 2, "{refused} requests were refused within 50 s, the first of them with Retry-After: 60");
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_of_two_kinds_stays_empty_while_others_of_its_name_are_told_of() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let (users, tweets, replies) = (get("/users"), get("/tweets"), get("/replies"));
    let said = async |kind, limit: &str, left: &str, reset: &str| {
        let said = [("x-rate-limit-limit", limit), ("x-rate-limit-remaining", left), ("x-rate-limit-reset", reset)];
        world.call_for(kind, (200, &said)).await;
    };
    for left in ["49", "48", "47", "46"] {
        said(users, "900", "700", "1790000600").await;
        said(tweets, "50", left, "1790000300").await;
        said(replies, "50", left, "1790000300").await;
    }
    said(tweets, "50", "0", "1790000300").await;
    let queue: Vec<_> = (0..10).map(|_| waits(world.ask_for(replies))).collect();
    for number in 0..100 {
        said(users, "900", "600", "1790000600").await;
        assert_eq!(world.waiting(), 10, "left after {number} others, at {:?} of 300 s", world.elapsed());
    }
    drop(queue);
}

/// <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>: the window is an hour, and ends
/// at the announced reset, whichever client has used it up.
#[tokio::test(start_paused = true)]
async fn what_others_have_used_up_comes_back_at_the_reset_and_not_a_window_later() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let core = |left: &'static str, reset: &'static str| {
        [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-used", "5000"),
            ("x-ratelimit-reset", reset),
            ("x-ratelimit-resource", "core"),
        ]
    };
    world.call_for(get("/users/a"), (403, &core("0", "1790000300"))).await;
    let left = world.call_for(get("/users/a"), (200, &core("4999", "1790003900"))).await;
    assert!((s(299)..s(303)).contains(&left), "it left at {left:?}, and the reset is after 300 s");
    let next = world.call_for(get("/users/b"), (200, &core("4998", "1790003900"))).await;
    assert!(next < left + s(3), "the next one left {:?} later", next - left);
}
