//! A store that is gone is named wherever people look for the reason why nothing leaves.

use super::{Redis, World, eventually};
use crate::{
    commands::{andante, outcome},
    support::{Andante, Client},
};

#[test]
fn a_store_that_is_gone_is_named_in_answers_and_by_every_command() {
    let mut world = World::with_store(Redis::for_a_fleet_with(&["--lease", "1s"]), "100/s", 0);
    let (url, host) = (world.store.url(), world.api.address());
    let config = format!(
        "lease = '1s'\nstore = '{url}'\n[[rule]]\nname = 'api'\nhost = '{host}'\nlimits = '100/s'\nallow-private = true\n"
    );
    world.members = vec![Andante::with_config(&config)];
    let ask = |fields: &str| {
        let mut client = Client::connect(world.members[0].proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n", world.api.url("/")));
        client.answer()
    };
    assert_eq!(ask("").status(), 200);
    world.store.kill();
    eventually("that it is cut off", || (world.standing(0) == "cut-off").then_some(()));
    let named = format!("the store {url}");
    for fields in ["Prefer: wait=0\r\n", "Prefer: wait=1\r\n"] {
        let answer = ask(fields);
        assert_eq!(answer.status(), 429, "{answer:?}");
        let problem: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(&named)), "{problem:#}");
        assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("store-down")), "{problem:#}");
    }
    // While a request waits, no screen estimates when it leaves.
    let mut waits = Client::connect(world.members[0].proxy());
    waits.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", world.api.url("/")));
    let lane = world.members[0].wait_for(|status| status["lanes"][0]["waiting"] == 1)["lanes"][0].clone();
    assert!(lane["drain_eta_s"].is_null() && lane["next_slot_s"].is_null(), "{lane:#}");
    let admin = world.members[0].admin().to_string();
    for command in [&["status"][..], &["top", "--once"]] {
        let (_, said, _) = outcome(andante(&[command, &["--admin", &admin]].concat()));
        let store = said.lines().nth(1).unwrap_or_default();
        assert!(store.starts_with(&named) && store.contains("cannot be used"), "{said}");
        assert!(store.contains("start the store"), "what to do: {said}");
        let table: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("LANE")).collect();
        let end = table[0].find("ETA").expect("a column") + "ETA".len();
        assert_eq!(table[1][..end].split_whitespace().last(), Some("-"), "{said}");
    }
    let (_, said, _) = outcome(andante(&["explain", &world.api.url("/"), "--admin", &admin]));
    assert!(said.contains(&named) && said.contains("store-down"), "{said}");
    assert!(said.contains("it would wait for as long as that lasts"), "{said}");
    let log = world.members[0].stderr();
    let line = log.lines().find(|line| line.contains("the lease is over")).expect("a line says so");
    assert!(line.contains("start the store"), "{line}");
    let incidents = world.members[0].status()["incidents"].to_string();
    assert!(incidents.contains(&named), "{incidents}");
}
