//! A new store could be one that has forgotten. Members know when it begins to grant tokens, and report the time.

use super::*;
use crate::commands::{andante, outcome};

/// A lease, a window, and guard times of half a second and two: 10.5 s in all.
#[test]
fn every_screen_says_that_a_new_store_is_waited_for_and_until_when() {
    let mut world = World::with_store(Redis::start(), "20/7s", 0);
    let (url, host) = (world.store.url(), world.api.address());
    let config = format!(
        "lease = \"1s\"\nstore = \"{url}\"\n[[rule]]\nname = \"api\"\nhost = \"{host}\"\nlimits = [\"20/7s\"]\n\
         in-flight = 9\nallow-private = true\n"
    );
    world.members = vec![Andante::with_config(&config)];
    let member = &world.members[0];
    eventually("that it learns", || (world.standing(0) == "learning").then_some(()));
    let mut client = Client::connect(member.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", world.api.url("/")));
    let status = member.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    let learns = status["fleet"]["learns_for_s"].as_f64();
    // A lease, and the guard times of half a second and two.
    assert!(learns.is_some_and(|time| time > 0.0 && time <= 3.5), "{status:#}");
    // Places in flight are given out later than the window's tokens: after the hold, which is five minutes.
    let lane = &status["lanes"][0];
    let opens = lane["in_flight_share"]["opens_in_s"].as_f64().unwrap();
    assert!(opens > 300.0 && lane["drain_eta_s"].as_f64().is_some_and(|eta| eta >= opens - 1.0), "{lane:#}");
    assert!(lane["limits"][0]["share"]["opens_in_s"].as_f64().is_some_and(|time| (7.0..=10.5).contains(&time)));
    let admin = member.admin().to_string();
    for command in [&["status"][..], &["top", "--once"]] {
        let (_, said, _) = outcome(andante(&[command, &["--admin", &admin]].concat()));
        let line = said.lines().nth(1).unwrap_or_default();
        assert!(line.contains(&url) && line.contains("is new, or has lost its data"), "{said}");
        assert!(line.contains("given out in ") && line.contains(" and a window"), "{said}");
    }
    let (_, said, _) = outcome(andante(&["explain", &world.api.url("/"), "--admin", &admin]));
    let because = said.lines().find(|line| line.contains("because")).expect("a reason");
    assert!(because.contains(&url) && because.contains("it gives out this limit in 30"), "{said}");
    assert!(said.contains("it would wait for 5m ") && said.contains("andante fleet init"), "{said}");
    let ready = member.page("/readyz").text();
    assert!(ready.contains("the store is new, or has lost its data") && ready.contains(" s and a window"), "{ready}");
    let log = member.stderr();
    let line =
        log.lines().find(|line| line.contains("the store is new, or has lost its data")).expect("a line says so");
    assert!(line.contains("learns_for_s=3.") && line.contains("andante fleet init"), "{line}");
}

#[test]
fn who_waits_for_a_new_store_is_told_for_how_long() {
    let mut world = World::with_store(Redis::start(), "20/5s", 0);
    let (url, host) = (world.store.url(), world.api.address());
    let config = format!(
        "lease = \"1s\"\nstore = \"{url}\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"20/5s\"]\nallow-private = true\n"
    );
    world.members = vec![Andante::with_config(&config)];
    let member = &world.members[0];
    eventually("that it learns", || (world.standing(0) == "learning").then_some(()));
    let ready = member.page("/readyz");
    assert_eq!(ready.status(), 200);
    assert!(ready.text().contains("the store is new, or has lost its data"), "{}", ready.text());
    // A lease, a window, and the guard times of half a second and two.
    let mut clients: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = Client::connect(member.proxy());
            client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", world.api.url("/")));
            thread::park_timeout(SECOND / 3);
            client
        })
        .collect();
    let lane = member.wait_for(|status| status["lanes"][0]["waiting"] == 10)["lanes"][0].clone();
    let opens_in = lane["limits"][0]["share"]["opens_in_s"].as_f64();
    assert!(opens_in.is_some_and(|time| time > 2.0 && time < 8.5), "{lane}");
    for client in &mut clients {
        let timing = client.answer().field("server-timing").expect("what was expected");
        let milliseconds = |name: &str| {
            let said = timing.split(", ").find_map(|metric| metric.strip_prefix(name));
            said.and_then(|said| said.split(';').next()?.parse::<f64>().ok()).expect("a time")
        };
        let (waited, expected) = (milliseconds("andante;dur="), milliseconds("andante-expected;dur="));
        // Calls to the store are a third of a second apart, and its time advances no faster than they report.
        assert!((waited - expected).abs() <= 1_000.0, "{timing}");
    }
    assert_eq!(world.standing(0), "shared");
    world.kept(20);
}
