//! Claims about `time`.

use super::*;

fn at(value: &str) -> Option<f64> {
    instant(value).map(|at| at.as_secs_f64())
}

#[test]
fn every_spelling_of_one_instant_is_that_instant() {
    for value in [
        "2025-06-03T10:00:38Z",
        "2025-06-03t10:00:38z",
        "2025-06-03 10:00:38",
        "2025-06-03 10:00:38 UTC",
        "2025-06-03T10:00:38+00:00",
        "2025-06-03T12:00:38+02:00",
        "2025-06-03T05:30:38.000-0430",
        "2025-06-03T10:00:38.0000000Z",
        "Tue, 03 Jun 2025 10:00:38 GMT",
        "Mon, 03 Jun 2025 10:00:38 UTC",
        "Tue, 3 Jun 2025 10:00:38 +0000",
        "Tuesday, 03-Jun-25 10:00:38 GMT",
        "Tue Jun  3 10:00:38 2025",
        "tue, 03 jun 2025 10:00:38 gmt",
        "Tue Jun 03 2025 12:00:38 GMT+0200 (Central European Summer Time)",
        "Tue Jun 03 2025 06:00:38 GMT-0400 (Eastern Daylight Time)",
        "2025-Jun-03 10:00:38+0000 UTC",
    ] {
        assert_eq!(at(value), Some(1_748_944_838.0), "{value}");
    }
    assert_eq!(at("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777.0));
    assert_eq!(at("2020-05-04T12:23:41.6181792Z").map(f64::fract).map(|f| (f * 1e4).round()), Some(6182.0));
    assert_eq!(at("2024-02-29T00:00:00Z"), Some(1_709_164_800.0));
}

#[test]
fn the_usual_date_is_read_as_what_others_write_it_for() {
    // Every 37 days and some seconds until 2106, over all months, weekdays and leap years.
    for seconds in (0..u64::from(u32::MAX)).step_by(3_200_047) {
        let told = Duration::from_secs(seconds);
        assert_eq!(usual_date(&httpdate::fmt_http_date(std::time::UNIX_EPOCH + told)), Some(told));
    }
    for other in ["Tue, 03 Jun 2025 10:00:38 UTC", "Tue; 03 Jun 2025 10:00:38 GMT", "Xyz, 03 Jun 2025 10:00:38 GMT"] {
        assert_eq!(usual_date(other), None, "{other}");
    }
}

#[test]
fn what_is_no_time_is_none() {
    for value in [
        "",
        " ",
        "soon",
        "NaN",
        "inf",
        "1e999",
        "-1",
        "+5",
        "0x10",
        "2025",
        "2025-01-20",
        "2025-01-20T",
        "20250120T000000Z",
        "2025-13-01T00:00:00Z",
        "2025-01-20T00:00:00.Z",
        "2025-01-20T00:00:00ZZ",
        "2025-01-20T99:00:00Z",
        "Tue, 03 Jun",
        "6m0",
        "m",
        "5x",
        "5 s",
        "1.2.3s",
        "..s",
        "10,5",
        "Tue, 03 Jun 2025 10:00:38 PST",
        "é025-01-20T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "٣",
    ] {
        assert!(value == "2025" || reset(value, false).is_none(), "{value}: {:?}", reset(value, false));
        assert!(instant(value).is_none(), "{value}");
    }
}

#[test]
fn a_number_is_told_by_its_size_unless_it_is_a_delay() {
    let epoch = |at, coarse| Some(When::At { at: Duration::from_secs_f64(at), coarse });
    let from_now = |seconds| Some(When::In { delay: Duration::from_secs_f64(seconds), spelled: false });
    assert_eq!(reset("1659645499", false), epoch(1_659_645_499.0, true));
    assert_eq!(reset("1470173023.5", false), epoch(1_470_173_023.5, false));
    assert_eq!(
        reset("1679587256800", false),
        Some(When::At { at: Duration::from_millis(1_679_587_256_800), coarse: false })
    );
    assert_eq!(reset("312", false), from_now(312.0));
    assert_eq!(reset("0.5", false), from_now(0.5));
    assert_eq!(reset("20649", true), from_now(20.649));
    assert_eq!(delay("2023", false), from_now(2023.0));
    assert_eq!(delay("1659645499", false), Some(When::In { delay: CAP, spelled: false }));
}

#[test]
fn durations_are_read_to_the_last_unit() {
    for (value, seconds) in [
        ("6m0s", 360.0),
        ("2m59.56s", 179.56),
        ("20ms", 0.02),
        ("0s", 0.0),
        ("1h2m3s", 3723.0),
        ("500µs", 0.0005),
        ("1d", 86_400.0),
        ("45.837906927s", 45.837_906_927),
        ("99999999999999999999h", CAP.as_secs_f64()),
    ] {
        assert_eq!(spelled(value).map(|delay| delay.as_secs_f64()), Some(seconds), "{value}");
    }
}

#[test]
fn the_servers_clock_measures_its_own_times_while_it_is_sane() {
    let now = |date: u64| Now { arrived: Duration::from_secs(1_000_000), date: Some(Duration::from_secs(date)) };
    let until = |date, at| now(date).until(Duration::from_secs(at)).map(|left| left.as_secs());
    assert_eq!(until(1_000_090, 1_000_100), Some(10));
    assert_eq!(until(999_000, 1_000_100), Some(1100));
    assert_eq!(until(999_999, 1_000_100), Some(100), "no more than rounded");
    // A date of another year is ignored, unless our own clock is the implausible one.
    assert_eq!(until(900_000_000, 1_000_100), Some(100));
    assert_eq!(until(900_000_000, 900_000_100), Some(100));
    // The server's clock is days ahead or behind, and its times agree with it.
    assert_eq!(until(1_300_000, 1_300_100), Some(100));
    assert_eq!(until(700_000, 700_100), Some(100));
    assert_eq!(until(1_000_000, 1_000_000), None);
    assert_eq!(until(1_000_000, 999_000), None);
}

/// A server's date has lost its fraction, and its clock differs from ours.
#[test]
fn a_wait_until_a_date_never_ends_early_and_at_most_two_seconds_late() {
    let seconds = Duration::from_secs_f64;
    // The server's clock gives the time of the answer and the requested wait; `ahead` is our clock's lead.
    for (made, ahead) in [0.0, 0.25, 0.5, 0.999].iter().flat_map(|made| {
        [-7200.0, -2.0, -0.6, -0.001, 0.0, 0.3, 0.999, 1.7, 600.5].map(|ahead| (1_000_000.0 + made, ahead))
    }) {
        for asked in [0.4, 1.0, 6.0, 6.4, 30.95] {
            let now = Now { arrived: seconds(made + ahead), date: Some(seconds(f64::floor(made))) };
            for date in [f64::floor(made + asked), f64::ceil(made + asked)] {
                let Wait { told, later } = When::At { at: seconds(date), coarse: true }.wait(now).unwrap();
                let waits = (told + later).as_secs_f64();
                let late = if date > made + asked { 3.0 } else { 2.0 };
                assert!((asked..asked + late).contains(&(waits + 1e-6)), "{made} {ahead} {asked}: {waits}");
            }
        }
    }
    // Without a `Date`, ours is the only clock: the named second ends a second after it began.
    let ours = Now { arrived: seconds(1_000_000.25), date: None };
    assert_eq!(
        When::At { at: seconds(1_000_006.0), coarse: true }.wait(ours),
        Some(Wait { told: seconds(5.75), later: seconds(1.0) })
    );
    // A time with a fraction is exact.
    let both = Now { arrived: seconds(1_000_000.25), date: Some(seconds(1_000_000.0)) };
    let exact = When::At { at: seconds(1_000_006.5), coarse: false }.wait(both).unwrap();
    assert_eq!((exact.told + exact.later).as_secs_f64(), 6.5);
    // The named second is not over yet; the second before it is.
    assert!(When::At { at: seconds(1_000_000.0), coarse: true }.wait(both).is_some());
    assert_eq!(When::At { at: seconds(999_999.0), coarse: true }.wait(both), None);
}
