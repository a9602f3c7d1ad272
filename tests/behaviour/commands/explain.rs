//! `andante explain`: its predictions come true.

use std::{collections::HashMap, net::Ipv4Addr, time::Duration};

use andante::clock::{Clock, Instant};
use fastrand::Rng;
use serde_json::{Value, json};

use super::{andante, file, outcome};
use crate::{
    lifecycle::pass,
    support::{Andante, Client, Message, Name, NameServer, Upstream},
};

/// A request that comes so soon after a refusal counts as another worker's, and not as a client that asks again.
const ANOTHER: Duration = Duration::from_millis(500);
/// Between a question and the request less time than this passes.
const SHORTLY: Duration = Duration::from_millis(150);

/// The answer of a running andante to a question about a request.
fn explained(andante: &Andante, question: &Value) -> Value {
    let answer = asked(andante, question);
    assert_eq!(answer.status(), 200, "{question}: {answer:?}");
    answer.json()
}

fn asked(andante: &Andante, question: &Value) -> Message {
    let (at, body) = (andante.admin(), question.to_string());
    let head = format!(
        "POST /api/v1/explain HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Client::ask(at, head + &body)
}

/// A random request, in the words of HTTP and as a question.
struct Drawn {
    method: &'static str,
    url: String,
    host: String,
    fields: Vec<String>,
}

// === impl Drawn ===

impl Drawn {
    fn new(rng: &mut Rng, port: u16) -> Self {
        let host = format!("{}:{port}", any(rng, &["a.test", "A.test", "b.test", "c.a.test", "d.test"]));
        let path = any(rng, &["/", "/search", "/v1/acme/x", "/v1/zeta/x", "/v1/%61cme/y", "/a/../search", "/free"]);
        let query = any(rng, &["", "?k=1", "?k=2&x"]);
        let mut fields = vec!["Prefer: wait=0".to_owned()];
        for (name, values) in [
            ("X-Batch", &["1", "2"][..]),
            ("Authorization", &["Bearer one-s3cret", "Bearer two-s3cret"]),
            ("Andante-Flow", &["live", "batch"]),
            ("Andante-Cost", &["2", "5"]),
        ] {
            if rng.u8(..3) == 0 {
                fields.push(format!("{name}: {}", any(rng, values)));
            }
        }
        Self {
            method: any(rng, &["GET", "GET", "POST", "DELETE"]),
            url: format!("http://{host}{path}{query}"),
            host,
            fields,
        }
    }

    fn question(&self) -> Value {
        json!({ "url": self.url, "method": self.method, "headers": self.fields })
    }

    fn send(&self, andante: &Andante) -> Message {
        let Self { method, url, host, fields } = self;
        let fields = fields.join("\r\n");
        let head = format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n\r\n");
        let mut client = Client::connect(andante.proxy());
        client.send(head);
        client.answer()
    }
}

fn any<'a, T: ?Sized>(rng: &mut Rng, among: &[&'a T]) -> &'a T {
    among[rng.usize(..among.len())]
}

/// Random rules for the hosts of [`Drawn`].
fn rules(rng: &mut Rng, port: u16) -> String {
    let hosts = [
        "a.test".to_owned(),
        "*.test".into(),
        "*".into(),
        format!("a.test:{port}"),
        "*.a.test".into(),
        "b.test".into(),
    ];
    let mut toml = String::new();
    for (at, host) in hosts.iter().enumerate() {
        if rng.bool() {
            let limit = rng.u32(2..9);
            toml += &format!("[[rule]]\nname = 'own{at}'\nhost = '{host}'\nlimits = '{limit}/h burst {limit}'\n");
        }
    }
    for at in 0..rng.u32(..5) {
        let limit = rng.u32(1..6);
        let host = &hosts[rng.usize(..hosts.len())];
        toml += &format!("[[rule]]\nname = 'added{at}'\nhost = '{host}'\nlimits = '{limit}/h burst {limit}'\n");
        let path = any(rng, &["", "/search", "/v1/{tenant}/*", "/*"]);
        let keys = [
            "",
            "['host', 'header:authorization']",
            "['host', 'method', 'query:k']",
            "['host', 'flow']",
            "['host', 'client', 'header:x-batch']",
        ];
        let key = if path.contains("tenant") && rng.bool() { "['host', 'path:tenant']" } else { any(rng, &keys) };
        let header = any(rng, &["", "", "x-batch", "authorization"]);
        let method = any(rng, &["", "", "'POST'", "['GET', 'DELETE']"]);
        // A rule needs at least one of them.
        let path =
            if path.is_empty() && key.is_empty() && header.is_empty() && method.is_empty() { "/*" } else { path };
        for (name, value) in [("path", format!("'{path}'")), ("header", format!("'{header}'"))] {
            if value != "''" {
                toml += &format!("{name} = {value}\n");
            }
        }
        for (name, value) in [("key", key), ("method", method)] {
            if !value.is_empty() {
                toml += &format!("{name} = {value}\n");
            }
        }
        if rng.u8(..4) == 0 {
            toml += "only = true\n";
        }
    }
    toml
}

/// How often requests were sent and refused, lane by lane.
fn lanes(andante: &Andante) -> HashMap<(String, String), (u64, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let status = andante.status();
    let lanes = status["lanes"].as_array().unwrap().iter();
    lanes
        .map(|lane| {
            let count = |name: &str| lane[name].as_u64().unwrap();
            ((text(&lane["rule"]), text(&lane["host"])), (count("sent_total"), count("refused_total")))
        })
        .collect()
}

/// Number of requests that drew on each rule for some requests.
fn draws(andante: &Andante) -> HashMap<String, u64> {
    let metrics = andante.metrics();
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("andante_draws_total{rule=\""));
    lines.filter_map(|line| line.split_once("\"} ")).map(|(rule, n)| (rule.to_owned(), n.parse().unwrap())).collect()
}

/// The names of the rules that are for the request.
fn matching(explained: &Value) -> Vec<&str> {
    let rules = explained["rules"].as_array().unwrap().iter();
    rules.filter(|rule| rule["mismatch"].is_null()).map(|rule| rule["rule"].as_str().unwrap()).collect()
}

#[test]
fn what_it_says_is_what_then_happens() {
    let names = NameServer::start(|_| Name::At(vec![Ipv4Addr::LOCALHOST]));
    let upstream = Upstream::ok();
    let port = upstream.address().port();
    let (mut sent, mut refused, mut rejected) = (0, 0, 0);
    let clock = Clock::start();
    // Twenty of 50 requests, and more if some are cut short.
    for seed in 0..60 {
        if sent + refused + rejected >= 1000 {
            break;
        }
        let mut rng = Rng::with_seed(seed);
        let toml = format!("dns = '{}'\n{}", names.address(), rules(&mut rng, port));
        let (config, andante_now) = (file(&toml), Andante::with_config(&toml));
        // Granted units of each budget, by the budget's name.
        let mut given: HashMap<String, u64> = HashMap::new();
        // Instants of refusals. Within half a second after a refusal another request counts as another worker's, and
        // later as the client that asks again (docs/limits.md). That half second must not end between the question and
        // the request.
        let mut told: Vec<Instant> = Vec::new();
        for turn in 0..50 {
            let request = Drawn::new(&mut rng, port);
            let what = format!("seed {seed}: {} {} {:?}\n{toml}", request.method, request.url, request.fields);
            let (lanes_before, draws_before) = (lanes(&andante_now), draws(&andante_now));
            while told.iter().any(|at| (ANOTHER - SHORTLY..ANOTHER).contains(&clock.now().since(*at))) {
                pass(SHORTLY);
            }
            let asked_at = clock.now();
            let said = explained(&andante_now, &request.question());
            assert!(!said.to_string().contains("s3cret"), "{said}");
            assert_eq!((&lanes(&andante_now), &draws(&andante_now)), (&lanes_before, &draws_before), "a trace: {what}");
            for rule in said["rules"].as_array().unwrap().iter().filter(|rule| !rule["budget"].is_null()) {
                let budget = format!("{} {} {}", said["lane"]["host"], rule["rule"], rule["budget"]);
                assert_eq!(rule["limits"][0]["used"].as_u64(), Some(*given.get(&budget).unwrap_or(&0)), "{what}");
            }
            let answer = request.send(&andante_now);
            // On a busy machine the half second may have ended meanwhile: then either result is right, and later
            // results are unknown.
            let is_over = |at: &Instant, now: Instant| now.since(*at) >= ANOTHER;
            if told.iter().any(|at| !is_over(at, asked_at) && is_over(at, clock.now())) {
                break;
            }
            let name = |of: &str| said["lane"][of].as_str().unwrap().to_owned();
            let lane = (name("rule"), name("host"));
            let (sent_before, refused_before) = lanes_before.get(&lane).copied().unwrap_or_default();
            let now = lanes(&andante_now);
            let after = now.get(&lane).copied().unwrap_or_default();
            match said["now"]["decision"].as_str().unwrap() {
                "sent" => {
                    assert_eq!((answer.status(), after), (200, (sent_before + 1, refused_before)), "{what}{said:#}");
                    sent += 1;
                    let cost: u64 = said["cost"].as_str().unwrap().strip_prefix("requests=").unwrap().parse().unwrap();
                    for rule in said["rules"].as_array().unwrap().iter().filter(|rule| !rule["budget"].is_null()) {
                        let budget = format!("{} {} {}", said["lane"]["host"], rule["rule"], rule["budget"]);
                        *given.entry(budget).or_default() += cost;
                    }
                }
                "refused" => {
                    assert_eq!((answer.status(), after), (429, (sent_before, refused_before + 1)), "{what}{said:#}");
                    let after: f64 = answer.field("retry-after").unwrap().parse().unwrap();
                    let expected = said["now"]["retry_after_s"].as_f64().unwrap();
                    assert!((after - expected).abs() <= 2.0, "{after} s instead of {expected} s: {what}");
                    told.push(clock.now());
                    refused += 1;
                }
                "rejected" => {
                    assert_eq!(Some(u64::from(answer.status())), said["now"]["status"].as_u64(), "{what}{said:#}");
                    assert_eq!(after, (sent_before, refused_before), "{what}{said:#}");
                    rejected += 1;
                }
                other => panic!("nobody waits here: {other}: {what}"),
            }
            // All other lanes are unchanged, and new lanes are unused.
            let others = now.iter().filter(|(other, _)| **other != lane);
            others.for_each(|(other, stats)| assert_eq!(lanes_before.get(other), Some(stats), "{other:?}: {what}"));
            if said["now"]["decision"] != "rejected" {
                let mut grown: Vec<_> = draws(&andante_now).into_iter().collect();
                grown.retain(|(rule, count)| draws_before.get(rule).copied().unwrap_or(0) != *count);
                let mut grown: Vec<_> = grown.iter().map(|(rule, _)| rule.as_str()).collect();
                let mut matching = matching(&said);
                grown.sort_unstable();
                matching.sort_unstable();
                assert_eq!(grown, matching, "{what}{said:#}");
            }
            if turn % 25 == 0 {
                let fields = request.fields.iter().flat_map(|field| ["-H", field]);
                let mut args = vec!["explain", "-X", request.method, &request.url, "--json", "--config"];
                args.push(config.path().to_str().unwrap());
                args.extend(fields);
                let (code, stdout, stderr) = outcome(andante(&args));
                assert_eq!(code, Some(0), "{stderr}");
                let cold: Value = serde_json::from_str(&stdout).unwrap();
                assert_eq!((&cold["seen"], &cold["lane"]["rule"]), (&said["seen"], &said["lane"]["rule"]), "{what}");
                assert_eq!(matching(&cold), matching(&said), "{what}");
            }
        }
    }
    eprintln!("{sent} sent, {refused} refused, {rejected} rejected");
    assert!(sent + refused + rejected >= 1000);
    assert!(sent > 200 && refused > 200 && rejected > 10, "{sent} {refused} {rejected}");
}

#[test]
fn what_becomes_of_a_tunnel_is_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::ok();
    let port = upstream.address().port();
    let data = folder.path().display();
    for (rule, list, handling) in [
        ("limits = '9/s'\n", "", "turns"),
        ("max-wait = '9s'\n", "", "tunnel"),
        ("limits = '9/s'\nhttps = 'tunnel'\n", "", "tunnel"),
        ("https = 'refuse'\n", "", "refuse"),
        ("https = 'intercept'\n", "", "intercept"),
        ("", "intercept = '*'\n", "intercept"),
        ("https = 'tunnel'\n", "intercept = '*'\n", "tunnel"),
        ("https = 'refuse'\n", "intercept = '*'\n", "refuse"),
    ] {
        let toml = format!("data = '{data}'\n{list}[[rule]]\nhost = '127.0.0.1'\n{rule}");
        let andante = Andante::with_config(&toml);
        let said = explained(&andante, &json!({ "url": format!("https://127.0.0.1:{port}/x") }));
        assert_eq!(said["https"]["handling"], handling, "{toml}{said:#}");
        assert_eq!(said["https"]["seen"], handling == "intercept", "{toml}");
        assert!(!said["https"]["because"].as_str().unwrap().is_empty());
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
        match handling {
            "refuse" => assert_eq!(client.answer().status(), 403, "{toml}"),
            _ => drop(client.opened()),
        }
        // Only a tunnel that is to take a slot of a limit holds one: turns and intercepted requests take their own. Without
        // limits it holds one until its first bytes, for at most 500 ms.
        let holds = handling == "tunnel" && rule.contains("limits");
        andante
            .wait_for(|status| status["lanes"].as_array().unwrap().iter().any(|lane| lane["in_flight"] == 1) == holds);
    }
}

#[test]
fn it_says_when_a_request_would_leave_and_behind_how_many() {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::serve(&["--limit", &format!("{host}=1/10s")]);
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = Client::connect(andante.proxy());
            client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", upstream.url("/")));
            client
        })
        .collect();
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 2);
    let question = json!({ "url": upstream.url("/") });
    let said = explained(&andante, &question);
    // The first request left at once, two wait 10 s and 20 s: the next waits 30 s from the first on.
    let leaves = said["now"]["leaves_in_s"].as_f64().unwrap();
    assert!((25.0..=30.5).contains(&leaves), "{said:#}");
    assert_eq!((&said["now"]["decision"], &said["now"]["ahead"]), (&"waits".into(), &2.into()), "{said:#}");
    assert_eq!(andante.status()["lanes"][0]["waiting"], 2, "asking is not waiting");
    let admin = format!("http://{}/", andante.admin());
    let (code, stdout, stderr) = super::outcome(super::andante(&["explain", &upstream.url("/"), "--admin", &admin]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("it would wait for ") && stdout.contains("behind 2 others"), "{stdout}");
    assert!(stdout.contains("1/10s (configured; 1 used, 0 left)"), "{stdout}");
    drop(clients);
}

#[test]
fn what_is_no_question_is_wrong_usage_and_nobody_there_a_failure() {
    for (args, code, words) in [
        (&["explain", "api.test/x"][..], 2, "hint: write https://api.test/x"),
        (&["explain", "http://a.test/", "-X", "G T"], 2, "hint: write GET"),
        (&["explain", "http://a.test/", "-H", "Authorization Bearer hunter2"], 2, "hint: write 'Name: value'"),
        (&["explain", "http://a.test/", "--limit", "a=1 per s"], 2, "hint: write 1/s"),
        (&["explain", "http://a.test/", "--admin", "http://127.0.0.1:1"], 1, "http://127.0.0.1:1/api/v1/explain"),
        (&["explain"], 2, "URL"),
    ] {
        let (found, stdout, stderr) = outcome(andante(args));
        assert_eq!((found, stdout.as_str()), (Some(code), ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(words), "{args:?}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}

#[test]
fn a_configuration_alone_says_what_the_first_request_would_find() {
    let config = file(
        "[[rule]]\nname = 'api'\nhost = 'api.test'\nlimits = ['500/min', 'in-flight 20']\nhttps = 'intercept'\n\
         [[rule]]\nname = 'search'\nhost = 'api.test'\nmethod = 'POST'\npath = '/search'\nkey = 'header:authorization'\n\
         limits = '30/min'\n",
    );
    let path = config.path().to_str().unwrap();
    let url = "https://api.test/search?q=s3cret";
    let args = ["explain", "-X", "POST", url, "-H", "Authorization: Bearer s3cret", "--config", path];
    let (code, stdout, stderr) = outcome(andante(&args));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for words in [
        "POST https://api.test/search\n",
        "intercept, seen inside: its rule says so",
        "500/min",
        "in-flight   20",
        "and         search: ",
        "header:authorization #",
        "30/min",
        "now         it would leave at once\n",
    ] {
        assert!(stdout.contains(words), "{words}\n{stdout}");
    }
    assert!(!stdout.contains("s3cret"), "{stdout}");
    let (_, by_config, _) = outcome(andante(&["explain", "https://api.test/", "--config", path]));
    assert!(by_config.contains("not         search: it is for other methods\n"), "{by_config}");
}

/// As `status` and all others that ask; what a flag says of a configuration goes before the variable.
#[test]
fn variable_names_the_andante_that_is_asked_unless_a_configuration_is_named() {
    let andante_now = Andante::serve(&["--limit", "api.test=7/h"]);
    let config = file("[[rule]]\nhost = 'api.test'\nlimits = '9/h'\n");
    let path = config.path().to_str().unwrap();
    let admin = andante_now.admin().to_string();
    for (flags, variable, limit) in [
        (&[][..], &*admin, "7/h"),
        (&["--config", path], &*admin, "9/h"),
        (&["--limit", "api.test=8/h"], &*admin, "8/h"),
        (&["--config", path], "off", "9/h"),
    ] {
        let mut command = andante(&[&["explain", "http://api.test/", "--json"], flags].concat());
        command.env("ANDANTE_ADMIN", variable).env("ANDANTE_ADMIN_TOKEN", "/nowhere");
        if variable != "off" && flags.is_empty() {
            command.env_remove("ANDANTE_ADMIN_TOKEN");
        }
        let (code, stdout, stderr) = outcome(command);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{flags:?}: {stdout}");
        assert!(stdout.contains(limit), "{flags:?}: {stdout}");
    }
}
