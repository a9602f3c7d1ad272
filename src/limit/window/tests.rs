//! The window, compared with books that record every request separately.

use proptest::prelude::*;

use super::*;

const ONE: Amount = Amount::MIN;
const J: Duration = Duration::from_millis(5);

fn window(limit: &str) -> Window {
    Window::new(&limit.parse().unwrap())
}

fn ms(of: u64) -> Instant {
    Instant::START + Duration::from_millis(of)
}

fn send(window: &mut Window, seq: Seq, at: Instant) {
    window.take(seq, ONE);
    window.sent(seq, ONE, at);
}

#[test]
fn the_next_waits_until_the_first_is_out_of_the_window() {
    let mut window = window("2/s");
    send(&mut window, 0, ms(0));
    send(&mut window, 1, ms(500));
    assert_eq!(window.ready(ms(600), ONE, J).instant(ms(600)), ms(1005));
    // The response came 2 ms after sending, so the way cannot have taken longer than 2 ms.
    window.answered(0, ONE, ms(0), ms(2));
    assert_eq!(window.ready(ms(600), ONE, J).instant(ms(600)), ms(1002));
    assert_eq!(window.ready(ms(1002), ONE, J).instant(ms(1002)), ms(1002));
}

#[test]
fn window_says_when_its_first_and_its_last_unit_count_no_more() {
    let mut window = window("5/s");
    assert_eq!(window.freed_at(ms(0), J), [None, None]);
    for (seq, at) in [(0, 0), (1, 200), (2, 400)] {
        send(&mut window, seq, ms(at));
        window.answered(seq, ONE, ms(at), ms(at));
    }
    assert_eq!(window.freed_at(ms(600), J), [Some(ms(1000)), Some(ms(1400))]);
    assert_eq!(window.freed_at(ms(1100), J), [Some(ms(1200)), Some(ms(1400))]);
    // A unit that has not left yet has no time.
    window.take(3, ONE);
    assert_eq!(window.freed_at(ms(1100), J), [Some(ms(1200)), None]);
}

#[test]
fn a_late_answer_counts_only_as_far_as_the_margin_goes() {
    let mut window = window("1/s");
    send(&mut window, 0, ms(0));
    window.answered(0, ONE, ms(0), ms(300));
    assert_eq!(window.ready(ms(300), ONE, J).instant(ms(300)), ms(1005));
}

#[test]
fn a_strict_limit_counts_from_the_answer() {
    let mut window = window("1/s strict");
    send(&mut window, 0, ms(0));
    assert_eq!(window.ready(ms(900), ONE, J).instant(ms(900)), Instant::FAR);
    window.answered(0, ONE, ms(0), ms(900));
    assert_eq!(window.ready(ms(900), ONE, J).instant(ms(900)), ms(1900));
}

#[test]
fn what_costs_more_than_the_limit_takes_one_whole_window() {
    let mut window = window("2/s");
    send(&mut window, 0, ms(0));
    assert_eq!(window.ready(ms(500), Amount::MAX, J).instant(ms(500)), ms(1005));
    assert_eq!(window.ready(ms(1005), Amount::MAX, J).instant(ms(1005)), ms(1005));
    window.take(1, Amount::MAX);
    window.sent(1, Amount::MAX, ms(1005));
    assert!(window.buckets.len() <= BUCKETS as usize);
    assert_eq!(window.ready(ms(1100), ONE, J).instant(ms(1100)), ms(2010));
    assert_eq!(window.project(ms(1100), ms(1100), 0, ONE, J), ms(2010));
    assert_eq!(window.project(ms(1100), ms(1100), 2, ONE, J), ms(3010));
}

#[test]
fn one_hanging_request_holds_up_one_slot_only() {
    let mut window = window("2/s strict");
    send(&mut window, 0, ms(0)); // never answered
    for seq in 1..50 {
        let now = ms(seq * 1000);
        assert_eq!(window.ready(now, ONE, J).instant(now), now);
        send(&mut window, seq, now);
        window.answered(seq, ONE, now, now);
    }
    assert_eq!(window.used(ms(49_500), J), 2);
    assert!(window.buckets.len() <= 3);
}

#[test]
fn a_permit_not_yet_sent_counts_without_end() {
    let mut window = window("1/s");
    window.take(0, ONE);
    assert_eq!(window.ready(ms(60_000), ONE, J).instant(ms(60_000)), Instant::FAR);
    window.return_unused(0, ONE);
    assert_eq!(window.ready(ms(60_000), ONE, J).instant(ms(60_000)), ms(60_000));
}

#[test]
fn a_cost_may_span_buckets_and_exceed_the_limit() {
    let mut window = window("600/s");
    let cost = Amount::new(601).unwrap();
    window.take(0, cost);
    window.sent(0, cost, ms(0));
    assert_eq!(window.used(ms(0), J), 601);
    assert_eq!(window.ready(ms(1), Amount::new(700).unwrap(), J).instant(ms(1)), ms(1005));
    window.answered(0, cost, ms(0), ms(1));
    assert_eq!(window.ready(ms(1), ONE, J).instant(ms(1)), ms(1001));
}

#[test]
fn a_large_limit_stays_small() {
    let mut window = window("1000000/h");
    for seq in 0..1_000_000 {
        send(&mut window, seq, ms(seq / 1000));
    }
    assert!(window.buckets.len() <= 257);
    assert_eq!(size_of::<UnitBucket>(), 40);
}

#[test]
fn what_is_sent_moves_nobody_elses_units() {
    // A limit of 500 shares buckets of two.
    let mut window = window("500/min strict");
    window.take(0, ONE);
    window.take(1, ONE);
    // The first unit is sent and answered while its neighbour still waits for a connection and is then given back.
    window.sent(0, ONE, ms(0));
    window.answered(0, ONE, ms(0), ms(5));
    window.return_unused(1, ONE);
    assert_eq!(window.used(ms(10), J), 1);
    assert_eq!(window.used(ms(60_005), J), 0);
}

#[test]
fn what_dials_for_longer_than_a_window_counts_from_its_sending() {
    let mut window = window("500/s");
    window.take(0, ONE);
    window.take(1, ONE);
    window.sent(1, ONE, ms(0));
    window.answered(1, ONE, ms(0), ms(1));
    assert_eq!(window.used(ms(5000), J), 2, "one of the two may leave at any moment");
    window.sent(0, ONE, ms(5000));
    assert_eq!(window.used(ms(5999), J), 2);
    assert_eq!(window.used(ms(6005), J), 0);
}

#[test]
fn what_was_taken_later_and_sent_before_others_is_seen_to_leave() {
    let mut window = window("3/s");
    (0..3).for_each(|seq| window.take(seq, ONE));
    // The third request found a connection; the first two had to wait for theirs.
    window.sent(2, ONE, ms(2));
    window.sent(0, ONE, ms(500));
    window.sent(1, ONE, ms(600));
    assert_eq!(window.ready(ms(700), ONE, J).instant(ms(700)), ms(1007));
}

#[test]
fn what_comes_back_counts_only_within_its_window() {
    let mut window = window("1/s");
    send(&mut window, 0, ms(0));
    assert!(window.recall(0, ONE));
    window.sent(0, ONE, ms(5));
    assert_eq!(window.used(ms(1010), J), 0);
    assert!(!window.recall(0, ONE), "others may have its place");
    assert!(!window.return_unused(0, ONE), "and it has none to give back");
}

#[test]
fn what_is_never_sent_leaves_nothing_behind() {
    for (limit, rounds) in [("100/h", 9), ("5000/h", 400)] {
        let mut window = window(limit);
        send(&mut window, 0, ms(0));
        for seq in 1..100_000 {
            window.take(seq, ONE);
            window.return_unused(seq, ONE);
        }
        assert_eq!(window.buckets.len(), 1, "{limit}");
        // Many requests at a time; every third is sent.
        for round in 0..rounds {
            let first = 100_000 + round * 30;
            (first..first + 30).for_each(|seq| window.take(seq, ONE));
            for seq in first..first + 30 {
                match seq % 3 {
                    0 => window.sent(seq, ONE, ms(round)),
                    _ => assert!(window.return_unused(seq, ONE)),
                }
            }
        }
        assert_eq!(window.used(ms(1000), J), 1 + 10 * rounds as u32, "{limit}");
        let most = 2 * (1 + 10 * rounds as usize).div_ceil(window.per_bucket() as usize) + 1;
        assert!(window.buckets.len() <= most, "{limit}: {} buckets", window.buckets.len());
    }
}

/// Life of one request, as the window sees it.
#[derive(Clone, Debug)]
struct Life {
    taken: u64,
    /// Milliseconds until the request is sent, and from then until it is answered.
    held: u64,
    answered: u64,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Answered,
    Recalled,
    GivenBack,
    Unknown,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let fate = prop_oneof![
        5 => Just(Fate::Answered), 1 => Just(Fate::Recalled), 3 => Just(Fate::GivenBack), 1 => Just(Fate::Unknown)
    ];
    let held = prop_oneof![4 => 0u64..50, 1 => 0u64..4000];
    let life = (0u64..6000, held, 0u64..2000, fate);
    let life = life.prop_map(|(taken, held, answered, fate)| Life { taken, held, answered, fate });
    proptest::collection::vec(life, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Requests overlap and share buckets in any way. Each counts at least as long as a book of single requests
    /// demands, and no unit stays behind.
    #[test]
    fn every_request_counts_until_it_is_out_and_not_for_ever(
        lives in lives(), limit in prop::sample::select(&["40/s", "700/s", "700/s strict", "3000/s"][..])
    ) {
        let mut window = window(limit);
        // Times of the events. Units are taken in order; everything else happens in any order.
        let mut lives = lives;
        lives.sort_by_key(|life| life.taken);
        let mut events = Vec::new();
        for (seq, life) in lives.iter().enumerate() {
            let sent = life.taken + life.held;
            let end = sent + life.answered;
            events.push((life.taken, 0, seq));
            match life.fate {
                Fate::Answered => events.extend([(sent, 1, seq), (end, 2, seq)]),
                Fate::Recalled => events.extend([(sent, 1, seq), (end, 3, seq), (end + 5, 4, seq)]),
                Fate::GivenBack => events.push((sent, 4, seq)),
                Fate::Unknown => events.push((sent, 1, seq)),
            }
        }
        events.sort_unstable();
        // By seq: until when the unit counts at least; `FAR` while unknown.
        let mut book = vec![None; lives.len()];
        for (at, event, seq) in events {
            let (now, id) = (ms(at), seq as Seq);
            let sent = lives[seq].taken + lives[seq].held;
            match event {
                0 => {
                    window.take(id, ONE);
                    book[seq] = Some(Instant::FAR);
                }
                1 => {
                    window.sent(id, ONE, now);
                    book[seq] = Some(if window.strict { Instant::FAR } else { now + J + window.per });
                }
                2 => {
                    window.answered(id, ONE, ms(sent), now);
                    book[seq] = Some(if window.strict { now } else { now.min(ms(sent) + J) } + window.per);
                }
                // Not written after all, and so soon that the unit is still known.
                3 if window.strict || lives[seq].answered < 1000 => {
                    let counts = window.recall(id, ONE);
                    prop_assert!(counts, "it was sent within the last window");
                    book[seq] = Some(Instant::FAR);
                }
                4 if lives[seq].fate == Fate::GivenBack || window.strict || lives[seq].answered < 1000 => {
                    window.return_unused(id, ONE);
                    book[seq] = None;
                }
                _ => {}
            }
            let counted = book.iter().flatten().filter(|until| **until > now).count();
            prop_assert!(window.used(now, J) as usize >= counted, "{} of {counted} count", window.used(now, J));
            let sum: u64 = window.buckets.iter().map(|bucket| u64::from(bucket.used)).sum();
            prop_assert_eq!(sum, window.used);
        }
        // Once all lives with an end are over, only sent and never answered units can still count, if strict.
        let unknown = lives.iter().filter(|life| life.fate == Fate::Unknown).count();
        let left = window.used(ms(20_000), J) as usize;
        let most = if window.strict { unknown * window.per_bucket() as usize } else { 0 };
        prop_assert!(left <= most, "{left} count for ever, and {unknown} have no end");
    }
}

/// Two answered units and two in flight share a bucket. Forgotten units that are given back late must not count twice.
#[test]
fn what_was_forgotten_is_not_given_back_once_more() {
    let two = Amount::new(2).unwrap();
    let mut window = window("1024/s");
    for first in [0, 2] {
        window.take(first, two);
        window.sent(first, two, ms(0));
    }
    assert_eq!(window.buckets.len(), 1);
    window.answered(0, two, ms(0), ms(10));
    assert_eq!(window.forget_answered(ms(20)), 2);
    window.refund(0, two);
    assert_eq!(window.used(ms(30), J), 2);
    window.answered(2, two, ms(0), ms(40));
    // As if the units had left at 20 ms, plus 5 ms of margin.
    assert_eq!((window.used(ms(1024), J), window.used(ms(1025), J)), (2, 0));
}
