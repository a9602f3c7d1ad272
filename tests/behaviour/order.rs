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

/// The paths in the order in which they left from the first `second` on, under a rule with these keys: a client queues
/// 12 requests for `/first`, two others queue 4 each for `/second` after it, and a fourth one of its own flow.
fn order_of_two_batches(rule: &str, first: &str, second: &str) -> Vec<String> {
    let (upstream, andante) = busy(rule);
    let field = |flow: &str| format!("Andante-Flow: {flow}\r\n");
    let mut waiting: Vec<_> = (0..15).map(|_| send(&andante, &upstream, 1, "/first", &field(first))).collect();
    wait_for(&andante, 12);
    waiting.extend((0..8).map(|n| send(&andante, &upstream, 2 + n % 2, "/second", &field(second))));
    wait_for(&andante, 15);
    waiting.push(send(&andante, &upstream, 4, "/unnamed", ""));
    order(&upstream, "/second", 1 + 15 + 8 + 1)
}

#[test]
fn flow_of_the_lowest_rank_is_finished_before_the_next_begins() {
    for (first, second) in [
        ("nightly;rank=2", "hourly;rank=1"),
        ("nightly", "hourly;rank=9"),
        ("nightly;rank=1;due=@1764500000", "hourly;rank=1;due=@1764400000"),
        ("nightly", "hourly;due=1764400000"),
    ] {
        let order = order_of_two_batches("share-by = [\"flow\", \"client\"]\nflow-order = \"rank\"", first, second);
        let last = order.iter().rposition(|path| path == "/second").unwrap();
        // One of the first batch may have left while the second came.
        let between = order[..last].iter().filter(|path| *path != "/second").count();
        assert!(between <= 1 && order.len() > last + 1, "{first}, {second}: {order:?}");
        let unnamed = order.iter().position(|path| path == "/unnamed").unwrap();
        let ranked = first.contains("rank");
        assert!(!ranked || order[unnamed..].iter().all(|path| path != "/first"), "an unranked one is last: {order:?}");
    }
}

#[test]
fn first_flow_is_finished_before_the_next_begins_if_the_first_comes_first() {
    let rule = "share-by = [\"flow\", \"client\"]\nflow-order = \"first-come\"";
    let order = order_of_two_batches(rule, "nightly;rank=2", "hourly;rank=1");
    assert!(order.iter().all(|path| path != "/first"), "{order:?}");
}

#[test]
fn clients_share_the_slots_whatever_ranks_they_state() {
    let (upstream, andante) = busy("flow-order = \"rank\"");
    let send = |source: u8, path: &str, flow: &str| {
        send(&andante, &upstream, source, path, &format!("Andante-Flow: {flow}\r\n"))
    };
    let _waiting: Vec<_> = (0..20)
        .flat_map(|_| [send(1, "/last", "a;rank=8"), send(1, "/first", "b;rank=7"), send(2, "/other", "c;rank=9")])
        .collect();
    wait_for(&andante, 50);
    let before = upstream.requests().len();
    let all = upstream.wait_for(before + 16);
    let count = |path: &str| all[before..before + 16].iter().filter(|request| request.target() == path).count();
    let counts = ["/last", "/first", "/other"].map(count);
    assert!(counts[0] == 0 && (7..=9).contains(&counts[1]), "{counts:?} of 16");
}

#[test]
fn rank_is_no_part_of_the_name_of_a_flow() {
    for rule in ["", "flow-order = \"rank\"", "share-by = [\"flow\", \"client\"]"] {
        let (upstream, andante) = busy(rule);
        let _waiting: Vec<_> = (0..5)
            .flat_map(|_| ["nightly", "nightly;rank=2", "nightly;rank=9;due=@1764400000"])
            .map(|flow| send(&andante, &upstream, 1, "/", &format!("Andante-Flow: {flow}\r\n")))
            .collect();
        wait_for(&andante, 8);
        let flows = andante.status()["lanes"][0]["flows"].clone();
        let names: std::collections::HashSet<_> =
            flows.as_array().unwrap().iter().map(|flow| flow["flow"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names.len(), 1, "{rule}: {flows}");
    }
}

/// Urgencies of the requests that wait, in the order of their clients 127.0.0.1, 127.0.0.2 and so on.
fn urgencies(andante: &Andante, waiting: u64) -> Vec<u64> {
    wait_for(andante, waiting);
    let mut flows = andante.status()["lanes"][0]["flows"].as_array().unwrap().clone();
    flows.sort_by_key(|flow| flow["client"].as_str().unwrap().to_owned());
    flows.iter().map(|flow| flow["urgency"].as_u64().unwrap()).collect()
}

#[test]
fn request_that_says_nothing_has_the_urgency_of_its_rule() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let rule = |more: &str| {
        let rule = format!("identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"1/min\"]\n{more}\n");
        let andante = Andante::with_config(&rule);
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
        andante
    };
    let fields = ["", "Priority: u=0\r\n", "Priority: u=2\r\n", "Priority: u=3\r\n", "Priority: u=7, i\r\n"];
    for (more, expected) in [
        ("urgency = 5", [5, 0, 2, 3, 7]),
        ("urgency = 5\nurgent = [\"10.0.0.1\"]", [5, 5, 5, 3, 7]),
        ("urgency = 1\nurgent = [\"10.0.0.1\"]", [1, 1, 2, 3, 7]),
        ("urgent = [\"10.0.0.1\"]", [3, 3, 3, 3, 7]),
    ] {
        let andante = rule(more);
        let _all: Vec<_> =
            (1..).zip(fields).map(|(source, fields)| send(&andante, &upstream, source, "/", fields)).collect();
        assert_eq!(urgencies(&andante, 5), expected, "{more}");
    }
}

#[test]
fn request_for_a_path_has_the_urgency_of_the_rule_for_it() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"1/min\"]\nurgency = 5\n\
         [[rule]]\nhost = \"{host}\"\npath = \"/chat/*\"\nurgency = 1\n\
         [[rule]]\nhost = \"{host}\"\nmethod = \"GET\"\nurgency = 4\n"
    ));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    let mut waiting = vec![
        send(&andante, &upstream, 1, "/chat/7", ""),
        send(&andante, &upstream, 2, "/batch", ""),
        send(&andante, &upstream, 3, "/chat/7", "Priority: u=6\r\n"),
    ];
    // A gateway address names the same path.
    let mut gateway = Client::connect_from(4, andante.proxy());
    gateway.send(format!("GET /http://{host}/chat/8 HTTP/1.1\r\nHost: {}\r\n\r\n", andante.proxy()));
    let mut post = Client::connect_from(5, andante.proxy());
    post.send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n", upstream.url("/batch")));
    waiting.extend([gateway, post]);
    assert_eq!(urgencies(&andante, 5), [1, 4, 6, 1, 5]);
}

#[test]
fn urgent_by_its_rule_leaves_in_the_next_slot() {
    let (upstream, andante) = {
        let upstream = Upstream::ok();
        let host = upstream.address();
        let andante = Andante::with_config(&format!(
            "[[rule]]\nhost = \"{host}\"\nlimits = [\"20/s\"]\n[[rule]]\nhost = \"{host}\"\npath = \"/chat\"\nurgency = 0\n"
        ));
        (upstream, andante)
    };
    let _flood: Vec<_> = (0..40).map(|_| send(&andante, &upstream, 1, "/flood", "")).collect();
    wait_for(&andante, 30);
    let before = upstream.requests().len();
    assert_eq!(send(&andante, &upstream, 1, "/chat", "").answer().status(), 200);
    let place = upstream.requests().iter().position(|request| request.target() == "/chat").unwrap();
    assert!(place <= before + 2, "{place}, where {before} had left when it was sent");
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

/// The part of the next 24 slots that a batch on one machine gets beside an equal batch on three, under a rule with
/// these keys.
fn part_of_the_batch_on_one_machine(rule: &str) -> usize {
    let (upstream, andante) = busy(rule);
    let send = |source: u8, name: &str| {
        send(&andante, &upstream, source, &format!("/{name}"), &format!("Andante-Flow: {name}\r\n"))
    };
    let _both: Vec<_> =
        (0..18).flat_map(|_| [send(1, "wide"), send(2, "wide"), send(3, "wide"), send(4, "narrow")]).collect();
    wait_for(&andante, 60);
    let before = upstream.requests().len();
    let all = upstream.wait_for(before + 24);
    all[before..before + 24].iter().filter(|request| request.target() == "/narrow").count()
}

#[test]
fn batch_on_three_machines_gets_three_times_the_slots_by_default() {
    let narrow = part_of_the_batch_on_one_machine("");
    assert!((5..=7).contains(&narrow), "{narrow} of 24 for one of four clients");
}

#[test]
fn batch_on_three_machines_gets_as_much_as_one_on_one_machine_if_flows_share_first() {
    for share_by in ["[\"flow\", \"client\"]", "[\"flow\"]", "\"flow\""] {
        let narrow = part_of_the_batch_on_one_machine(&format!("share-by = {share_by}"));
        assert!((11..=13).contains(&narrow), "{narrow} of 24 for one of two flows, share-by = {share_by}");
    }
}

#[test]
fn machines_of_a_batch_share_its_part() {
    let (upstream, andante) = busy("share-by = [\"flow\", \"client\"]");
    let send = |source: u8, path: &str, name: &str| {
        send(&andante, &upstream, source, path, &format!("Andante-Flow: {name}\r\n"))
    };
    // The other machines of the batch have queued all of theirs before it asks.
    let _first: Vec<_> = (0..30).map(|_| send(1, "/flood", "batch")).collect();
    wait_for(&andante, 25);
    let _rest: Vec<_> = (0..10).flat_map(|_| [send(2, "/late", "batch"), send(1, "/other", "other")]).collect();
    wait_for(&andante, 40);
    let before = upstream.requests().len();
    let all = upstream.wait_for(before + 16);
    let count = |path: &str| all[before..before + 16].iter().filter(|request| request.target() == path).count();
    let counts = [count("/flood"), count("/late"), count("/other")];
    for (count, range) in counts.iter().zip([3..=5, 3..=5, 7..=9]) {
        assert!(range.contains(count), "{counts:?} of 16, at a quarter, a quarter and a half");
    }
}

#[test]
fn flows_of_a_client_leave_in_order_of_arrival_if_only_clients_share() {
    let (upstream, andante) = busy("share-by = \"client\"");
    let named = |path: &str, name: &str| send(&andante, &upstream, 1, path, &format!("Andante-Flow: {name}\r\n"));
    let _first: Vec<_> = (0..15).map(|_| named("/first", "a")).collect();
    wait_for(&andante, 12);
    let _second: Vec<_> = (0..5).map(|_| named("/second", "b")).collect();
    wait_for(&andante, 12);
    let other = send(&andante, &upstream, 2, "/other", "");
    let order = order(&upstream, "/second", 22);
    assert!(order.iter().all(|target| target != "/first"), "{order:?}");
    drop(other);
    let all: Vec<String> = upstream.requests().iter().map(|request| request.target()).collect();
    let other = all.iter().position(|target| target == "/other").unwrap();
    assert!(all[other + 1..].iter().any(|target| target == "/first"), "the other client has its share: {all:?}");
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
        answers.iter().filter(|answer| answer.text().contains("made room for another request")).collect();
    assert_eq!(displaced.len(), 1, "{answers:?}");
    assert!((4..=5).contains(&answers.len()), "{answers:?}");
    // Behind four that were refused before, which have a place each half second; fewer if one has left meanwhile.
    let (retry_after, left) = (displaced[0].field("retry-after").unwrap(), 5 - answers.len());
    assert!((2 - left..=3 - left).contains(&retry_after.parse().unwrap()), "{retry_after}, and {left} left");
}

#[test]
fn in_a_full_queue_the_last_rank_is_evicted_however_little_waits_of_it() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"2/s\"]\nmax-waiting = 6\n\
         share-by = [\"flow\", \"client\"]\nflow-order = \"rank\"\n"
    ));
    let ask = |source, flow: &str| send(&andante, &upstream, source, "/", &format!("Andante-Flow: {flow}\r\n"));
    let _first = ask(1, "hourly;rank=1");
    let _waiting: Vec<_> = (0..3).map(|_| ask(1, "hourly;rank=1")).collect();
    wait_for(&andante, 2);
    let mut nightly: Vec<_> = (0..3).map(|_| ask(2, "nightly;rank=2")).collect();
    wait_for(&andante, 5);
    let mut hourly: Vec<_> = (0..3).map(|_| ask(1, "hourly;rank=1")).collect();
    assert!(hourly.iter_mut().all(|client| client.answer().status() == 200), "as many wait, but of the first rank");
    let refused = nightly.iter_mut().filter_map(|client| (client.answer().status() == 429).then_some(())).count();
    // One or two places may have become free meanwhile.
    assert!((1..=3).contains(&refused), "{refused} of three");
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
