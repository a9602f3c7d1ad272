//! Renewals compared with real calendars, and counts compared with an API that counts by its own clock.

use std::time::Duration;

use andante_clock::Instant;
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{Amount, Limits};

fn limit(text: &str) -> CalendarLimit {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// Nanoseconds since 1970 at an instant like `2024-02-29T12:00:00Z`.
fn unix(text: &str) -> u64 {
    text.parse::<Timestamp>().unwrap().as_nanosecond().try_into().unwrap()
}

fn period(text: &str, at: &str) -> (String, String) {
    let Period { start, end } = limit(text).period(unix(at));
    let written = |at: u64| Timestamp::from_nanosecond(at.into()).unwrap().to_string();
    (written(start), written(end))
}

#[test]
fn a_limit_is_renewed_when_the_calendar_of_its_zone_says() {
    // Offsets and clock changes are from the IANA database; weekdays from any printed calendar.
    for (text, at, start, end) in [
        ("1/min in UTC", "2026-11-22T10:20:30Z", "2026-11-22T10:20:00Z", "2026-11-22T10:21:00Z"),
        ("1/h in UTC", "2026-11-22T10:10:00Z", "2026-11-22T10:00:00Z", "2026-11-22T11:00:00Z"),
        ("1/day in UTC", "2026-11-22T10:20:30Z", "2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"),
        // Los Angeles is 8 h behind in winter and 7 h in summer.
        ("1/day in America/Los_Angeles", "2026-01-15T07:59:59Z", "2026-01-14T08:00:00Z", "2026-01-15T08:00:00Z"),
        ("1/day in America/Los_Angeles", "2026-07-15T07:00:00Z", "2026-07-15T07:00:00Z", "2026-07-16T07:00:00Z"),
        // Clocks there go forward on 2026-03-08 and back on 2026-11-01: these days have 23 and 25 hours.
        ("1/day in America/Los_Angeles", "2026-03-08T12:00:00Z", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"),
        ("1/day in America/Los_Angeles", "2026-11-01T12:00:00Z", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"),
        // 2:30 does not exist on that day and moves an hour later; in autumn the first 1:30 of two counts.
        (
            "1/day from 02:30 in America/Los_Angeles",
            "2026-03-08T12:00:00Z",
            "2026-03-08T10:30:00Z",
            "2026-03-09T09:30:00Z",
        ),
        (
            "1/day from 01:30 in America/Los_Angeles",
            "2026-11-01T09:00:00Z",
            "2026-11-01T08:30:00Z",
            "2026-11-02T09:30:00Z",
        ),
        // Beirut's clocks go forward at midnight: the day begins at 1:00.
        ("1/day in Asia/Beirut", "2026-03-29T12:00:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"),
        ("1/week in UTC", "2026-11-22T10:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
        ("1/week from sunday in UTC", "2026-11-22T10:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"),
        ("1/month in UTC", "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
        ("1/month from 5th in Europe/Berlin", "2026-11-05T00:00:00Z", "2026-11-04T23:00:00Z", "2026-12-04T23:00:00Z"),
        ("1/month from 5th in Europe/Berlin", "2026-11-04T22:59:59Z", "2026-10-04T22:00:00Z", "2026-11-04T23:00:00Z"),
        // The 31st of shorter months is their last day, in leap years too.
        ("1/month from 31st in UTC", "2024-02-15T00:00:00Z", "2024-01-31T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("1/month from 31st in UTC", "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"),
        ("1/month from 31st in UTC", "2025-02-28T00:00:00Z", "2025-02-28T00:00:00Z", "2025-03-31T00:00:00Z"),
        ("1/month from 31st in UTC", "2026-01-30T00:00:00Z", "2025-12-31T00:00:00Z", "2026-01-31T00:00:00Z"),
    ] {
        assert_eq!(period(text, at), (start.to_owned(), end.to_owned()), "{text} at {at}");
    }
}

#[test]
fn what_is_printed_reads_back_the_same() {
    for (text, printed) in [
        ("100000/month from 5th in Europe/Berlin", "100000/month from 5th in Europe/Berlin"),
        ("5000/day in America/Los_Angeles", "5000/day in America/Los_Angeles"),
        ("7/d from 09:00", "7/day from 09:00 in UTC"),
        ("10/week from Sun in utc", "10/week from sunday in UTC"),
        ("1_000/month from 1", "1000/month in UTC"),
        ("3/month from 22nd", "3/month from 22nd in UTC"),
    ] {
        assert_eq!(limit(text).to_string(), printed);
        assert_eq!(limit(printed), limit(text));
    }
    let list: Limits = "10/s, 100000/month from 5th in Europe/Berlin, 500/month, in-flight 3".parse().unwrap();
    assert_eq!((list.limits.len(), list.calendar.len()), (2, 1));
    assert_eq!(list.to_string(), "10/s, 500/month, 100000/month from 5th in Europe/Berlin, in-flight 3");
}

#[test]
fn what_is_wrong_comes_with_what_to_write() {
    let hint = |text: &str| text.parse::<Limits>().unwrap_err().hint().to_owned();
    assert!(hint("5/day in Atlantis").contains("Europe/Berlin"));
    assert!(hint("5/day from noon").contains("from 09:00"));
    assert!(hint("5/week from 3rd").contains("from monday"));
    assert!(hint("5/month from 32nd").contains("from 5th"));
    assert!(hint("5/15min in UTC").contains("month"));
    assert!(hint("5/h from 09:00 in UTC").contains("leave \"from\" out"));
    // Where clocks change by half an hour, some hours are full after 30 minutes, or after 90.
    assert!(hint("5/h in Australia/Lord_Howe").contains("5/h in UTC"));
    assert!(hint("5/day in UTC burst 3").contains("no burst"));
    assert!(hint("5/day in").contains("5000/day in America/Los_Angeles"));
    assert!(hint("5 in UTC").contains("5000/day in America/Los_Angeles"));
    assert!(hint("0/day in UTC").contains("lets nothing through"));
}

const ONE: Amount = Amount::MIN;

fn seconds(of: u64) -> Instant {
    Instant::START + Duration::from_secs(of)
}

fn count(text: &str, started: &str) -> CalendarCount {
    CalendarCount::new(limit(text), Duration::from_nanos(unix(started)))
}

#[test]
fn what_is_used_up_is_renewed_and_not_sooner() {
    let mut count = count("2/day in UTC", "2026-11-22T23:00:00Z");
    for unit in 0..2 {
        assert_eq!(count.ready(seconds(10), ONE).instant(seconds(10)), seconds(10));
        count.take(seconds(10), unit, ONE);
    }
    // An hour later, plus the possible difference of clocks.
    assert_eq!(count.ready(seconds(20), ONE).instant(seconds(20)), seconds(3602));
    assert_eq!(count.project(seconds(20), 1, ONE), seconds(3602));
    assert_eq!(count.project(seconds(20), 2, ONE), seconds(3602 + 86_400));
    assert_eq!(count.project(seconds(20), 200, ONE), seconds(3602 + 100 * 86_400));
    assert!(!count.is_idle(seconds(3600)));
    assert!(count.is_idle(seconds(3602)));
    // A request that is not sent makes room.
    count.return_unused(1, ONE);
    assert_eq!(count.ready(seconds(20), ONE).instant(seconds(20)), seconds(20));
    assert_eq!(count.usage(seconds(20)).used, 1);
}

#[test]
fn what_leaves_after_the_renewal_that_it_was_taken_before_counts_after_it() {
    let mut taken = count("10/day in UTC", "2026-11-22T23:00:00Z");
    (0..4).for_each(|unit| taken.take(seconds(3595), unit, ONE));
    taken.sent(seconds(3605), 0, ONE);
    taken.take(seconds(3605), 4, ONE);
    let mut given_back = taken.clone();
    for unit in 1..4 {
        taken.sent(seconds(3605), unit, ONE);
        given_back.return_unused(unit, ONE);
    }
    assert_eq!((taken.usage(seconds(3605)).used, given_back.usage(seconds(3605)).used), (5, 2));
}

#[test]
fn what_leaves_twice_after_a_renewal_counts_once_and_comes_back_from_both_periods() {
    let mut count = count("10/day in UTC", "2026-11-22T23:00:00Z");
    count.take(seconds(3500), 0, ONE);
    count.sent(seconds(3700), 0, ONE);
    // The request's connection failed before a byte was written, and the request leaves on another connection.
    count.sent(seconds(3701), 0, ONE);
    assert_eq!((count.usage(seconds(3500)).used, count.usage(seconds(3701)).used), (1, 1));
    count.return_unused(0, ONE);
    assert_eq!((count.usage(seconds(3500)).used, count.usage(seconds(3701)).used), (0, 0));
}

#[test]
fn what_leaves_close_to_a_renewal_counts_on_both_sides_of_it() {
    let mut count = count("2/day in UTC", "2026-11-22T23:00:00Z");
    count.take(seconds(3599), 0, ONE);
    assert_eq!(count.usage(seconds(3599)).used, 1);
    assert_eq!(count.usage(seconds(3600)).used, 1);
    count.take(seconds(3601), 1, ONE);
    assert_eq!(count.usage(seconds(3599)).used, 2);
    assert_eq!(count.ready(seconds(3700), ONE).instant(seconds(3700)), seconds(3602 + 86_400));
    // The request waited for its connection until the day was over.
    let mut count = self::count("2/day in UTC", "2026-11-22T23:00:00Z");
    count.take(seconds(3500), 0, ONE);
    count.sent(seconds(3700), 0, ONE);
    assert_eq!((count.usage(seconds(3500)).used, count.usage(seconds(3700)).used), (1, 1));
}

#[test]
fn a_clock_that_is_set_takes_what_was_used_along() {
    let mut count = count("2/day in UTC", "2026-11-22T12:00:00Z");
    count.take(seconds(0), 0, ONE);
    count.take(seconds(0), 1, ONE);
    count.set_epoch(Duration::from_nanos(unix("2026-11-23T12:00:00Z")));
    assert_eq!(count.ready(seconds(1), ONE).instant(seconds(1)), seconds(1));
    count.take(seconds(1), 2, ONE);
    // The clock change was a mistake: the day before is not over.
    count.set_epoch(Duration::from_nanos(unix("2026-11-22T12:00:00Z")));
    assert_eq!(count.ready(seconds(2), ONE).instant(seconds(2)), seconds(12 * 3600 + 2));
    assert_eq!(count.usage(seconds(13 * 3600)).used, 1);
}

#[test]
fn what_costs_more_than_the_whole_limit_leaves_alone() {
    let five = Amount::new(5).unwrap();
    let mut count = count("2/day in UTC", "2026-11-22T23:00:00Z");
    assert_eq!(count.ready(seconds(0), five).instant(seconds(0)), seconds(0));
    count.take(seconds(0), 0, ONE);
    assert_eq!(count.ready(seconds(0), five).instant(seconds(0)), seconds(3602));
    assert_eq!(count.project(seconds(0), 0, five), seconds(3602));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Simulates months with leap days and clock changes. An API whose clock is up to two seconds off never counts
    /// more than its limit, and no unit of the limit is lost.
    #[test]
    fn not_one_call_is_lost_or_gained(
        row in 0usize..5,
        count in 1u32..40,
        begins in 1_700_000_000u64..1_800_000_000,
        off in -1_999i64..=1_999,
        steps in proptest::collection::vec((0u64..200_000, 1u32..4, 0u8..10), 300),
    ) {
        let renewal = ["day in America/Los_Angeles", "month from 31st in Europe/Berlin", "week from sunday in Asia/Beirut",
            "h in UTC", "day from 02:30 in Europe/Berlin"][row];
        let limit = self::limit(&format!("{count}/{renewal}"));
        let epoch = Duration::from_secs(begins);
        let mut ours = CalendarCount::new(limit.clone(), epoch);
        let mut api = std::collections::HashMap::<u64, u32>::new();
        // Requests that left so near to a renewal that they count here on the other side too, as the API's clock may
        // be off.
        let mut doubtful = std::collections::HashMap::<u64, u32>::new();
        let (mut now, mut unit) = (Instant::START, 0);
        for (pause, cost, fate) in steps {
            now = now + Duration::from_secs(if fate < 5 { 0 } else { pause });
            let cost = Amount::new(cost.min(count)).unwrap();
            let leaves = ours.ready(now, cost).instant(now);
            // Full means full: a request that had to wait would not have fitted into the API's period, apart from the
            // skew.
            if leaves > now {
                let at = epoch.as_nanos() as u64 + now.as_nanos();
                let near = [at - 2_000_000_000, at + 2_000_000_000].map(|at| limit.period(at).start);
                let counted = |start| [&api, &doubtful].map(|of| of.get(&start).copied().unwrap_or(0)).iter().sum::<u32>();
                let used = near.map(counted).into_iter().max().unwrap();
                let beside = near[0] != near[1];
                prop_assert!(beside || used + cost.get() > count, "{used} + {cost} of {count} waited until {leaves:?}");
                let renewed = [near[0], near[1]].map(|start| limit.period(start).end).into_iter().max().unwrap();
                prop_assert!(leaves.as_nanos() + (epoch.as_nanos() as u64) <= renewed + 2_000_000_000);
                now = leaves;
            }
            ours.take(now, unit, cost);
            if fate == 0 {
                ours.return_unused(unit, cost);
            } else {
                ours.sent(now, unit, cost);
                let theirs = (epoch.as_nanos() as u64 + now.as_nanos()).saturating_add_signed(off * 1_000_000);
                let start = limit.period(theirs).start;
                let at = epoch.as_nanos() as u64 + now.as_nanos();
                let sides = [at - 2_000_000_000, at + 2_000_000_000].map(|at| limit.period(at).start);
                for other in sides.into_iter().filter(|side| *side != start) {
                    *doubtful.entry(other).or_default() += cost.get();
                }
                let counted = api.entry(start).or_default();
                *counted += cost.get();
                prop_assert!(*counted <= count, "{counted} of {count}");
            }
            unit += u64::from(cost.get());
        }
    }
}
