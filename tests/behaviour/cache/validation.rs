//! Validation of stale answers (RFC 9111 §4.3), where answers are stored, and for how long.

use rustix::process::Signal;

use super::{HIT, MISS, answer, ask, caching, counting, get, handled};
use crate::support::{
    Andante, Client, Message, Upstream,
    tls::{Interceptor, Server, TRUSTED},
};

/// An upstream with one version, `tag`, and a 304 for workers that have it. Its answers are stale at once, and fresh
/// for a minute after a 304.
fn versioned(tag: &'static str) -> Upstream {
    Upstream::answering(move |request: &Message| {
        if request.field("if-none-match").as_deref() == Some(tag) {
            return format!(
                "HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\nCache-Control: max-age=60\r\nX-New: 1\r\n\r\n"
            );
        }
        answer(&format!("Cache-Control: max-age=60\r\nAge: 60\r\nETag: {tag}\r\n"))
    })
}

#[test]
fn a_stale_answer_is_asked_about_with_a_slot_and_fresh_again_after_a_304() {
    let upstream = versioned("\"a\"");
    let andante = caching(&upstream, "");
    assert_eq!(handled(&get(&andante, &upstream, "")), MISS);
    let validated = get(&andante, &upstream, "");
    assert_eq!((validated.status(), validated.text().as_str()), (200, "ok"));
    assert_eq!(handled(&validated), "andante; fwd=stale; fwd-status=304");
    assert_eq!(validated.field("x-new").as_deref(), Some("1"));
    let again = get(&andante, &upstream, "");
    assert_eq!((handled(&again).as_str(), again.text().as_str()), (HIT, "ok"));
    assert_eq!(again.field("x-new").as_deref(), Some("1"));
    let status = andante.status();
    assert_eq!((&status["lanes"][0]["sent_total"], &status["slots_saved_total"]), (&2.into(), &1.into()));
    assert_eq!(upstream.requests()[1].field("if-none-match").as_deref(), Some("\"a\""));
}

#[test]
fn what_has_changed_takes_the_place_of_what_was_stored() {
    let upstream = counting("Cache-Control: max-age=60\r\nAge: 60\r\nETag: \"a\"\r\n");
    let andante = caching(&upstream, "");
    get(&andante, &upstream, "");
    let new = get(&andante, &upstream, "");
    assert_eq!((handled(&new).as_str(), new.text().as_str()), ("andante; fwd=stale; fwd-status=200; stored", "2"));
    let stale = get(&andante, &upstream, "Cache-Control: max-stale\r\n");
    assert_eq!((handled(&stale).as_str(), stale.text().as_str()), (HIT, "2"));
}

/// RFC 9111 §4.3.2.
#[test]
fn a_worker_that_has_the_answer_is_told_so_without_the_api() {
    let upstream = Upstream::always(answer("Cache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Type: text/x\r\n"));
    let andante = caching(&upstream, "");
    get(&andante, &upstream, "");
    let known = get(&andante, &upstream, "If-None-Match: \"b\", W/\"a\"\r\n");
    assert_eq!((known.status(), handled(&known).as_str(), known.body.len()), (304, HIT, 0));
    assert_eq!((known.field("etag").as_deref(), known.has("content-type")), (Some("\"a\""), false));
    let other = get(&andante, &upstream, "If-None-Match: \"b\"\r\n");
    assert_eq!((other.status(), handled(&other).as_str()), (200, HIT));
    assert_eq!(upstream.requests().len(), 1);
}

/// RFC 9111 §4.3.1: the worker's condition is passed on, and the worker gets the 304.
#[test]
fn a_worker_that_asks_with_what_it_has_gets_the_apis_word() {
    let upstream = versioned("\"a\"");
    let andante = caching(&upstream, "");
    get(&andante, &upstream, "");
    let known = get(&andante, &upstream, "If-None-Match: \"a\"\r\n");
    assert_eq!((known.status(), handled(&known).as_str()), (304, "andante; fwd=stale; fwd-status=304"));
    // The 304 freshened the stored answer all the same.
    assert_eq!(handled(&get(&andante, &upstream, "")), HIT);
    // A 304 for an answer that was never stored stores nothing.
    let upstream = versioned("\"a\"");
    let andante = caching(&upstream, "");
    assert_eq!(get(&andante, &upstream, "If-None-Match: \"a\"\r\n").status(), 304);
    assert_eq!(handled(&get(&andante, &upstream, "")), MISS);
}

#[test]
fn a_rule_may_have_every_use_validated() {
    let upstream = Upstream::answering(|request: &Message| {
        if request.field("if-none-match").is_some() {
            return "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_owned();
        }
        answer("Cache-Control: max-age=3600\r\nETag: \"a\"\r\n")
    });
    let andante = caching(&upstream, "revalidate = \"always\"");
    get(&andante, &upstream, "");
    for count in 2..5 {
        let answer = get(&andante, &upstream, "");
        assert_eq!((handled(&answer).as_str(), answer.text().as_str()), ("andante; fwd=stale; fwd-status=304", "ok"));
        assert_eq!(upstream.requests().len(), count);
    }
}

/// GitHub: "Making a conditional request does not count against your primary rate limit if a 304 response is returned".
#[test]
fn a_304_gives_its_slot_back_where_the_rule_says_that_it_is_free() {
    let upstream = Upstream::answering(|request: &Message| {
        if request.field("if-none-match").is_some() {
            return "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_owned();
        }
        answer("Cache-Control: no-cache\r\nETag: \"a\"\r\n")
    });
    // A slot for the answer and one to ask about it; no third one within the hour.
    let limits = "limits = [\"2/h burst 2\"]\nmax-wait = \"1s\"";
    let andante = caching(&upstream, &format!("{limits}\nnot-modified = \"free\""));
    for _ in 0..10 {
        assert_eq!(get(&andante, &upstream, "").status(), 200);
    }
    assert_eq!(andante.status()["slots_saved_total"], 9);
    let saved = "andante_slots_saved_total{by=\"not-modified\",";
    assert!(andante.metrics().lines().any(|line| line.starts_with(saved) && line.ends_with(" 9")));
    let charged = caching(&upstream, limits);
    assert_eq!([0; 3].map(|_| get(&charged, &upstream, "").status()), [200, 200, 429]);
}

/// RFC 9111 §4.3.3: an error is passed on, and the stored answer stays.
#[test]
fn an_error_of_the_api_is_the_answer_to_a_stale_request() {
    let upstream = Upstream::answering(|request: &Message| {
        if request.field("if-none-match").is_some() {
            return "HTTP/1.1 404 Not Found\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        answer("Cache-Control: max-age=60\r\nAge: 60\r\nETag: \"a\"\r\n")
    });
    let andante = caching(&upstream, "");
    get(&andante, &upstream, "");
    let gone = get(&andante, &upstream, "");
    assert_eq!((gone.status(), handled(&gone).as_str()), (404, "andante; fwd=stale; fwd-status=404"));
    assert_eq!(get(&andante, &upstream, "Cache-Control: max-stale\r\n").text(), "ok");
}

#[test]
fn requests_inside_of_https_are_answered_from_the_cache_too() {
    let upstream = Upstream::secure(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]), |mut connection| {
        while connection.request().is_some() {
            connection.send(answer("Cache-Control: max-age=60\r\n"));
        }
    });
    let target = format!("localhost:{}", upstream.port());
    let rule = "[[rule]]\nhost = \"localhost\"\nlimits = [\"1/h\"]\nhttps = \"intercept\"\ncache = \"1MiB\"\n";
    let interceptor = Interceptor::with_config(rule, &[]);
    assert_eq!(handled(&interceptor.get(&target, "/item")), MISS);
    assert_eq!(handled(&interceptor.get(&target, "/item")), HIT);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_reload_keeps_what_is_stored_until_the_rule_has_no_cache_any_more() {
    let upstream = counting("Cache-Control: max-age=60\r\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("andante.toml");
    let write = |rule: &str| {
        std::fs::write(&file, format!("[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address())).unwrap();
    };
    write("cache = \"1MiB\"");
    let andante = Andante::serve(&["--config", file.to_str().unwrap()]);
    let reload = |rule: &str| {
        let before = andante.status()["config"]["reloads_total"].as_u64().unwrap();
        write(rule);
        andante.signal(Signal::HUP);
        andante.wait_for(|status| status["config"]["reloads_total"] == before + 1);
    };
    let text = || get(&andante, &upstream, "").text();
    assert_eq!((text(), text()), ("1".into(), "1".into()));
    reload("cache = \"1MiB\"\nlimits = [\"100/s\"]");
    assert_eq!(text(), "1");
    reload("limits = [\"100/s\"]");
    assert_eq!((text(), text()), ("2".into(), "3".into()));
    reload("cache = \"1MiB\"");
    assert_eq!((text(), text()), ("4".into(), "4".into()));
    reload("cache = \"2MiB\"");
    assert_eq!((text(), text()), ("5".into(), "5".into()));
}

#[test]
fn a_worker_that_leaves_in_the_middle_leaves_nothing_behind() {
    let upstream = Upstream::scripted(|mut connection| {
        while connection.request().is_some() {
            connection.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
            );
            // Blocks until the connection closes, because nothing reads the answer.
            let _ = connection.rest();
        }
    });
    let andante = caching(&upstream, "");
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/item"), upstream.address()));
    client.until("first\r\n");
    client.reset();
    andante.wait_for(|status| status["connections"]["client"] == 0);
    assert_eq!(ask(&andante, &upstream, "GET", "/item", "Cache-Control: only-if-cached\r\n").status(), 504);
}
