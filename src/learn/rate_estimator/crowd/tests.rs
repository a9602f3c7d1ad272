//! The cap under single refusals, refusals in a row, and refusals that name concurrency as the reason.

use super::*;

/// Serves `count` requests, each with `at_once` in flight.
fn served(crowd: &mut Crowd, count: u32, at_once: u32) {
    let served = Served { seq: Seq::MAX, crowd: at_once, before_any_refusal: false, cycle_is_long: true };
    (0..count).for_each(|_| crowd.served(served));
}

#[test]
fn one_more_that_is_tried_in_vain_does_not_cost_another() {
    let mut crowd = Crowd::known(5);
    crowd.hits(6, 5.0);
    served(&mut crowd, 112, 5);
    assert_eq!(crowd.cap(), Some(6), "one more for some hundred served: 6² = 5² + 110 / 10");
    // The refused request left as the fifth; the sixth arrived before it.
    assert!(crowd.fewer(1, 5, true));
    assert_eq!(crowd.cap(), Some(5));
    // A second refusal with five is news: the API allows fewer now.
    served(&mut crowd, 30, 5);
    assert!(crowd.fewer(1, 5, true));
    assert_eq!(crowd.cap(), Some(4));
}

/// The sixth of six is served now and then, because the API had already completed another one. If that counted as a
/// sixth place, the next try would come as soon as the first.
#[test]
fn one_that_is_served_beside_as_many_as_are_refused_is_no_place_for_more() {
    let mut crowd = Crowd::known(5);
    crowd.hits(6, 5.0);
    served(&mut crowd, 112, 5);
    served(&mut crowd, 1, 6);
    assert!(crowd.fewer(1, 6, true));
    // 5² + 112 / 10 = 6.02², and half as much for each that is served now.
    served(&mut crowd, 112, 5);
    assert_eq!(crowd.cap(), Some(5));
    served(&mut crowd, 1, 6);
    served(&mut crowd, 112, 5);
    assert_eq!(crowd.cap(), Some(6));
    // The API allows one more, and serves them all.
    served(&mut crowd, 200, 6);
    assert!(crowd.fewer(1, 7, true));
    assert_eq!(crowd.cap(), Some(6));
}

/// The API is down, or a window is used up: no later request is served.
fn refuses_three(crowd: &mut Crowd) {
    let lowered = (1..=4).take_while(|seq| crowd.fewer(*seq, 5, true)).count();
    assert_eq!(lowered, 2, "a third in a row is no longer blamed on how many there are");
}

#[test]
fn how_many_at_once_is_known_after_an_outage() {
    let mut crowd = Crowd::known(5);
    refuses_three(&mut crowd);
    assert_eq!((crowd.cap(), crowd.is_certain()), (Some(5), true));
    served(&mut crowd, 3, 5);
    refuses_three(&mut crowd);
    assert_eq!((crowd.cap(), crowd.is_certain()), (Some(5), false), "another one so soon may be a window");
    served(&mut crowd, 1, 5);
    assert!((1..=3).any(|seq| !crowd.fewer(seq, 5, true)));
    assert_eq!(crowd.cap(), None);
}

/// The API was restarted with room for many more: refusals meanwhile are no reason to try seldom.
#[test]
fn an_outage_does_not_keep_a_cap_from_growing() {
    let mut crowd = Crowd::known(5);
    refuses_three(&mut crowd);
    for at_once in 5..50 {
        served(&mut crowd, at_once + 1, at_once);
    }
    assert!(crowd.cap() >= Some(45), "{:?}", crowd.cap());
}

#[test]
fn what_the_api_itself_says_is_neither_doubted_nor_forgotten() {
    let mut crowd = Crowd::known(8);
    assert!(crowd.fewer(1, 8, true));
    crowd.too_many(4);
    refuses_three(&mut crowd);
    assert_eq!((crowd.cap(), crowd.is_certain()), (Some(3), true));
}

/// Two of forty requests are in flight, and one is refused for any reason.
#[test]
fn one_refusal_far_below_the_cap_does_not_keep_it_low() {
    let mut crowd = Crowd::known(40);
    served(&mut crowd, 300, 2);
    crowd.fewer(1, 2, true);
    for _ in 0..40 {
        let most = crowd.cap().unwrap_or(1);
        served(&mut crowd, most + 1, most);
    }
    assert!(crowd.cap() >= Some(38), "{:?}", crowd.cap());
}

#[test]
fn others_that_are_served_beside_those_that_are_refused_show_that_it_is_how_many_at_once() {
    let mut crowd = Crowd::known(5);
    refuses_three(&mut crowd);
    served(&mut crowd, 20, 5);
    for _ in 0..3 {
        assert!(crowd.fewer(1, 6, true));
        served(&mut crowd, 20, 5);
    }
    refuses_three(&mut crowd);
    assert_eq!((crowd.cap(), crowd.is_certain()), (Some(5), true));
}

#[test]
fn a_try_that_the_api_itself_calls_too_many_does_not_cost_another_either() {
    let mut crowd = Crowd::default();
    crowd.too_many(6);
    served(&mut crowd, 112, 5);
    assert_eq!(crowd.cap(), Some(6));
    crowd.too_many(4);
    assert_eq!(crowd.cap(), Some(5));
}
