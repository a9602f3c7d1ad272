//! Parent proxies. andante authenticates to the parent, and to no other server.

use std::net::SocketAddr;

use super::server;
use crate::support::{
    Client, Connection, DeadPort, Message, Upstream, rejected,
    tls::{Interceptor, Server, TRUSTED, Worker},
};

/// `user:pa:ss`, where a URL writes the colon as `%3A`.
const BASIC: &str = "Basic dXNlcjpwYTpzcw==";
const PASSWORD: &str = "pa:ss";

/// A parent proxy that is also the server at the end of its tunnels, for any target.
fn http_parent() -> Upstream {
    let tls = server(&["http/1.1"]);
    Upstream::scripted(move |mut connection| {
        let Some(request) = connection.head() else { return };
        if request.line().starts_with("CONNECT ") {
            connection.send("HTTP/1.1 200 Connection established\r\n\r\n");
            secured(connection, &tls);
        } else {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            connection.ok();
        }
    })
}

fn secured(connection: Connection, tls: &Server) {
    if let Some(connection) = connection.secured(tls) {
        connection.ok();
    }
}

fn via(scheme: &str, parent: SocketAddr) -> String {
    format!("[[rule]]\nhost = \"*\"\nvia = \"{scheme}://user:pa%3Ass@{parent}\"\n")
}

#[test]
fn an_http_parent_is_asked_for_a_tunnel_to_https_with_its_password() {
    let parent = http_parent();
    let interceptor = Interceptor::with_config(&via("http", parent.address()), &["--intercept", "*"]);
    // andante need not resolve the name itself.
    assert_eq!(interceptor.get("a.localhost:443", "/inside").text(), "ok");
    let [connect, inside] = &parent.requests()[..] else { panic!("{:?}", parent.requests()) };
    assert_eq!(connect.line(), "CONNECT a.localhost:443 HTTP/1.1");
    assert_eq!(connect.field("host").as_deref(), Some("a.localhost:443"));
    assert_eq!(connect.field("proxy-authorization").as_deref(), Some(BASIC));
    assert_eq!(inside.line(), "GET /inside HTTP/1.1");
    assert!(!inside.has("proxy-authorization"), "{inside:?}");
    assert_eq!(parent.hello().sni.as_deref(), Some("a.localhost"));
}

#[test]
fn an_http_parent_is_sent_plain_requests_in_the_absolute_form_with_its_password() {
    let parent = http_parent();
    let interceptor = Interceptor::with_config(&via("http", parent.address()), &[]);
    let mut client = Client::connect(interceptor.andante.proxy());
    for path in ["/one?a=b", "/two"] {
        client.send(format!(
            "GET http://api.test{path} HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: Basic bm90aGluZw==\r\n\r\n"
        ));
        assert_eq!(client.answer().text(), "ok");
    }
    for (request, path) in parent.requests().iter().zip(["/one?a=b", "/two"]) {
        assert_eq!(request.line(), format!("GET http://api.test{path} HTTP/1.1"));
        assert_eq!(request.field("host").as_deref(), Some("api.test"));
        assert_eq!(request.field("proxy-authorization").as_deref(), Some(BASIC), "not the worker's own");
    }
    assert_eq!(parent.connections(), 1, "kept");
}

#[test]
fn a_blind_tunnel_goes_through_the_parent_too() {
    let parent = http_parent();
    let interceptor = Interceptor::with_config(&via("http", parent.address()), &[]);
    let target = "a.localhost:443";
    let own = Worker::trusting(TRUSTED.file().as_ref(), target);
    let mut worker = own.secure(interceptor.tunnel(target)).expect("the upstream's own certificate");
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
    assert_eq!(parent.requests()[0].field("proxy-authorization").as_deref(), Some(BASIC));
    assert!(!parent.requests()[1].has("via"));
}

#[test]
fn the_password_is_for_the_parent_and_not_for_what_its_tunnels_lead_to() {
    let (seen, inside) = std::sync::mpsc::channel();
    let seen = parking_lot::Mutex::new(seen);
    let parent = Upstream::scripted(move |mut connection| {
        let Some(request) = connection.head() else { return };
        if request.line().starts_with("CONNECT ") {
            connection.send("HTTP/1.1 200 Connection established\r\n\r\n");
            if let Some(request) = connection.head() {
                seen.lock().send(request).unwrap();
            }
        }
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    // A limit makes andante look into the tunnel.
    let config = format!("{}limits = [\"100/s\"]\n", via("http", parent.address()));
    let interceptor = Interceptor::with_config(&config, &[]);
    let get = "GET /inside HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for at_once in [true, false] {
        let mut client = Client::connect(interceptor.andante.proxy());
        let connect = "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n";
        client.send(if at_once { [connect, get].concat() } else { connect.to_owned() });
        client.opened();
        if !at_once {
            client.send(get);
        }
        let answer = client.answer();
        assert_eq!(answer.text(), "ok");
        assert!(answer.has("via"), "it was paced, and not passed unseen: {answer:?}");
    }
    for request in inside.try_iter() {
        assert!(!request.has("proxy-authorization"), "{request:?}");
    }
}

/// RFC 1928 with the log-in of RFC 1929. Each message is recorded as a request of its own.
fn socks_parent(accepts: bool) -> Upstream {
    let tls = server(&["http/1.1"]);
    Upstream::scripted(move |mut connection| {
        let said = (|| {
            assert_eq!(connection.bytes(2)?, [5, 2]);
            assert!(connection.bytes(2)?.contains(&2));
            connection.send([5, 2]);
            let user = counted(&mut connection, 1)?;
            let password = counted(&mut connection, 0)?;
            connection.send([1, u8::from(!accepts)]);
            assert_eq!(connection.bytes(4)?, [5, 1, 0, 3]);
            let host = counted(&mut connection, 0)?;
            let port = connection.bytes(2)?;
            std::io::Result::Ok(format!("{user}:{password} {host}:{}", u16::from_be_bytes([port[0], port[1]])))
        })();
        let Ok(said) = said else { return };
        connection.remember(Message { head: said.into_bytes(), ..Message::default() });
        connection.send([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        secured(connection, &tls);
    })
}

fn counted(connection: &mut Connection, skip: usize) -> std::io::Result<String> {
    connection.bytes(skip)?;
    let length = connection.bytes(1)?[0];
    Ok(String::from_utf8(connection.bytes(length.into())?).unwrap())
}

#[test]
fn a_socks_parent_is_told_name_and_password_and_resolves() {
    let parent = socks_parent(true);
    let interceptor = Interceptor::with_config(&via("socks5", parent.address()), &["--intercept", "*"]);
    assert_eq!(interceptor.get("a.localhost:443", "/inside").text(), "ok");
    let said = parent.requests();
    assert_eq!(said[0].line(), format!("user:{PASSWORD} a.localhost:443"));
    assert_eq!(said[1].line(), "GET /inside HTTP/1.1");
}

/// A request through a refusing parent is 502. The answer names the parent, but not the parent's words.
fn parent_refuses(scheme: &str, parent: &Upstream, words: &str) {
    let toml = via(scheme, parent.address());
    let interceptor = Interceptor::with_config(&toml, &["--intercept", "intercepted.localhost"]);
    let inside = interceptor.get("intercepted.localhost:443", "/");
    let mut blind = Client::connect(interceptor.andante.proxy());
    blind.send("CONNECT blind.localhost:443 HTTP/1.1\r\nHost: blind.localhost:443\r\n\r\n");
    let blind = blind.answer();
    for (answer, origin) in [(inside, "intercepted.localhost:443"), (blind, "blind.localhost:443")] {
        rejected(&answer, 502, "destination_unavailable", origin);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        let named = format!("the parent proxy {scheme}://{} did not connect to {origin}", parent.address());
        assert!(detail.contains(&named) && detail.contains(words), "{detail}");
        let whole = format!("{answer:?}");
        assert!(!whole.contains(PASSWORD) && !whole.contains("pa%3Ass") && !whole.contains(BASIC), "{whole}");
    }
}

#[test]
fn a_parent_that_refuses_is_named_without_its_password() {
    let wants = Upstream::once(
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
    );
    parent_refuses("http", &wants, "did not accept the user name and password");
    parent_refuses("http", &Upstream::once("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"), "403 Forbidden");
    parent_refuses("http", &Upstream::once("SSH-2.0-OpenSSH\r\n"), "does not answer as an HTTP proxy does");
    parent_refuses("socks5", &socks_parent(false), "did not accept the user name and password");
    parent_refuses(
        "socks5",
        &Upstream::scripted(|mut connection| _ = connection.bytes(1)),
        "the connection to it broke",
    );
}

#[test]
fn a_parent_that_wants_another_password_is_502_for_plain_requests_too_and_the_worker_is_asked_for_none() {
    const WANTS: &str = "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n";
    let parent = Upstream::always(WANTS);
    let knowing = via("http", parent.address());
    let nameless = knowing.replace("user:pa%3Ass@", "");
    for (toml, words) in [(knowing, "did not accept the user name and password"), (nameless, "`via` has none")] {
        let interceptor = Interceptor::with_config(&toml, &[]);
        let answer = Client::get(interceptor.andante.proxy(), "http://api.test/");
        rejected(&answer, 502, "destination_unavailable", words);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        let named = format!("the parent proxy http://{} did not connect to api.test:80", parent.address());
        assert!(detail.contains(&named) && detail.contains(words), "{detail}");
        assert!(!answer.has("proxy-authenticate") && !answer.text().contains(PASSWORD), "{answer:?}");
    }
    // A refusal of the upstream itself passes unchanged.
    let direct = Client::get(Interceptor::serve(&[]).andante.proxy(), &parent.url("/"));
    assert_eq!(direct.status(), 407);
}

#[test]
fn a_parent_that_is_not_there_is_named() {
    let gone = DeadPort::reserve();
    let address = gone.address();
    let rule = via("http", address);
    let interceptor = Interceptor::with_config(&rule, &["--intercept", "*"]);
    for answer in
        [interceptor.get("a.localhost:443", "/"), Client::get(interceptor.andante.proxy(), "http://api.test/")]
    {
        rejected(&answer, 502, "connection_refused", "a dead parent");
        assert!(answer.text().contains(&format!("http://{address}")), "{answer:?}");
        assert!(!answer.text().contains(PASSWORD), "{answer:?}");
    }
}
