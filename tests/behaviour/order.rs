//! Order of requests: clients share the slots, flows share their client's slots, and urgent requests go first.

mod neighbours;
mod places;

use std::time::Duration;

use serde_json::Value;

use crate::support::{Andante, Client, Mock, Upstream, rejected};

/// An andante with a rule of 20 requests a second, whose first slot has been used.
fn busy(more: &str) -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"20/s\"]\n{more}\n"
    ));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    (upstream, andante)
}

/// Sends a GET for `path` from 127.0.0.`source`, with `fields`, and does not wait for the answer.
fn send(andante: &Andante, upstream: &Upstream, source: u8, path: &str, fields: &str) -> Client {
    let mut client = Client::connect_from(source, andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", upstream.url(path), upstream.address()));
    client
}

fn wait_for(andante: &Andante, waiting: u64) {
    andante.wait_for(|status| status["lanes"][0]["waiting"].as_u64() >= Some(waiting));
}

/// The paths in the order in which they came, from the first one called `path` on.
fn order(upstream: &Upstream, from: &str, count: usize) -> Vec<String> {
    let all: Vec<String> = upstream.wait_for(count).iter().map(|request| request.target()).collect();
    let first = all.iter().position(|target| target == from).expect("it has come");
    all[first..].to_vec()
}

/// Asserts that a second client has every other slot, after one client has sent 60 requests with these `fields`.
fn every_other_slot_is_anothers(fields: impl Fn(usize) -> String) {
    let (upstream, andante) = busy("");
    let _flood: Vec<_> = (0..60).map(|n| send(&andante, &upstream, 1, "/flood", &fields(n))).collect();
    wait_for(&andante, 40);
    let _other: Vec<_> = (0..10).map(|_| send(&andante, &upstream, 2, "/other", "")).collect();
    let order = order(&upstream, "/other", 71);
    let turns = order.iter().rposition(|target| target == "/other").unwrap();
    // The first of them came before the second was sent, perhaps.
    assert!((18..=22).contains(&turns), "ten slots of every other one: {order:?}");
}

#[test]
fn another_client_gets_every_other_slot() {
    every_other_slot_is_anothers(|_| String::new());
}

#[test]
fn many_names_of_one_client_gain_nothing() {
    every_other_slot_is_anothers(|n| format!("Andante-Flow: name-{n}\r\n"));
}

/// By default a machine is one client, and 127.0.0.0/8 is this one.
#[test]
fn fresh_loopback_addresses_are_no_fresh_clients() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"20/s\"]\n"));
    let _waiting: Vec<_> = (1..=60).map(|source| send(&andante, &upstream, source, "/", "")).collect();
    wait_for(&andante, 20);
    let flows = andante.status()["lanes"][0]["flows"].clone();
    assert_eq!((&flows[0]["client"], &flows[1]), (&"127.0.0.1".into(), &serde_json::Value::Null), "{flows}");
}

#[test]
fn a_fresh_loopback_address_has_no_fresh_budget_of_a_client() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let rule = format!("[[rule]]\nhost = \"{host}\"\nkey = [\"client\"]\nlimits = [\"1/day\"]\nmax-wait = \"0s\"\n");
    let status = |andante: &Andante, source| send(andante, &upstream, source, "/", "").answer().status();
    let andante = Andante::with_config(&rule);
    assert_eq!([1, 2, 3].map(|source| status(&andante, source)), [200, 429, 429]);
    let andante = Andante::with_config(&format!("identity = \"address\"\n{rule}"));
    assert_eq!([1, 2, 2].map(|source| status(&andante, source)), [200, 200, 429]);
}

#[test]
fn the_status_says_who_waits_most() {
    let (upstream, andante) = busy("");
    let named = |source, name: &str| send(&andante, &upstream, source, "/", &format!("Andante-Flow: {name}\r\n"));
    let _waiting: Vec<_> = (0..20).map(|_| named(1, "batch")).chain((0..9).map(|_| named(2, "live"))).collect();
    wait_for(&andante, 20);
    let flows = andante.status()["lanes"][0]["flows"].clone();
    assert_eq!((&flows[0]["client"], &flows[1]["client"]), (&"127.0.0.1".into(), &"127.0.0.2".into()), "{flows}");
    assert!(flows[0]["waiting"].as_u64() > flows[1]["waiting"].as_u64(), "{flows}");
    assert!(flows[0]["urgency"] == 3 && flows[0]["flow"].is_string() && flows[2].is_null(), "{flows}");
}

#[test]
fn an_urgent_request_leaves_in_the_next_slot() {
    let (upstream, andante) = busy("");
    let _flood: Vec<_> = (0..40).map(|_| send(&andante, &upstream, 1, "/flood", "")).collect();
    wait_for(&andante, 30);
    let before = upstream.requests().len();
    let mut urgent = send(&andante, &upstream, 1, "/urgent", "Priority: u=0\r\n");
    assert_eq!(urgent.answer().status(), 200);
    let place = upstream.requests().iter().position(|request| request.target() == "/urgent").unwrap();
    assert!(place <= before + 2, "{place}, where {before} had left when it was sent");
}

#[test]
fn the_least_urgent_get_their_share_under_a_flood() {
    let (upstream, andante) = busy("");
    let _last: Vec<_> = (0..5).map(|_| send(&andante, &upstream, 1, "/last", "Priority: u=7\r\n")).collect();
    let _flood: Vec<_> = (0..90).map(|_| send(&andante, &upstream, 2, "/flood", "Priority: u=0\r\n")).collect();
    let all: Vec<String> = upstream.wait_for(80).iter().map(|request| request.target()).collect();
    // A slot after each twenty of the others. Up to two had left before the flood came.
    let last = all.iter().filter(|target| *target == "/last").count();
    assert!((3..=5).contains(&last), "{last} in {all:?}");
    let urgent = all.iter().filter(|target| *target == "/flood").count();
    assert!(urgent >= 74, "{urgent} in {all:?}");
}

#[test]
fn only_those_whom_the_rule_names_may_be_urgent() {
    let (upstream, andante) = busy("urgent = [\"127.0.0.2\"]");
    let _flood: Vec<_> = (0..30).map(|_| send(&andante, &upstream, 1, "/flood", "")).collect();
    wait_for(&andante, 25);
    let _pushy = send(&andante, &upstream, 1, "/pushy", "Priority: u=0\r\n");
    wait_for(&andante, 20);
    let mut named = send(&andante, &upstream, 2, "/named", "Priority: u=0\r\n");
    assert_eq!(named.answer().status(), 200);
    assert!(upstream.requests().iter().all(|request| request.target() != "/pushy"));
}

#[test]
fn flows_share_by_their_weights() {
    let (upstream, andante) = busy("weights = [\"live=3\"]");
    let flow = |name: &str| send(&andante, &upstream, 1, &format!("/{name}"), &format!("Andante-Flow: {name}\r\n"));
    let _both: Vec<_> = (0..32).flat_map(|_| [flow("batch"), flow("live")]).collect();
    wait_for(&andante, 56);
    let before = upstream.requests().len();
    let all = upstream.wait_for(before + 24);
    let live = all[before..before + 24].iter().filter(|request| request.target() == "/live").count();
    assert!((17..=19).contains(&live), "{live} of 24 at three to one");
}

#[test]
fn what_costs_more_takes_more_and_what_costs_too_much_is_refused() {
    let (upstream, andante) = busy("max-cost = 20");
    let ask = |cost: &str| send(&andante, &upstream, 1, "/", &format!("Andante-Cost: {cost}\r\n")).answer();
    for wrong in ["0", "many", "21"] {
        rejected(&ask(wrong), 400, "http_request_error", wrong);
    }
    assert_eq!(ask("20").status(), 200);
    // The whole second is used.
    let wait = upstream.address();
    let next = format!("GET http://{wait}/ HTTP/1.1\r\nHost: {wait}\r\nPrefer: wait=0\r\n\r\n");
    assert_eq!(Client::ask(andante.proxy(), next).status(), 429);
}

#[test]
fn a_cost_beyond_a_learned_limit_takes_one_window_and_no_more() {
    let mock = Mock::start(&["--limit", "20/s", "--dialect", "ietf"]);
    let andante = Andante::serve(&[]);
    let ask = |fields: &str| {
        let host = mock.address();
        let request = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n", mock.url("/"));
        Client::ask(andante.proxy(), request).status()
    };
    assert!((0..25).all(|_| ask("") == 200));
    let limits = andante.status()["lanes"][0]["limits"].clone();
    assert_eq!(limits[0]["source"], "learned", "{limits}");
    for cost in ["100000", "4294967295", "4294967295"] {
        assert_eq!(ask(&format!("Andante-Cost: {cost}\r\nPrefer: wait=5\r\n")), 200, "{cost}");
        assert_eq!(ask("Prefer: wait=5\r\n"), 200, "after {cost}");
    }
    let memory = crate::lifecycle::memory(&andante, "VmHWM:");
    assert!(memory < 60 << 20, "{memory} bytes");
}

#[test]
fn requests_of_the_largest_cost_are_shared_as_all_others() {
    let upstream = Upstream::answering(|_| {
        crate::lifecycle::pass(Duration::from_millis(2));
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    });
    let host = upstream.address();
    let andante =
        Andante::with_config(&format!("identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nin-flight = 1\n"));
    // Together they cost more than 64 bits of virtual time hold.
    let waiting: Vec<_> = (0..300).map(|_| send(&andante, &upstream, 1, "/", "Andante-Cost: 4294967295\r\n")).collect();
    for mut client in waiting {
        assert_eq!(client.answer().status(), 200);
    }
    assert_eq!(send(&andante, &upstream, 3, "/", "").answer().status(), 200);
}

#[test]
fn what_is_meant_for_andante_stays_with_it() {
    let upstream =
        Upstream::always("HTTP/1.1 200 OK\r\nAndante-Flow: x\r\nAndante-Cost: 1\r\nContent-Length: 2\r\n\r\nok");
    let andante = Andante::serve(&[]);
    let fields = "Andante-Flow: x\r\nAndante-Cost: 2\r\nPriority: u=1\r\n";
    let answer = send(&andante, &upstream, 1, "/", fields).answer();
    let request = upstream.request();
    for name in ["andante-flow", "andante-cost"] {
        assert!(!answer.has(name) && !request.has(name), "{name}");
    }
    assert_eq!(request.field("priority").as_deref(), Some("u=1"));
}

/// The duration of an entry of `Server-Timing`, which has this name.
fn milliseconds(timing: &str, name: &str) -> f64 {
    let rest = timing.strip_prefix(name).and_then(|rest| rest.strip_prefix(";dur=")).expect(name);
    rest.split(';').next().unwrap().parse().unwrap()
}

#[test]
fn what_waits_for_tokens_is_not_ahead_of_what_takes_none() {
    let upstream = Upstream::ok();
    let host = upstream.address().to_string();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"4/s\", \"60 tokens/min burst 1\"]\nmax-cost = \"tokens=30\"\n"
    ));
    // Half a minute of tokens each: the first leaves, and seven wait.
    let tokens = "Andante-Cost: tokens=30\r\n";
    let _costly: Vec<_> = (0..8).map(|_| send(&andante, &upstream, 1, "/costly", tokens)).collect();
    wait_for(&andante, 7);
    let mut plain: Vec<Client> = Vec::new();
    for n in 0..4 {
        plain.push(send(&andante, &upstream, 1, "/plain", ""));
        let lane = |status: &Value, key: &str| status["lanes"][0][key].as_u64().unwrap();
        andante.wait_for(|status| lane(status, "sent_total") + lane(status, "waiting") == 9 + n);
    }
    // Four at 4/s: the last one a second after the first, and not behind seven others.
    let timings = plain.pop().unwrap().answer().field("server-timing").unwrap();
    let timings: Vec<&str> = timings.split(", ").collect();
    let (waited, expected) = (milliseconds(timings[0], "andante"), milliseconds(timings[1], "andante-expected"));
    assert!(expected <= 1250.0 && (waited - expected).abs() <= 500.0, "it waited {waited} ms, and was told {expected}");
}

#[test]
fn an_answer_says_what_its_request_had_to_expect_when_it_came() {
    const SPACING: f64 = 250.0;
    let upstream = Upstream::ok();
    let host = upstream.address().to_string();
    let andante = Andante::serve(&["--limit", &format!("{host}=4/s")]);
    let first = Client::get(andante.proxy(), &upstream.url("/"));
    assert_eq!(first.all("server-timing"), ["andante;dur=0"], "it has not waited");
    let mut waiting: Vec<Client> = (0..4)
        .map(|n| {
            let mut client = Client::connect(andante.proxy());
            client.send(format!("GET http://{host}/{n} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let lane = |status: &Value, key: &str| status["lanes"][0][key].as_u64().unwrap();
            andante.wait_for(|status| lane(status, "sent_total") + lane(status, "waiting") == n + 2);
            client
        })
        .collect();
    for (n, client) in waiting.iter_mut().enumerate() {
        let timings = client.answer().field("server-timing").unwrap();
        let timings: Vec<&str> = timings.split(", ").collect();
        let (waited, expected) = (milliseconds(timings[0], "andante"), milliseconds(timings[1], "andante-expected"));
        // The requests that came before it, except for one that may have left in the meantime.
        let ahead: usize =
            timings[1].split_once(";desc=\"").unwrap().1.strip_suffix(" ahead\"").unwrap().parse().unwrap();
        assert!(ahead <= n && ahead + 1 >= n, "request {n} was told that {ahead} were ahead");
        assert!((waited - expected).abs() <= SPACING, "request {n} waited {waited} ms, and was told {expected}");
    }
}

#[test]
fn in_a_full_queue_the_newest_of_the_longest_flow_gives_way() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"2/s\"]\nmax-waiting = 5\n"
    ));
    // The first leaves at once, and five wait. A second may have left meanwhile.
    let mut flood: Vec<_> = (0..10).map(|_| send(&andante, &upstream, 1, "/flood", "")).collect();
    andante.wait_for(|status| {
        let lane = |key: &str| status["lanes"][0][key].as_u64().unwrap_or(0);
        lane("sent_total") + lane("waiting") + lane("refused_total") == 10
    });
    assert_eq!(send(&andante, &upstream, 2, "/other", "").answer().status(), 200);
    let mut answers: Vec<_> = flood.iter_mut().map(Client::answer).collect();
    answers.retain(|answer| answer.status() == 429);
    let displaced: Vec<_> =
        answers.iter().filter(|answer| answer.text().contains("made room for another flow")).collect();
    assert_eq!(displaced.len(), 1, "{answers:?}");
    assert!((4..=5).contains(&answers.len()), "{answers:?}");
    // Behind four that were refused before, which have a place each half second; fewer if one has left meanwhile.
    let (retry_after, left) = (displaced[0].field("retry-after").unwrap(), 5 - answers.len());
    assert!((2 - left..=3 - left).contains(&retry_after.parse().unwrap()), "{retry_after}, and {left} left");
}

#[test]
fn an_urgent_request_has_what_is_reserved_for_it() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let rule = format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"10/min burst 10\"]\nreserve = \"10%\"\n");
    let andante = Andante::with_config(&rule);
    let _usual: Vec<_> = (0..12).map(|_| send(&andante, &upstream, 1, "/usual", "")).collect();
    // Nine of ten leave, and three wait.
    wait_for(&andante, 3);
    assert_eq!(upstream.wait_for(9).len(), 9);
    let mut urgent = send(&andante, &upstream, 1, "/urgent", "Priority: u=1\r\n");
    assert_eq!(urgent.answer().status(), 200);
    let rest = andante.status()["lanes"][0]["rules"][0].clone();
    assert!(rest["rule"].as_str().is_some_and(|name| name.ends_with(", all but the reserve")), "{rest}");
    assert_eq!((&rest["waiting"], &rest["limits"][0]["used"]), (&3.into(), &9.into()), "{rest}");
}

/// The instant at which a place in flight becomes free is unknown, so the request waits. Requests that wait for another
/// budget are not ahead of it.
#[test]
fn who_has_waited_in_vain_is_told_when_one_like_it_would_not() {
    let upstream = Upstream::scripted(|mut connection| {
        while connection.request().is_some() {
            std::thread::park_timeout(Duration::from_secs(4));
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"in-flight 1\", \"20/s\"]\n\
         [[rule]]\nhost = \"{host}\"\npath = \"/slow/*\"\nlimits = [\"1/min\"]\n"
    ));
    let _under_way = send(&andante, &upstream, 1, "/slow/0", "");
    upstream.wait_for(1);
    let _slow: Vec<_> = (1..=20).map(|n| send(&andante, &upstream, 1, &format!("/slow/{n}"), "")).collect();
    wait_for(&andante, 20);
    let answer = send(&andante, &upstream, 2, "/quick", "Prefer: wait=1\r\n").answer();
    rejected(&answer, 429, "http_request_denied", "no slot in a second");
    // Not the 20 minutes that requests of the other budget need.
    assert_eq!(answer.field("retry-after").as_deref(), Some("1"));
    assert!(answer.text().contains("no slot matured in the time it may wait"), "{answer:?}");
    wait_for(&andante, 20);
}
