//! Whatever a worker says first in an intercepted tunnel, something definite becomes of it.

use std::{io::Write as _, net::TcpStream};

use super::{intercepted, localhost, secure};
use crate::support::{
    Andante, Client, Upstream, eventually, rejected,
    tls::{Interceptor, TRUSTED, Worker},
};

const HASTY: &str = "[timeouts]\nhead = \"300ms\"\n";

#[test]
fn a_client_hello_may_come_byte_by_byte() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let bytewise = |socket: &mut TcpStream, hello: &[u8]| {
        socket.set_nodelay(true).unwrap();
        hello.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
    };
    let worker = interceptor.trusting(&target);
    let mut worker = worker.shake(interceptor.tunnel(&target), bytewise).unwrap();
    worker.send(format!("GET /inside HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
    assert_eq!(upstream.request().target(), "/inside");
}

#[test]
fn a_client_hello_may_come_with_the_connect() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let mut client = Client::connect(interceptor.andante.proxy());
    let connect = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    client.send([connect.as_bytes(), &interceptor.trusting(&target).hello()].concat());
    client.opened();
    // A handshake record: the ServerHello.
    assert_eq!(client.bytes(3), b"\x16\x03\x03");
}

/// Sends `bytes` into a tunnel, which has to end, and returns the bytes before its end.
fn ends(interceptor: &Interceptor, target: &str, bytes: &[u8]) -> Vec<u8> {
    let mut client = interceptor.tunnel(target);
    client.send(bytes);
    client.rest()
}

#[test]
fn a_hello_that_is_none_is_ended_with_an_alert() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let oversized = [&b"\x16\x03\x01\xff\xff"[..], &[0x41; 70_000]].concat();
    // A handshake message that claims 16 MB, in records of a lawful length.
    let endless = [&b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"[..], &[0; 0x3ffc]].concat().repeat(20);
    for (what, bytes) in [("oversized", oversized), ("endless", endless), ("empty", b"\x16\x03\x01\x00\x00".to_vec())] {
        let said = ends(&interceptor, &target, &bytes);
        assert!(said.is_empty() || said.starts_with(&[21]), "{what}: {said:?}");
    }
    eventually("three failures", || (intercepted(&interceptor.andante, "failed") == 3).then_some(()));
    assert_eq!(upstream.connections(), 0);
    assert_eq!(interceptor.get(&target, "/").text(), "ok");
}

#[test]
fn a_tunnel_in_which_nothing_is_said_ends() {
    let (upstream, interceptor) = (secure(), Interceptor::with_config(HASTY, &["--intercept", "localhost"]));
    interceptor.tunnel(&localhost(&upstream)).closed();
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
}

#[test]
fn who_leaves_in_its_client_hello_has_distrusted_nothing() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let hello = interceptor.trusting(&target).hello();
    for part in [1, 6, hello.len() / 2] {
        let mut client = interceptor.tunnel(&target);
        client.send(&hello[..part]);
        drop(client);
    }
    eventually("three failures", || (intercepted(&interceptor.andante, "failed") == 3).then_some(()));
    assert_eq!(intercepted(&interceptor.andante, "untrusted"), 0);
}

#[test]
fn half_a_client_hello_ends() {
    let (upstream, interceptor) = (secure(), Interceptor::with_config(HASTY, &["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let hello = interceptor.trusting(&target).hello();
    let said = ends(&interceptor, &target, &hello[..hello.len() / 2]);
    assert!(said.is_empty() || said.starts_with(&[21]), "{said:?}");
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
    // A slow client does not count as one without trust.
    assert_eq!(intercepted(&interceptor.andante, "failed"), 1);
    assert_eq!(intercepted(&interceptor.andante, "untrusted"), 0);
}

#[test]
fn a_worker_that_does_not_finish_its_handshake_is_cut_off() {
    let (upstream, interceptor) = (secure(), Interceptor::with_config(HASTY, &["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let said = ends(&interceptor, &target, &interceptor.trusting(&target).hello());
    assert!(said.starts_with(b"\x16\x03\x03"));
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
}

#[test]
fn what_is_neither_tls_nor_http_is_ended_and_the_log_says_so_once() {
    let upstream = Upstream::echo();
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let target = localhost(&upstream);
    for bytes in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\x05\x01\x00", b"get / HTTP/1.1\r\n\r\n", b"\0\0\0\x17ping"] {
        assert_eq!(ends(&interceptor, &target, bytes), b"", "{}", String::from_utf8_lossy(bytes));
    }
    let andante = &interceptor.andante;
    eventually("four strangers", || (intercepted(andante, "stranger") == 4).then_some(()));
    let log = andante.stderr();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("neither TLS nor HTTP/1")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("host=localhost"), "{log}");
    assert!(lines[0].contains("https = \"tunnel\""), "{log}");
    assert_eq!(upstream.connections(), 0, "it was let through");
}

#[test]
fn plain_http_in_an_intercepted_tunnel_is_served() {
    let upstream = Upstream::ok();
    let interceptor = Interceptor::serve(&["--intercept", "127.0.0.1", "--limit", "127.0.0.1=100/s"]);
    let target = upstream.address().to_string();
    let mut client = interceptor.tunnel(&target);
    for path in ["/one", "/two"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.text(), "ok");
        assert!(answer.has("via"), "{answer:?}");
    }
    assert_eq!(intercepted(&interceptor.andante, "plain"), 1);
    assert_eq!(interceptor.andante.status()["lanes"][0]["sent_total"], 2);
    // The tunnel is no way round the policy for another host, either.
    client.send("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n");
    rejected(&client.answer(), 400, "http_request_error", "a host inside that is another than the tunnel's");
}

#[test]
fn a_connect_inside_is_refused() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    for inner in [target.as_str(), "other.test:443"] {
        let mut worker = interceptor.worker(&target);
        worker
            .send(format!("CONNECT {inner} HTTP/1.1\r\nHost: {inner}\r\n\r\nGET / HTTP/1.1\r\nHost: {inner}\r\n\r\n"));
        rejected(&worker.answer(), 400, "http_request_error", inner);
        assert_eq!(worker.end(), b"");
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn without_a_name_in_the_handshake_the_certificate_is_for_the_connect_host() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let mut nameless = interceptor.trusting(&target);
    nameless.sni = false;
    let mut worker = nameless.secure(interceptor.tunnel(&target)).unwrap();
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
    // andante sends the upstream a server name, even if the worker has left it out.
    assert_eq!(upstream.hello().sni.as_deref(), Some("localhost"));
}

#[test]
fn another_name_in_the_handshake_changes_nothing() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "*"]));
    let target = localhost(&upstream);
    let mut other = interceptor.trusting(&target);
    other.name = Some("other.test".to_owned());
    assert!(other.secure(interceptor.tunnel(&target)).is_err(), "it was shown a certificate for the name it said");
    other.blind = true;
    let worker = other.secure(interceptor.tunnel(&target)).unwrap();
    let (_, leaf) = x509_parser::parse_x509_certificate(&worker.certificate).unwrap();
    let names = format!("{:?}", leaf.subject_alternative_name().unwrap().unwrap().value.general_names);
    assert_eq!(names, "[DNSName(\"localhost\")]");
    assert!(upstream.hellos().iter().all(|hello| hello.sni.as_deref() == Some("localhost")));
}

#[test]
fn workers_of_tls_1_2_are_served_and_told_of_as_others_are() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let mut old = interceptor.trusting(&target);
    old.old = true;
    let mut worker = old.secure(interceptor.tunnel(&target)).unwrap();
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
    old.roots = Worker::trusting(TRUSTED.file().as_ref(), &target).roots;
    assert!(old.secure(interceptor.tunnel(&target)).is_err());
    eventually("one who does not trust us", || (intercepted(&interceptor.andante, "untrusted") == 1).then_some(()));
    assert_eq!(intercepted(&interceptor.andante, "tls"), 1);
}

#[test]
fn a_worker_that_goes_away_at_the_sight_of_our_certificate_does_not_trust_us_either() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let mut client = interceptor.tunnel(&target);
    client.send(interceptor.trusting(&target).hello());
    client.bytes(3);
    drop(client);
    let andante = &interceptor.andante;
    eventually("one who does not trust us", || (intercepted(andante, "untrusted") == 1).then_some(()));
    assert!(andante.stderr().contains("it closed the connection"), "{}", andante.stderr());
}

#[test]
fn a_host_that_the_ca_may_not_speak_for_is_refused_and_the_log_says_so_once() {
    let data = tempfile::tempdir().unwrap();
    let (folder, target) = (data.path().to_str().unwrap(), "localhost:1");
    let made = Andante::command().args(["ca", "init", "--only", "other.test", "--data", folder]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    // A host that is named is an error at the start.
    let andante = Andante::serve(&["--intercept", "*", "--data", folder]);
    for _ in 0..2 {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        client.opened();
        client.send(Worker::trusting(&data.path().join("ca.pem"), target).hello());
        assert_eq!(client.rest(), b"");
    }
    eventually("two that failed", || (intercepted(&andante, "failed") == 2).then_some(()));
    let log = andante.stderr();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("may not speak for localhost")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("--only"), "{log}");
}

#[test]
fn who_opens_a_tunnel_and_leaves_leaves_nothing_behind() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    drop(interceptor.tunnel(&target));
    interceptor.tunnel(&target).reset();
    drop(interceptor.worker(&target));
    interceptor.worker(&target).reset();
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
}

#[test]
fn an_intercepted_connect_that_is_wrong_is_refused_as_any_other() {
    let andante: Andante = Interceptor::serve(&["--intercept", "*"]).andante;
    for target in ["a:", "a:0", "a:99999", "u@a:443", "http://a:443/"] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: a:443\r\n\r\n"));
        rejected(&client.answer(), 400, "http_request_error", target);
        client.closed();
    }
}

#[test]
fn a_worker_that_leaves_while_the_api_is_connected_to_is_not_told_to_trust_us() {
    let upstream = Upstream::scripted(|mut connection| drop(connection.rest()));
    let interceptor = Interceptor::with_config("[timeouts]\nconnect = \"300ms\"\n", &["--intercept", "localhost"]);
    let target = localhost(&upstream);
    let mut client = interceptor.tunnel(&target);
    client.send(interceptor.trusting(&target).hello());
    eventually("a connection to the API", || (upstream.connections() == 1).then_some(()));
    drop(client);
    let status = interceptor.andante.wait_for(|status| status["incidents"][0]["total"] == 1);
    assert_eq!(status["incidents"][0]["kind"], "left_early", "{status:#}");
    assert_eq!(status["interceptions"]["untrusted"], 0);
}

/// The first contact takes no permit, so nothing else would bound it.
#[test]
fn first_contact_with_an_api_is_one_connection_however_many_workers_ask() {
    let silent = Upstream::scripted(|mut connection| {
        let _ = connection.rest();
    });
    let config = "[timeouts]\nconnect = \"4s\"\n";
    let interceptor = Interceptor::with_config(config, &["--intercept", "localhost", "--threads", "1"]);
    let target = localhost(&silent);
    let hello = interceptor.trusting(&target).hello();
    let mut workers: Vec<_> = (0..100)
        .map(|_| {
            let mut worker = interceptor.tunnel(&target);
            worker.send(&hello);
            worker
        })
        .collect();
    // Each is answered: a handshake that does not depend on the API.
    for worker in &mut workers {
        assert_eq!(worker.bytes(3), b"\x16\x03\x03");
    }
    assert_eq!(silent.connections(), 1);
}
