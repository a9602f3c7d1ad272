//! Claims about shared limits, and the terms of sharing.

use std::{num::NonZeroU32, time::Duration};

use super::{load, problems};
use crate::limit::InFlightLimit;

const STORE: &str = "store = 'redis://a'";

fn fixed(count: u32) -> InFlightLimit {
    InFlightLimit::Fixed(NonZeroU32::new(count).unwrap())
}

#[test]
fn an_in_flight_limit_is_shared_and_that_of_some_requests_is_divided() {
    let own = "[[rule]]\nhost = 'a'\nin-flight = 6";
    let config = load(&format!("{STORE}\n{own}"));
    assert_eq!(config.rules.iter().next().unwrap().in_flight, Some(fixed(6)));
    let added = format!("{own}\n[[rule]]\nhost = 'a'\npath = '/b'\nin-flight = 4");
    assert!(problems(&format!("{STORE}\n{added}")).contains("a store does not share in-flight 4"));
    let config = load(&format!("{STORE}\nfleet-size = 2\n{added}"));
    let counts: Vec<_> = config.rules.iter().map(|rule| rule.in_flight.unwrap()).collect();
    assert_eq!(counts, [fixed(6), fixed(2)]);
}

#[test]
fn a_hold_is_from_a_second_to_a_day() {
    assert_eq!(load(STORE).fleet.in_flight_hold, Duration::from_secs(300));
    assert_eq!(load(&format!("{STORE}\nin-flight-hold = '1h'")).fleet.in_flight_hold, Duration::from_secs(3600));
    for wrong in ["'0.5s'", "'2d'", "'never'", "5"] {
        let told = problems(&format!("{STORE}\nin-flight-hold = {wrong}"));
        assert!(told.contains("a duration from 1s to 1d"), "{wrong}: {told}");
    }
    let told = problems(&format!("{STORE}\nin-flight-hold = 5"));
    assert!(told.contains("write \"5s\"") && !told.contains("5ms"), "{told}");
}

#[test]
fn an_in_flight_limit_that_is_too_small_for_a_floor_is_told() {
    let file = |count| {
        format!(
            "{STORE}\nstore-down = 'floor'\nfleet-size = 3\nfloor = '50%'\n[[rule]]\nhost = 'a'\nin-flight = {count}"
        )
    };
    assert!(problems(&file(5)).contains("50% of in-flight 5 is less than 1 for each of 3"));
    assert_eq!(problems(&file(6)), "");
}
