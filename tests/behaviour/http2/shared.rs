//! A connection to an API that many workers share: it ends when nobody needs it.

use super::upstreams::andante;
use crate::support::{Andante, Client, eventually, h2::Upstream2};

/// What `/metrics` says that are alive.
fn tasks(andante: &Andante) -> u64 {
    let metrics = andante.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix("andante_tasks "));
    line.expect("andante_tasks").parse().unwrap()
}

#[test]
fn a_connection_to_an_api_that_nobody_uses_is_closed_and_its_tasks_end() {
    let upstream = Upstream2::ok();
    let andante = andante(upstream.address().port(), "[timeouts]\nupstream-keep-alive = \"100ms\"");
    let before = tasks(&andante.andante);
    for round in 1..=2 {
        assert_eq!(Client::get(andante.andante.proxy(), &upstream.url("/")).text(), "ok");
        andante.andante.wait_for(|status| status["connections"]["upstream"] == 0);
        assert_eq!(upstream.connections(), round);
    }
    let was = "as many tasks as before the first request";
    eventually(was, || (tasks(&andante.andante) == before).then_some(()));
}
