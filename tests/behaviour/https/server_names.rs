//! Tunnels whose client names another host in its TLS handshake than in its CONNECT.

use super::{localhost, secure};
use crate::support::{
    Client, Upstream,
    tls::{Interceptor, TRUSTED, Worker},
};

/// andante with a rule for `a.localhost`.
fn ruled(keys: &str) -> Interceptor {
    Interceptor::with_config(&format!("[[rule]]\nhost = \"a.localhost\"\n{keys}\n"), &[])
}

/// Names `a.localhost` in its handshake, and believes whom `trusting` says.
fn fronting(trusting: &std::path::Path) -> Worker {
    Worker::trusting(trusting, "a.localhost:443")
}

fn own_ca(interceptor: &Interceptor) -> Worker {
    fronting(&interceptor.data().join("ca.pem"))
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn answered(client: &mut Client, request: impl AsRef<[u8]>) -> u16 {
    client.send(request);
    client.answer().status()
}

/// The targets of CONNECT by which the API is reached: its address, and another name.
fn targets(api: &Upstream) -> [String; 2] {
    [api.address().to_string(), localhost(api)]
}

#[test]
fn a_name_whose_rule_refuses_is_refused_at_its_address_and_behind_another_name() {
    let (api, andante) = (secure(), ruled("https = \"refuse\""));
    for target in targets(&api) {
        let shaken = fronting(TRUSTED.file().as_ref()).secure(andante.tunnel(&target));
        assert!(shaken.is_err(), "{target}");
        // A different name passes.
        let other = Worker { name: Some("b.localhost".to_owned()), ..fronting(TRUSTED.file().as_ref()) };
        let mut other = other.secure(andante.tunnel(&target)).expect("the API itself");
        assert_eq!(answered(&mut other, get("b.localhost")), 200);
    }
    assert!(api.hellos().iter().all(|hello| hello.sni.as_deref() == Some("b.localhost")), "{:?}", api.hellos());
    assert!(andante.andante.stderr().contains("closed a tunnel: the rule of the host that its TLS handshake names"));
}

/// OpenSSL passes over an empty record, and Go over an alert: the API would read the name that follows.
#[test]
fn a_handshake_that_cannot_be_read_for_its_name_is_not_passed_on() {
    let (api, andante) = (secure(), ruled("https = \"refuse\"\n[timeouts]\nhead = \"300ms\""));
    for begun in [&b"\x16\x03\x01\x00\x00"[..], b"\x15\x03\x01\x00\x02\x01\x5a", b"\x16\x03\x01\x02\x00\x01\x00"] {
        let mut client = andante.tunnel(&api.address().to_string());
        client.send(begun);
        client.closed();
    }
    assert!(api.hellos().is_empty());
    assert!(andante.andante.stderr().contains("began with no ClientHello that could be read"));
}

/// A ClientHello of version 3.`minor` without any extension but the name of `host`.
fn old_hello(minor: u8, host: &str) -> Vec<u8> {
    let with_length = |content: &[u8]| [&(content.len() as u16).to_be_bytes()[..], content].concat();
    let names = with_length(&[&[0][..], &with_length(host.as_bytes())].concat());
    let extensions = with_length(&[&[0, 0][..], &with_length(&names)].concat());
    let body = [&[3, minor][..], &[7; 32], &[0, 0, 2, 0, 47, 1, 0], &extensions].concat();
    let message = [&[1, 0][..], &with_length(&body)].concat();
    [&[22, 3, minor.min(1)][..], &with_length(&message)].concat()
}

/// TLS 1.0, 1.1, and 1.2 without the signature algorithms that newer clients name.
#[test]
fn a_name_whose_rule_refuses_is_refused_in_old_versions_of_tls() {
    for minor in [1, 2, 3] {
        let (api, andante) = (secure(), ruled("https = \"refuse\""));
        let mut client = andante.tunnel(&api.address().to_string());
        client.send(old_hello(minor, "a.localhost"));
        client.closed();
        let log = andante.andante.stderr();
        assert!(log.contains("closed a tunnel: the rule of the host that its TLS handshake names"), "{minor}: {log}");
    }
}

#[test]
fn a_tunnel_whose_client_says_nothing_for_idle_ends_before_it_names_a_host() {
    let (api, andante) = (secure(), ruled("https = \"refuse\"\n[timeouts]\nidle = \"300ms\""));
    andante.tunnel(&api.address().to_string()).closed();
    assert!(andante.andante.stderr().contains("ended a silent tunnel"));
}

#[test]
fn a_name_whose_rule_refuses_is_refused_in_an_intercepted_tunnel() {
    let rule = "[[rule]]\nhost = \"a.localhost\"\nhttps = \"refuse\"\n";
    let (api, andante) = (secure(), Interceptor::with_config(rule, &["--intercept", "*"]));
    for target in targets(&api) {
        assert!(own_ca(&andante).secure(andante.tunnel(&target)).is_err(), "{target}");
    }
    assert!(api.hellos().is_empty());
}

#[test]
fn a_name_whose_rule_intercepts_is_intercepted_at_its_address() {
    let (api, andante) = (secure(), ruled("https = \"intercept\"\nlimits = \"100/s\""));
    let target = api.address().to_string();
    let mut client = own_ca(&andante).secure(andante.tunnel(&target)).expect("a certificate of andante's");
    let answer = {
        client.send(get(&format!("a.localhost:{}", api.port())));
        client.answer()
    };
    assert!(answer.status() == 200 && answer.has("via"), "{answer:?}");
    assert_eq!(api.hello().sni.as_deref(), Some("a.localhost"), "the API is verified by the name");
    let lanes = andante.andante.status()["lanes"].as_array().unwrap().clone();
    let lane = lanes.iter().find(|lane| lane["host"] == "a.localhost").expect("the lane of the name");
    assert_eq!(lane["sent_total"], 1);
}

#[test]
fn turns_of_a_name_take_the_slots_of_its_lane() {
    let api = secure();
    for target in targets(&api) {
        let andante = ruled("limits = \"1/h\"\nmax-wait = \"500ms\"");
        let mut client = fronting(TRUSTED.file().as_ref()).secure(andante.tunnel(&target)).expect("the API itself");
        assert_eq!(answered(&mut client, get("a.localhost")), 200, "{target}");
        client.send(get("a.localhost"));
        client.cut_off();
    }
    assert_eq!(api.requests().len(), 2);
}

#[test]
fn a_name_that_a_rule_leaves_alone_is_left_alone_at_its_address() {
    let rule = "[[rule]]\nhost = \"a.localhost\"\nhttps = \"tunnel\"\n";
    let (api, andante) = (secure(), Interceptor::with_config(rule, &["--intercept", "*"]));
    let mut client = fronting(TRUSTED.file().as_ref())
        .secure(andante.tunnel(&api.address().to_string()))
        .expect("the API's own certificate");
    assert_eq!(answered(&mut client, get("a.localhost")), 200);
}

#[test]
fn at_an_address_the_server_name_is_the_host_inside() {
    let (api, andante) = (secure(), Interceptor::serve(&["--intercept", "*"]));
    let target = api.address().to_string();
    let worker = || own_ca(&andante).secure(andante.tunnel(&target)).expect("a certificate for the name");
    for host in ["a.localhost", "A.localhost", &format!("a.localhost:{}", api.port())] {
        assert_eq!(answered(&mut worker(), get(host)), 200, "{host}");
        assert_eq!(api.hellos().last().unwrap().sni.as_deref(), Some("a.localhost"));
    }
    for host in ["b.localhost", &target, "a.localhost:443"] {
        assert_eq!(answered(&mut worker(), get(host)), 400, "{host}");
    }
    // Without a name the address is the host, as ever.
    assert_eq!(andante.get(&target, "/").status(), 200);
}

#[test]
fn inside_of_a_tunnel_the_port_and_in_http_1_0_the_host_may_be_left_out() {
    let (api, andante) = (secure(), Interceptor::serve(&["--intercept", "*"]));
    let target = localhost(&api);
    assert_eq!(answered(&mut andante.worker(&target), get("localhost")), 200);
    assert_eq!(api.request().field("host").as_deref(), Some("localhost"), "as the client wrote it");
    assert_eq!(answered(&mut andante.worker(&target), "GET / HTTP/1.0\r\n\r\n"), 200);
    assert_eq!(api.requests()[1].field("host").as_deref(), Some(&*target));
    assert_eq!(answered(&mut andante.worker(&target), "GET / HTTP/1.1\r\n\r\n"), 400);
    // A URL without a port means port 443.
    assert_eq!(
        answered(&mut andante.worker(&target), "GET https://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        400
    );
}

/// Each of two tunnels has in its handshake the name in the other's CONNECT. Each lane lets one turn in flight.
#[test]
fn turns_of_tunnels_that_draw_on_crossing_lanes_do_not_wait_for_each_other() {
    let api = secure();
    let rule = |host: &str| format!("[[rule]]\nhost = \"{host}\"\nlimits = \"in-flight 1\"\n");
    let andante = Interceptor::with_config(&(rule("a.localhost") + &rule("localhost")), &[]);
    let by_name = |connect: &str, name: &str| {
        let worker = Worker { name: Some(name.to_owned()), ..fronting(TRUSTED.file().as_ref()) };
        worker.secure(andante.tunnel(&format!("{connect}:{}", api.port()))).expect("the API itself")
    };
    std::thread::scope(|scope| {
        for (connect, name) in [("localhost", "a.localhost"), ("a.localhost", "localhost")] {
            scope.spawn(move || {
                for _ in 0..20 {
                    // The end of the tunnel takes the turn out of flight.
                    assert_eq!(answered(&mut by_name(connect, name), get(name)), 200, "{connect} {name}");
                }
            });
        }
    });
    assert_eq!(api.requests().len(), 40);
}

/// An encrypted ClientHello (ECH) shows the public name of the API's provider alone, for which there is no rule.
#[test]
fn handshake_that_shows_a_name_without_a_rule_goes_by_its_connect() {
    let rule = "[[rule]]\nhost = \"localhost\"\nlimits = \"1/h\"\nmax-wait = \"500ms\"\n";
    let (api, andante) = (secure(), Interceptor::with_config(rule, &[]));
    let worker = Worker { name: Some("b.localhost".to_owned()), ..fronting(TRUSTED.file().as_ref()) };
    let mut client = worker.secure(andante.tunnel(&localhost(&api))).expect("the API itself");
    assert_eq!(answered(&mut client, get("b.localhost")), 200);
    client.send(get("b.localhost"));
    client.cut_off();
    assert_eq!(api.requests().len(), 1);
}
