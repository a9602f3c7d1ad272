//! A new store could be one that has forgotten. Members know when it begins to grant tokens, and report the time.

use super::*;

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
    assert!(ready.text().contains("the store is new, or has forgotten"), "{}", ready.text());
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
