//! A store that is reached by TLS: a real Redis, with certificates of the test's own.

use std::thread;

use super::{SECOND, World};
use crate::support::{Andante, Mock, Redis, eventually, tls::Authority};

/// Declares the store new for a fleet, with the roots in the file `trusted`.
fn init(store: &Redis, trusted: &str) -> (bool, String) {
    let mut command = Andante::command();
    let done = command.args(["fleet", "init", "--store", &store.url()]).env("SSL_CERT_FILE", trusted).output().unwrap();
    (done.status.success(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
}

#[test]
fn two_andantes_share_by_tls_and_one_that_does_not_trust_the_store_says_so() {
    let (authority, other) = (Authority::new("store"), Authority::new("another"));
    let store = Redis::secure(&authority.leaf(&["127.0.0.1"]));
    let url = store.url();
    let (done, said) = init(&store, authority.file());
    assert!(done && said.contains("is new"), "{said}");
    let api = Mock::start(&["--limit", "60/s"]);
    let config = format!(
        "store = \"{url}\"\n[[rule]]\nname = \"api\"\nhost = \"{}\"\nlimits = [\"60/s\"]\nallow-private = true\n",
        api.address()
    );
    let member = |trusted: &str| Andante::with_environment_and_config("SSL_CERT_FILE", trusted, &config);
    let members = vec![member(authority.file()), member(authority.file())];
    let world = World { api, url: store.url(), store, limits: String::new(), keys: "", members };
    for at in 0..2 {
        eventually("that it joins", || (world.standing(at) == "shared").then_some(()));
    }
    world.press_all();
    thread::park_timeout(2 * SECOND);
    let accepted = world.accepts_in(3 * SECOND);
    assert!(accepted >= 150, "{accepted} of 180");
    assert_eq!(world.members[0].status()["fleet"]["members"], 2);
    // A member with other roots: its message has the attempt, the address, and the remedy.
    let stranger = member(other.file());
    let words = ["certificate", "SSL_CERT_FILE"];
    eventually("its complaint", || stranger.stderr().contains("cannot join the fleet").then_some(()));
    let (log, status) = (stranger.stderr(), stranger.status());
    let problem = status["fleet"]["problem"].as_str().unwrap_or_default();
    assert!(log.contains(&url) && words.iter().all(|word| log.contains(word) && problem.contains(word)), "{log}");
    assert_eq!(stranger.page("/readyz").status(), 503);
    let (done, said) = init(&world.store, other.file());
    assert!(!done && said.contains(&url) && words.iter().all(|word| said.contains(word)), "{said}");
    world.kept(60);
}
