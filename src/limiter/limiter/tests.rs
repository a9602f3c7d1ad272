//! Decisions of the dialects that are known by how they count, compared with their definitions.

use super::*;
use crate::MockDialect;

fn caller(method: Method, fields: &[(&'static str, &'static str)]) -> MockCaller {
    MockCaller::new(
        method,
        &fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(),
    )
}

fn get() -> MockCaller {
    caller(Method::GET, &[])
}

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn limiter(dialect: &str, limit: &str) -> Limiter {
    let dialect: MockDialect = dialect.parse().unwrap();
    dialect.limiter(limit.parse().unwrap(), dialect.window())
}

/// Returns the decision about each request: `+` if it is accepted, `-` if it is refused.
fn accepted(limiter: &mut Limiter, requests: impl IntoIterator<Item = (u64, MockCaller)>) -> String {
    let asked = requests.into_iter().map(|(ms, caller)| limiter.ask(&caller, at(ms)).0);
    asked.map(|decision| if let CounterDecision::Accept { .. } = decision { '+' } else { '-' }).collect()
}

#[test]
fn each_dialect_counts_as_its_limiter_does() {
    for (dialect, limit, times, expected) in [
        // Any second holds at most two requests.
        ("503", "2/s", &[0, 0, 0, 999, 1000][..], "++--+"),
        ("503-retry-after", "2/s", &[0, 500, 999, 1000, 1499, 1500], "++-+-+"),
        // Windows begin with the first request: two at the end of one window, two at the beginning of the next.
        ("late-reset", "2/s", &[700, 1699, 1699, 1700, 1700, 1700], "++-++-"),
        // A token every half second, and never more than one.
        ("no-burst", "2/s", &[0, 499, 500, 999, 10_000, 10_000], "+-+-+-"),
        // A token every half second, and never more than two.
        ("token-bucket", "2/s", &[0, 0, 0, 499, 500, 500, 10_000, 10_000, 10_000], "++--+-++-"),
        // Two requests in the previous window: one fits after half of the current window, another after all of it.
        ("sliding-counter", "2/s", &[0, 0, 0, 1000, 1499, 1500, 1999, 2000], "++---+-+"),
        // Time frees no slot, and none of these requests ends.
        ("concurrency-503", "2/s", &[0, 0, 0, 10_000], "++--"),
        ("per-route", "2/s", &[0, 0, 0, 1000], "++-+"),
        ("per-key", "2/s", &[0, 0, 0, 1000], "++-+"),
        // 2/s and 10/s: the second limit holds nothing back.
        ("two-limits", "2/s", &[0, 0, 0, 1000], "++-+"),
    ] {
        let requests = times.iter().map(|ms| (*ms, get()));
        assert_eq!(accepted(&mut limiter(dialect, limit), requests), expected, "{dialect}");
    }
}

#[test]
fn what_is_done_makes_room_for_one() {
    let mut limiter = limiter("concurrency-503", "2/s");
    assert_eq!(accepted(&mut limiter, [(0, get()), (0, get()), (0, get())]), "++-");
    limiter.done(&get());
    assert_eq!(accepted(&mut limiter, [(0, get()), (0, get())]), "+-");
}

/// 100 per 10 s is 10 per second, and five times that rate is 50 per second.
#[test]
fn of_two_limits_the_last_one_that_was_asked_is_told() {
    let mut limiter = limiter("two-limits", "100/10s");
    let mut told = |ms| {
        let (decision, limit) = limiter.ask(&get(), at(ms));
        (matches!(decision, CounterDecision::Accept { .. }), limit.to_string(), decision.remaining())
    };
    for left in (0..50).rev() {
        assert_eq!(told(0), (true, "50/s".to_owned(), left));
    }
    assert_eq!(told(0), (false, "50/s".to_owned(), 0));
    // The first limit has counted 51, so that it has room for 49 more.
    (0..49).for_each(|_| assert!(told(1000).0));
    assert_eq!(told(1000), (false, "100/10s".to_owned(), 0));
    assert_eq!(told(9999), (false, "100/10s".to_owned(), 0));
    assert_eq!(told(10_000), (true, "50/s".to_owned(), 49));
}

#[test]
fn what_the_second_limit_refuses_holds_no_place_of_the_first() {
    // Ten in flight by the first limit; 5 × 0.1 by the second one, rounded up to one in flight.
    let mut limiter = Limiter::new("10/100s".parse().unwrap(), CountingWindow::Concurrency, Layout::Stacked);
    assert_eq!(accepted(&mut limiter, vec![(0, get()); 20]), "+-------------------");
    limiter.done(&get());
    assert_eq!(accepted(&mut limiter, [(0, get())]), "+");
}

#[test]
fn post_has_a_fifth_of_its_own() {
    let mut limiter = limiter("per-route", "10/s");
    let post = (0, caller(Method::POST, &[]));
    assert_eq!(accepted(&mut limiter, [post.clone(), post.clone(), post.clone()]), "++-");
    // POST requests do not count against the ten of the other methods.
    assert_eq!(accepted(&mut limiter, vec![(0, get()); 11]), "++++++++++-");
    assert_eq!(limiter.ask(&post.1, at(0)).1.to_string(), "2/s");
    // A fifth of four is less than one request, which is the minimum.
    limiter.retune("4/s".parse().unwrap(), at(5000));
    assert_eq!(accepted(&mut limiter, [(5000, post.1.clone()), (5000, post.1)]), "+-");
}

#[test]
fn each_key_has_a_limit_of_its_own() {
    let mut limiter = limiter("per-key", "1/s");
    let callers = [
        get(),
        caller(Method::GET, &[("authorization", "Bearer one")]),
        caller(Method::GET, &[("authorization", "Bearer two")]),
        caller(Method::GET, &[("x-api-key", "three")]),
    ];
    for caller in callers {
        let other = MockCaller { method: Method::POST, ..caller.clone() };
        assert_eq!(accepted(&mut limiter, [(0, caller), (0, other)]), "+-");
    }
}

#[test]
fn every_limit_follows_a_change() {
    let mut limiter = limiter("per-key", "1/s");
    let one = caller(Method::GET, &[("x-api-key", "one")]);
    assert_eq!(accepted(&mut limiter, [(0, one.clone()), (0, get())]), "++");
    limiter.retune("2/s".parse().unwrap(), at(0));
    assert_eq!(accepted(&mut limiter, [(0, one.clone()), (0, one), (0, get()), (0, get())]), "+-+-");
}
