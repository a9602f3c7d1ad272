//! TLS towards upstreams: andante refuses a peer of another identity with a helpful reason, and sends it nothing.

use rcgen::{SerialNumber, date_time_ymd};

use super::{localhost, secure, server};
use crate::support::{
    Client, Message, Upstream, rejected,
    tls::{Authority, Interceptor, Leaf, Server, TRUSTED},
};

/// The answer to a worker whose upstream shows `leaf`.
fn told(leaf: &Leaf, toml: &str) -> (Upstream, Message) {
    let upstream = Upstream::secure_ok(Server::new(leaf, &["http/1.1"]));
    let interceptor = Interceptor::with_config(toml, &["--intercept", "localhost"]);
    let answer = interceptor.get(&localhost(&upstream), "/");
    (upstream, answer)
}

/// The answer is a 502 because of the certificate, which says all of `words`; the request was never sent.
fn refused(leaf: &Leaf, toml: &str, words: &[&str]) {
    let (upstream, answer) = told(leaf, toml);
    rejected(&answer, 502, "tls_certificate_error", words[0]);
    let problem = answer.json();
    assert_eq!(problem["blame"], "upstream");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("the certificate of {}", localhost(&upstream))), "{detail}");
    let text = answer.text();
    words.iter().for_each(|word| assert!(text.contains(word), "no {word:?}: {text}"));
    assert!(upstream.requests().is_empty(), "it was sent all the same");
}

#[test]
fn a_certificate_that_has_expired_is_refused() {
    let leaf = TRUSTED.sign(&["localhost"], |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 2, 3);
    });
    refused(&leaf, "", &["expired on 2021-02-03", "clock"]);
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_refused() {
    let leaf = TRUSTED.sign(&["localhost"], |params| {
        params.not_before = date_time_ymd(2090, 1, 2);
        params.not_after = date_time_ymd(2091, 1, 1);
    });
    refused(&leaf, "", &["valid only from 2090-01-02", "clock"]);
}

#[test]
fn a_certificate_that_nobody_has_signed_is_refused() {
    refused(&Leaf::self_signed(&["localhost"]), "", &["signed by itself", "--upstream-ca"]);
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let leaf = TRUSTED.leaf(&["other.test", "*.other.test"]);
    refused(&leaf, "", &["is not for \\\"localhost\\\" but for other.test, *.other.test", "`sni`"]);
}

#[test]
fn a_certificate_of_an_authority_that_is_not_trusted_is_refused() {
    let revoked = Authority::new("revoked");
    refused(&revoked.leaf(&["localhost"]), "", &["\\\"revoked authority of tests\\\", which is not trusted here"]);
}

#[test]
fn a_certificate_that_has_been_revoked_is_refused() {
    let list = TRUSTED.revoking(7);
    let toml = format!("upstream-crl = [\"{}\"]\n", list.path().display());
    let numbered =
        |number: u64| TRUSTED.sign(&["localhost"], |params| params.serial_number = Some(SerialNumber::from(number)));
    refused(&numbered(7), &toml, &["has been revoked"]);
    assert_eq!(told(&numbered(8), &toml).1.text(), "ok");
    assert_eq!(told(&numbered(7), "").1.text(), "ok", "nobody has said that it was");
}

#[test]
fn an_upstream_that_speaks_no_tls_on_its_port_is_told_to() {
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let upstream = Upstream::scripted(|mut connection| {
        let _ = connection.bytes(1);
        connection.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let _ = connection.rest();
    });
    let answer = interceptor.get(&localhost(&upstream), "/");
    rejected(&answer, 502, "tls_protocol_error", "HTTP on a TLS port");
    assert!(answer.text().contains("does not speak TLS on this port"), "{answer:?}");
    let closing = Upstream::scripted(|mut connection| _ = connection.bytes(1));
    let answer = interceptor.get(&localhost(&closing), "/");
    rejected(&answer, 502, "tls_protocol_error", "closes");
}

#[test]
fn an_upstream_that_speaks_tls_where_http_was_asked_for_is_told_to() {
    let upstream = secure();
    let interceptor = Interceptor::serve(&[]);
    let answer = Client::get(interceptor.andante.proxy(), &format!("http://{}/", localhost(&upstream)));
    rejected(&answer, 502, "http_protocol_error", "TLS on a plain port");
    assert!(upstream.requests().is_empty());
}

#[test]
fn an_upstream_that_accepts_and_never_shakes_hands_is_504() {
    let upstream = Upstream::scripted(|mut connection| _ = connection.rest());
    let interceptor = Interceptor::with_config("[timeouts]\nconnect = \"300ms\"\n", &["--intercept", "localhost"]);
    let answer = interceptor.get(&localhost(&upstream), "/");
    rejected(&answer, 504, "connection_timeout", "silence");
}

#[test]
fn an_upstream_that_wants_a_client_certificate_gets_the_one_of_its_rule() {
    let clients = Authority::new("clients");
    let server = Server::for_clients_of(&TRUSTED.leaf(&["localhost"]), &clients);
    let upstream = Upstream::secure_ok(server);
    let target = localhost(&upstream);

    let none = Interceptor::serve(&["--intercept", "localhost"]).get(&target, "/");
    rejected(&none, 502, "tls_alert_received", "no certificate");
    assert!(none.text().contains("certificate_required") && none.text().contains("`client-cert`"), "{none:?}");

    let with = |leaf: &Leaf| {
        let file = leaf.file();
        let rule = format!("[[rule]]\nhost = \"localhost\"\nclient-cert = \"{}\"\n", file.path().display());
        Interceptor::with_config(&rule, &["--intercept", "localhost"]).get(&target, "/")
    };
    assert_eq!(with(&clients.leaf(&["worker.test"])).text(), "ok");
    let strange = with(&Authority::new("strange").leaf(&["worker.test"]));
    rejected(&strange, 502, "tls_alert_received", "another's certificate");
    assert!(strange.text().contains("does not accept our client certificate"), "{strange:?}");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn the_name_of_a_rule_is_asked_for_and_verified_in_place_of_the_hosts() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["other.test"]), &["http/1.1"]));
    let rule = "[[rule]]\nhost = \"localhost\"\nsni = \"other.test\"\n";
    let interceptor = Interceptor::with_config(rule, &["--intercept", "localhost"]);
    let target = localhost(&upstream);
    assert_eq!(interceptor.get(&target, "/").text(), "ok");
    assert_eq!(upstream.hello().sni.as_deref(), Some("other.test"));
    assert_eq!(upstream.request().field("host"), Some(target));
    let plain = secure();
    rejected(&interceptor.get(&localhost(&plain), "/"), 502, "tls_certificate_error", "a certificate for localhost");
}

#[test]
fn an_upstream_at_an_address_is_verified_by_its_address() {
    let upstream = secure();
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    assert_eq!(interceptor.get(&upstream.address().to_string(), "/").text(), "ok");
    assert_eq!(upstream.hello().sni, None, "RFC 6066 §3: no address");
    let other = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]));
    let answer = interceptor.get(&other.address().to_string(), "/");
    rejected(&answer, 502, "tls_certificate_error", "a certificate without the address");
}

#[test]
fn what_a_worker_asks_for_by_http_leaves_as_https_where_a_rule_says_so() {
    let upstream = secure();
    let rule = "[[rule]]\nhost = \"localhost\"\nupstream = \"https\"\nlimits = [\"100/s\"]\n";
    let interceptor = Interceptor::with_config(rule, &[]);
    let target = localhost(&upstream);
    let answer = Client::get(interceptor.andante.proxy(), &format!("http://{target}/path"));
    assert_eq!(answer.text(), "ok");
    let request = upstream.request();
    assert_eq!((request.target().as_str(), request.field("host")), ("/path", Some(target.clone())));
    assert_eq!(interceptor.andante.status()["lanes"][0]["sent_total"], 1);
    let bad = Upstream::secure_ok(Server::new(&Leaf::self_signed(&["localhost"]), &["http/1.1"]));
    let answer = Client::get(interceptor.andante.proxy(), &format!("http://{}/", localhost(&bad)));
    rejected(&answer, 502, "tls_certificate_error", "never in the clear instead");
}

#[test]
fn connections_to_an_upstream_are_kept_and_shared_by_workers() {
    let upstream = Upstream::secure_ok(server(&["http/1.1"]));
    let interceptor = Interceptor::serve(&["--intercept", "localhost", "--threads", "1"]);
    for _ in 0..4 {
        assert_eq!(interceptor.get(&localhost(&upstream), "/").text(), "ok");
    }
    assert_eq!(upstream.connections(), 1);
}
