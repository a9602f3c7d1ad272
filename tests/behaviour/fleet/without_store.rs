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
    let admin = world.members[0].admin().to_string();
    let (_, said, _) = outcome(andante(&["status", "--admin", &admin]));
    assert!(
        said.lines().nth(1).is_some_and(|line| line.starts_with(&named) && line.contains("cannot be used")),
        "{said}"
    );
    let (_, said, _) = outcome(andante(&["explain", &world.api.url("/"), "--admin", &admin]));
    assert!(said.contains(&named) && said.contains("store-down"), "{said}");
    let incidents = world.members[0].status()["incidents"].to_string();
    assert!(incidents.contains(&named), "{incidents}");
}
