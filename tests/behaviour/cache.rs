//! The private cache of a rule (RFC 9111): answers from the cache, validation, and answers that are never stored.

mod validation;

use std::{
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use parking_lot::Mutex;

use crate::support::{Andante, Client, Message, Upstream, rejected};

/// An answer with these `fields` and the body `ok`.
fn answer(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok")
}

/// An andante with a cache and the settings `rule` in its rule for `upstream`.
fn caching(upstream: &Upstream, rule: &str) -> Andante {
    Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\ncache = \"64KiB\"\n{rule}\n", upstream.address()))
}

/// Sends `method` for `path` with `fields`.
fn ask(andante: &Andante, upstream: &Upstream, method: &str, path: &str, fields: &str) -> Message {
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url(path), upstream.address());
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    if method == "HEAD" { client.answer_to_head() } else { client.answer() }
}

fn get(andante: &Andante, upstream: &Upstream, fields: &str) -> Message {
    ask(andante, upstream, "GET", "/item", fields)
}

/// The `Cache-Status` of an answer.
fn handled(answer: &Message) -> String {
    answer.field("cache-status").unwrap_or_default()
}

const MISS: &str = "andante; fwd=miss; stored";
const HIT: &str = "andante; hit";

/// An upstream whose n-th answer has `fields` and n as its body.
fn counting(fields: &'static str) -> Upstream {
    let count = Mutex::new(0);
    Upstream::answering(move |_| {
        let mut count = count.lock();
        *count += 1;
        let body = count.to_string();
        format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
    })
}

#[test]
fn a_fresh_answer_takes_no_slot_and_does_not_wait() {
    let upstream = Upstream::always(answer("Cache-Control: max-age=60\r\nAge: 7\r\nX-Item: 1\r\nX-Item: 2\r\n"));
    let andante = caching(&upstream, "limits = [\"1/h\"]");
    assert_eq!(handled(&get(&andante, &upstream, "")), MISS);
    for _ in 0..100 {
        let answer = get(&andante, &upstream, "");
        assert_eq!((answer.status(), answer.text().as_str(), handled(&answer).as_str()), (200, "ok", HIT));
        assert_eq!(answer.all("x-item"), ["1", "2"]);
        let age: u64 = answer.field("age").unwrap().parse().unwrap();
        assert!((7..30).contains(&age), "{age}");
        assert_eq!(answer.field("server-timing").as_deref(), Some("andante;dur=0"));
    }
    let status = andante.status();
    assert_eq!((&status["lanes"][0]["sent_total"], &status["slots_saved_total"]), (&1.into(), &100.into()));
    let saved = "andante_slots_saved_total{by=\"cached\",";
    assert!(andante.metrics().lines().any(|line| line.starts_with(saved) && line.ends_with(" 100")));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn without_the_key_nothing_is_stored() {
    let upstream = Upstream::always(answer("Cache-Control: max-age=60\r\n"));
    let andante = Andante::serve(&[]);
    for _ in 0..2 {
        assert!(!get(&andante, &upstream, "").has("cache-status"));
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn no_credential_gets_what_another_one_asked_for() {
    let upstream = counting("Cache-Control: public, max-age=60\r\n");
    let andante = caching(&upstream, "");
    let asked =
        ["Authorization: a\r\n", "Authorization: b\r\n", "X-Api-Key: a\r\n", "Cookie: a\r\n", "X-Tenant: a\r\n", ""];
    for turn in 0..2 {
        for (fields, body) in asked.iter().zip(["1", "2", "3", "4", "5", "6"]) {
            let answer = get(&andante, &upstream, fields);
            assert_eq!((handled(&answer).as_str(), answer.text().as_str()), ([MISS, HIT][turn], body), "{fields}");
        }
    }
    // Fields that only name a request do not distinguish requests.
    assert_eq!(handled(&get(&andante, &upstream, "X-Request-Id: 1\r\nAuthorization: a\r\nTraceparent: 2\r\n")), HIT);
}

/// RFC 9111 §4.1.
#[test]
fn what_an_answer_varies_by_tells_requests_apart() {
    let upstream = counting("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n");
    let andante = caching(&upstream, "");
    let text = |fields: &str| get(&andante, &upstream, fields).text();
    let (de, en) = ("Accept-Language: de\r\n", "Accept-Language: en\r\n");
    assert_eq!([text(de), text(en), text(de), text(en), text("")], ["1", "2", "1", "2", "3"]);
    let upstream = counting("Cache-Control: max-age=60\r\nVary: *\r\n");
    let andante = caching(&upstream, "");
    assert_eq!(handled(&get(&andante, &upstream, "")), "andante; fwd=miss");
    assert_eq!(get(&andante, &upstream, "").text(), "2");
}

/// RFC 9111 §5.2.1 and §5.2.2.
#[test]
fn requests_and_answers_say_what_may_not_be_stored_or_used() {
    let upstream = counting("Cache-Control: max-age=60\r\n");
    let andante = caching(&upstream, "");
    assert_eq!(handled(&get(&andante, &upstream, "Cache-Control: no-store\r\n")), "andante; fwd=bypass");
    assert_eq!(handled(&get(&andante, &upstream, "")), MISS);
    assert_eq!(handled(&get(&andante, &upstream, "Cache-Control: no-store\r\n")), "andante; fwd=bypass");
    let answer = get(&andante, &upstream, "Cache-Control: no-cache\r\n");
    assert_eq!(
        (handled(&answer).as_str(), answer.text().as_str()),
        ("andante; fwd=request; fwd-status=200; stored", "4")
    );
    assert_eq!(get(&andante, &upstream, "").text(), "4");
    for fields in ["no-store, max-age=60", "no-cache, max-age=60", "max-age=0", "s-maxage=60", "private"] {
        let upstream = Upstream::always(answer_with("Cache-Control", fields));
        let andante = caching(&upstream, "");
        for _ in 0..2 {
            assert_eq!(handled(&get(&andante, &upstream, "")), "andante; fwd=miss", "{fields}");
        }
    }
}

fn answer_with(name: &str, value: &str) -> String {
    answer(&format!("{name}: {value}\r\n"))
}

/// RFC 9111 §5.2.1.7.
#[test]
fn what_is_not_stored_is_a_504_to_who_wants_only_that() {
    let upstream = Upstream::always(answer("Cache-Control: max-age=60\r\n"));
    let andante = caching(&upstream, "");
    let only = "Cache-Control: only-if-cached\r\n";
    rejected(&get(&andante, &upstream, only), 504, "http_request_denied", "nothing is stored");
    assert_eq!(upstream.requests().len(), 0);
    get(&andante, &upstream, "");
    assert_eq!(handled(&get(&andante, &upstream, only)), HIT);
}

/// RFC 9111 §4.4.
#[test]
fn a_request_that_changes_something_ends_what_is_stored_of_it_for_everybody() {
    let upstream = Upstream::answering(|request| {
        if request.field("x-fail").is_some() {
            return "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        answer("Cache-Control: max-age=60\r\nContent-Location: /other\r\nLocation: /third\r\n")
    });
    let andante = caching(&upstream, "");
    let fill = || {
        for path in ["/item", "/other", "/third", "/fourth"] {
            ask(&andante, &upstream, "GET", path, "Authorization: a\r\n");
        }
    };
    let stored = || {
        ["/item", "/other", "/third", "/fourth"].map(|path| {
            let fields = "Authorization: a\r\nCache-Control: only-if-cached\r\n";
            ask(&andante, &upstream, "GET", path, fields).status() == 200
        })
    };
    fill();
    assert_eq!(stored(), [true; 4]);
    let failed = ask(&andante, &upstream, "DELETE", "/item", "X-Fail: 1\r\nAuthorization: b\r\n");
    assert_eq!((failed.status(), handled(&failed).as_str()), (500, "andante; fwd=method"));
    assert_eq!(stored(), [true; 4]);
    for method in ["DELETE", "POST", "PUT", "M-SEARCH"] {
        fill();
        ask(&andante, &upstream, method, "/item", "Authorization: b\r\nContent-Length: 0\r\n");
        assert_eq!(stored(), [false, false, false, true], "{method}");
    }
}

#[test]
fn an_answer_passes_as_it_comes_while_it_is_stored() {
    let (go, told) = channel::<()>();
    let told: Mutex<Receiver<()>> = Mutex::new(told);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            connection.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
            );
            let _ = told.lock().recv_timeout(Duration::from_secs(20));
            connection.send("6\r\nsecond\r\n0\r\n\r\n");
        }
    });
    let andante = caching(&upstream, "");
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/item"), upstream.address());
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.until("first\r\n");
    go.send(()).unwrap();
    client.until("second\r\n0\r\n\r\n");
    let again = get(&andante, &upstream, "");
    assert_eq!((handled(&again).as_str(), again.text().as_str()), (HIT, "firstsecond"));
    assert_eq!(again.field("content-length").as_deref(), Some("11"));
}

#[test]
fn an_answer_that_breaks_off_is_too_large_or_was_not_read_to_its_end_is_not_stored() {
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n";
    let large = "x".repeat(8 * 1024);
    let upstream = Upstream::scripted(move |mut connection| {
        while let Some(request) = connection.request() {
            match request.target().as_str() {
                "/cut" => {
                    connection.send(format!("{head}Content-Length: 10\r\n\r\n12345"));
                    return;
                }
                "/unsized" => {
                    connection.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"));
                    return;
                }
                "/large" => connection.send(format!("{head}Content-Length: 8192\r\n\r\n{large}")),
                "/long" => {
                    connection.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n2000\r\n{large}\r\n0\r\n\r\n"));
                }
                _ => connection.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n")),
            }
        }
    });
    let andante = caching(&upstream, "");
    for path in ["/cut", "/unsized"] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url(path), upstream.address()));
        client.end();
    }
    for path in ["/large", "/long", "/trailers"] {
        assert_eq!(ask(&andante, &upstream, "GET", path, "").status(), 200, "{path}");
    }
    for path in ["/cut", "/unsized", "/large", "/long", "/trailers"] {
        let stored = ask(&andante, &upstream, "GET", path, "Cache-Control: only-if-cached\r\n");
        assert_eq!(stored.status(), 504, "{path}");
    }
}

#[test]
fn a_head_is_answered_from_what_a_get_has_stored() {
    let upstream = Upstream::always(answer("Cache-Control: max-age=60\r\n"));
    let andante = caching(&upstream, "");
    get(&andante, &upstream, "");
    let head = ask(&andante, &upstream, "HEAD", "/item", "");
    assert_eq!((head.status(), handled(&head).as_str()), (200, HIT));
    assert_eq!(head.field("content-length").as_deref(), Some("2"));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn parts_and_other_preconditions_are_left_to_the_api() {
    let upstream = Upstream::always(answer("Cache-Control: max-age=60\r\nETag: \"1\"\r\n"));
    let andante = caching(&upstream, "");
    get(&andante, &upstream, "");
    let asked = ["Range: bytes=0-0", "If-Match: \"1\"", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"];
    for (count, fields) in asked.iter().enumerate() {
        let answer = get(&andante, &upstream, &format!("{fields}\r\n"));
        assert_eq!(handled(&answer), "andante; fwd=bypass", "{fields}");
        assert_eq!(upstream.requests().len(), count + 2);
    }
}

#[test]
fn identical_requests_share_the_call_that_fills_the_cache() {
    let (go, told) = channel::<()>();
    let told: Mutex<Receiver<()>> = Mutex::new(told);
    let upstream = Upstream::answering(move |_| {
        let _ = told.lock().recv_timeout(Duration::from_secs(20));
        answer("Cache-Control: max-age=60\r\n")
    });
    let andante = caching(&upstream, "coalesce = true");
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(andante.proxy())).collect();
    for client in &mut clients {
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/item"), upstream.address()));
    }
    crate::coalesce::connected(&andante, 5);
    go.send(()).unwrap();
    let mut handled: Vec<String> = clients.iter_mut().map(|client| self::handled(&client.answer())).collect();
    handled.sort();
    // A single request stores the answer.
    let collapsed = handled.iter().filter(|said| said.ends_with("; collapsed")).count();
    let stored = handled.iter().filter(|said| said.contains("stored")).count();
    assert_eq!((collapsed, stored, upstream.requests().len()), (4, 1, 1), "{handled:?}");
    assert_eq!(self::handled(&get(&andante, &upstream, "")), HIT);
}
