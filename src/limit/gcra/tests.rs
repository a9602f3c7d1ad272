//! Evenly spaced slots, in time and late.

use governor::clock::FakeRelativeClock;
use proptest::prelude::*;

use super::*;

const ONE: Amount = Amount::MIN;

fn gcra(limit: &str) -> Gcra {
    Gcra::new(&limit.parse().unwrap())
}

fn ms(of: u64) -> Instant {
    Instant::START + Duration::from_millis(of)
}

#[test]
fn a_late_timer_does_not_push_later_slots_back() {
    let mut gcra = gcra("10/s");
    gcra.commit(ms(0), ms(0), ONE);
    assert_eq!(gcra.earliest(ms(1)), ms(100));
    gcra.commit(ms(107), ms(100), ONE);
    assert_eq!(gcra.earliest(ms(107)), ms(200));
}

#[test]
fn slots_that_were_missed_are_caught_up_one_by_one() {
    let mut gcra = gcra("50/s");
    gcra.commit(ms(0), ms(0), ONE);
    // The timer for the slot at 20 fires at 41, when all five requests wait.
    gcra.commit(ms(41), ms(20), ONE);
    let left = [(); 5].map(|()| {
        let at = gcra.earliest(ms(41));
        gcra.commit(at, at, ONE);
        at
    });
    assert_eq!(left, [56, 71, 86, 101, 120].map(ms), "a quarter closer, until the pattern is reached again");
}

#[test]
fn a_wait_for_something_else_is_not_caught_up() {
    let mut gcra = gcra("50/s");
    gcra.commit(ms(0), ms(0), ONE);
    gcra.commit(ms(41), ms(40), ONE);
    assert_eq!(gcra.earliest(ms(41)), ms(60));
}

#[test]
fn lateness_beyond_the_tolerance_is_lost() {
    let mut gcra = gcra("10/s");
    gcra.commit(ms(0), ms(0), ONE);
    gcra.commit(ms(400), ms(100), ONE);
    assert_eq!(gcra.tat(), Some(ms(450)));
}

#[test]
fn what_is_given_back_is_free_again() {
    let mut gcra = gcra("10/s");
    gcra.commit(ms(0), ms(0), ONE);
    gcra.return_unused(ONE, true);
    assert_eq!(gcra.earliest(ms(0)), ms(0));
}

#[test]
fn what_comes_back_late_does_not_let_two_leave_at_once() {
    let mut gcra = gcra("10/s");
    gcra.commit(ms(0), ms(0), ONE);
    gcra.commit(ms(5000), ms(5000), ONE);
    gcra.return_unused(ONE, false);
    let left = [(); 3].map(|()| {
        let at = gcra.earliest(ms(5000));
        gcra.commit(at, at, ONE);
        at
    });
    assert_eq!(left, [5075, 5175, 5275].map(ms));
}

#[test]
fn a_cost_beyond_the_burst_is_paid_in_waiting() {
    let mut gcra = gcra("10/s burst 2");
    gcra.commit(ms(0), ms(0), Amount::new(5).unwrap());
    // Five cells at 100 ms each; the burst still forgives one of them.
    assert_eq!(gcra.earliest(ms(0)), ms(400));
}

#[test]
fn a_changed_rate_keeps_what_was_sent() {
    let mut gcra = gcra("10/s");
    gcra.commit(ms(0), ms(0), ONE);
    gcra.retune(&"1/s".parse().unwrap());
    assert_eq!(gcra.earliest(ms(0)), ms(1000), "the new distance from the last one on");
    gcra.commit(ms(1000), ms(1000), ONE);
    gcra.retune(&"10/s".parse().unwrap());
    assert_eq!(gcra.earliest(ms(1000)), ms(1100));
}

#[test]
fn projection_is_what_happens() {
    for limit in ["10/s", "10/s burst 4", "500/min burst 20"] {
        let mut gcra = gcra(limit);
        let promised: Vec<_> = (0..40).map(|ahead| gcra.project(ms(5), ahead)).collect();
        let mut now = ms(5);
        for at in promised {
            now = gcra.earliest(now);
            assert_eq!(now, at, "{limit}");
            gcra.commit(now, now, ONE);
        }
    }
}

proptest! {
    /// For any times, our decisions equal the ones of governor's plain limiter.
    #[test]
    fn decisions_are_governors(
        count in 1u32..2000, burst in 1u32..50, gaps in proptest::collection::vec(0u64..3_000_000_000, 1..200)
    ) {
        let limit: LimitSpec = format!("{count}/s burst {}", burst.min(count)).parse().unwrap();
        let clock = FakeRelativeClock::default();
        let theirs: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::direct_with_clock(quota(&limit), clock.clone());
        let mut ours = Gcra::new(&limit);
        let mut now = Instant::START;
        for gap in gaps {
            let gap = Duration::from_nanos(gap);
            clock.advance(gap);
            now = now + gap;
            match theirs.check() {
                Ok(()) => {
                    prop_assert_eq!(ours.earliest(now), now);
                    ours.commit(now, now, ONE);
                }
                Err(not) => prop_assert_eq!(ours.earliest(now).as_nanos(), not.earliest_possible().as_u64()),
            }
        }
    }
}
