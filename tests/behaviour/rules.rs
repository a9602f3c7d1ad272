//! Rules for some of a host's requests: by path, method and header, with a budget for each value of a key.

use std::time::Duration;

use andante::clock::{Clock, Instant};
use serde_json::Value;

use crate::{
    commands::{self, outcome},
    support::{Andante, Client, Upstream},
};

/// An andante before `upstream` with these rules for it.
fn before(upstream: &Upstream, rules: &[&str]) -> Andante {
    let rule = |rule: &&str| format!("[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address());
    Andante::with_config(&rules.iter().map(rule).collect::<String>())
}

fn ask(andante: &Andante, upstream: &Upstream, method: &str, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url(path), upstream.address());
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n"));
    client
}

fn served(andante: &Andante, upstream: &Upstream, method: &str, path: &str, fields: &str) -> bool {
    match ask(andante, upstream, method, path, &format!("Prefer: wait=0\r\n{fields}")).answer().status() {
        200 => true,
        429 => false,
        other => panic!("{other}"),
    }
}

fn rule_of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let rules = status["lanes"][0]["rules"].as_array().expect("there are rules for some requests");
    rules.iter().find(|rule| rule["rule"] == name).unwrap_or_else(|| panic!("{name} is missing: {status:#}"))
}

#[test]
fn what_waits_for_a_search_holds_up_nobody_else() {
    let upstream = Upstream::ok();
    let search = "name = \"search\"\nmethod = \"POST\"\npath = \"/search\"\nlimits = [\"2/s\"]";
    let andante = before(&upstream, &["limits = [\"50/s\"]", search]);
    let clock = Clock::start();
    let passed = || clock.now().since(Instant::START);
    let mut searches: Vec<_> = (0..5).map(|_| ask(&andante, &upstream, "POST", "/search", "")).collect();
    andante.wait_for(|status| status["lanes"][0]["waiting"].as_u64() >= Some(3));
    let status = andante.status();
    let rule = rule_of(&status, "search");
    assert_eq!((&rule["budgets"], &rule["busy"], &rule["limits"][0]["limit"]), (&1.into(), &1.into(), &"2/s".into()));
    assert_eq!(status["lanes"][0]["limits"][0]["limit"], "50/s");
    let (_, shown, _) = outcome(commands::andante(&["status", "--admin", &andante.admin().to_string()]));
    assert!(shown.contains("\n  search: ") && shown.contains(" waiting, 2/s "), "{shown}");
    for (method, path) in [("GET", "/search"), ("POST", "/other"), ("GET", "/")] {
        assert_eq!(ask(&andante, &upstream, method, path, "").answer().status(), 200);
    }
    assert!(passed() < Duration::from_millis(1200), "{:?}", passed());
    assert!(searches.iter_mut().all(|search| search.answer().status() == 200));
    // The first at once, and one each half second.
    assert!(passed() >= Duration::from_millis(1950), "{:?}", passed());
    let metrics = andante.metrics();
    assert!(metrics.contains("andante_draws_total{rule=\"search\"} 5"), "{metrics}");
    let status = andante.status();
    assert!(status["unmatched_rules"].as_array().unwrap().is_empty());
    let total = |status: &Value| status["limits"][0]["used_total"].as_u64();
    assert_eq!((total(&status["lanes"][0]), total(rule_of(&status, "search"))), (Some(8), Some(5)));
}

#[test]
fn each_tenant_and_each_credential_has_a_budget_and_all_rules_that_match_hold() {
    let upstream = Upstream::ok();
    let tenant = "name = \"tenant\"\npath = \"/v1/{tenant}/*\"\nkey = [\"path:tenant\"]\nlimits = [\"2/h burst 2\"]";
    let key = "name = \"key\"\nkey = [\"header:authorization\"]\nlimits = [\"3/h burst 3\"]";
    let andante = before(&upstream, &["limits = [\"1000/s burst 50\"]", tenant, key]);
    let get = |path: &str, key: &str| {
        served(&andante, &upstream, "GET", path, &format!("Authorization: Bearer {key}-s3cret\r\n"))
    };
    assert!(get("/v1/acme/a", "one") && get("/v1/%61cme/b", "two"));
    assert!(!get("/v1/acme/c", "three"), "two an hour for each tenant");
    assert!(get("/v1/zeta/a", "one"), "another tenant");
    assert!(get("/elsewhere", "one"), "no tenant, and the third with this key");
    assert!(!get("/elsewhere", "one"), "three an hour for each key");
    // A request that waited for its key, and was refused, has not used its tenant's budget.
    assert!(!get("/v1/late/a", "one") && get("/v1/late/a", "two") && get("/v1/late/a", "four"));
    let status = andante.status();
    assert_eq!(rule_of(&status, "tenant")["budgets"], 3);
    let shown = format!("{status} {}", andante.metrics());
    assert!(!shown.contains("s3cret") && !shown.contains("acme"), "values are shown nowhere");
}

#[test]
fn a_tenant_that_is_refused_holds_up_nobody_else() {
    let upstream = Upstream::answering(|request| match request.target().starts_with("/v1/bad") {
        true => "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n",
        false => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    });
    let tenant = "name = \"tenant\"\npath = \"/v1/{tenant}/*\"\nkey = \"path:tenant\"\nlimits = [\"100/s\"]";
    let andante = before(&upstream, &["limits = [\"100/s\"]", tenant]);
    let served = |path: &str| ask(&andante, &upstream, "GET", path, "").answer().status() == 200;
    assert!((0..10).all(|_| served("/v1/good/a")));
    let _bad = ask(&andante, &upstream, "GET", "/v1/bad/a", "");
    let refused = |status: &Value| status["lanes"][0]["own_limits"][0]["requests"] == "a budget of tenant";
    let status = andante.wait_for(refused);
    assert!(status["lanes"][0]["gate"].is_null(), "{status:#}");
    let clock = Clock::start();
    assert!((0..10).all(|_| served("/v1/good/a")) && served("/"));
    let took = clock.now().since(Instant::START);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn only_ends_the_search() {
    let upstream = Upstream::ok();
    let free = "name = \"free\"\npath = \"/free/*\"\nonly = true\nlimits = [\"4/h burst 4\"]";
    let later = "name = \"later\"\nheader = \"x-batch\"\nlimits = [\"1/h\"]";
    let andante = before(&upstream, &["limits = [\"2/h burst 2\"]", free, later]);
    let get = |path: &str, fields: &str| served(&andante, &upstream, "GET", path, fields);
    let batch = "X-Batch: 1\r\n";
    assert!(get("/", "") && get("/", batch) && !get("/", ""), "the host has had its two");
    assert!((0..4).all(|_| get("/free/a", batch)), "neither the host's two nor the batch's one");
    assert!(!get("/free/a", batch), "four an hour");
}

/// RFC 3986 §6.2.2, RFC 9110 §5.5 and §11.1, and the form encoding of WHATWG URL: these are one request each.
#[test]
fn one_request_in_several_spellings_has_one_budget() {
    let upstream = Upstream::ok();
    let rules = [("query", "query:tenant"), ("header", "header:authorization")].map(|(name, key)| {
        format!("name = \"{name}\"\npath = \"/{name}\"\nkey = [\"host\", \"{key}\"]\nlimits = [\"1/day\"]")
    });
    let andante = before(&upstream, &["limits = [\"1000/s burst 100\"]", &rules[0], &rules[1]]);
    let served = |path: &str, fields: &str| served(&andante, &upstream, "GET", path, fields);
    assert!(served("/query?tenant=acme", ""));
    for query in ["tenant=%61cme", "%74enant=acme", "a=1&tenant=acm%65", "tenant=acme&tenant=acme"] {
        assert!(!served(&format!("/query?{query}"), ""), "{query}");
    }
    assert!(served("/query?tenant=a&tenant=b", ""));
    assert!(!served("/query?tenant=b&tenant=c", ""), "servers differ in which of several they read");
    assert!(served("/query?tenant=other", ""));
    assert!(served("/header", "Authorization: Bearer k1\r\n"));
    for line in ["bearer k1", "BEARER k1", "Bearer  k1", " Bearer\tk1 "] {
        assert!(!served("/header", &format!("Authorization: {line}\r\n")), "{line}");
    }
    assert!(served("/header", "Authorization: Bearer K1\r\n"));
    assert!(served("/header", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"));
    assert!(!served("/header", "Authorization: Bearer b\r\nAuthorization: Bearer a\r\n"));
    let last = upstream.requests().pop().unwrap();
    assert_eq!(last.all("authorization"), ["Bearer a", "Bearer b"], "what is forwarded stays as it is");
}

#[test]
fn limit_of_a_path_holds_for_all_of_its_spellings() {
    let upstream = Upstream::ok();
    let search = "path = \"/search\"\nlimits = [\"1/day\"]";
    let andante = before(&upstream, &["limits = [\"1000/s burst 100\"]", search]);
    let served = |path: &str| served(&andante, &upstream, "GET", path, "");
    assert!(served("/search?q=1"));
    for path in [
        "/search",
        "/%73earch",
        "//search",
        "/x/../search",
        "/x/%2e%2E/search",
        "/./search/",
        "/search;v=1",
        "/search%3bv=1",
        "/%2Fsearch",
        "/x%2f..%2fsearch",
        "/search%20",
        "/search%00",
        "/x/..;/search",
        "/%2573earch",
        "/x\\..\\search",
    ] {
        assert!(!served(path), "{path}");
    }
    assert!(served("/SEARCH") && served("/searches") && served("/search/more"), "others than that path");
}

#[test]
fn path_that_servers_read_in_two_ways_is_no_way_around_the_hosts_limit() {
    let upstream = Upstream::ok();
    let free = "path = \"/free/*\"\nonly = true\nlimits = [\"1000/s burst 100\"]";
    let andante = before(&upstream, &["limits = [\"1/day\"]", free]);
    let served = |path: &str| served(&andante, &upstream, "GET", path, "");
    assert!(served("/api"));
    for path in
        ["/free/../api", "/free/..%2fapi", "/free/..%2Fapi", "/free/..;/api", "/free/%2e%2e;x/api", "/free/..%5capi"]
    {
        assert!(!served(path), "{path}");
    }
    assert!(served("/free/a") && served("/free/b%20c") && served("/free/%61;v=1/d%2Fe"), "both readings are free");
}
