//! NTLM and Negotiate log in a connection and not a request (RFC 4559 §6): the connection that a worker has logged in
//! is not shared with others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Andante, Client, Connection, Message, Upstream, eventually,
    h2::Client2,
    pause,
    tls::{Interceptor, Server, TRUSTED},
};

fn answer(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

/// A server like IIS. Its challenge is valid only on the connection on which it was given. A client that has met the
/// challenge is not asked again there. Adds `fields` to answers to a known user.
fn login(scheme: &'static str, fields: &'static str) -> impl Fn(Connection) + Send + Sync + 'static {
    let connections = Arc::new(AtomicUsize::new(0));
    move |mut connection| {
        let number = connections.fetch_add(1, Ordering::AcqRel);
        let (mut user, mut challenges) = (None::<String>, 0);
        while let Some(request) = connection.request() {
            let said = request.field("authorization").unwrap_or_default();
            let words: Vec<_> = said.split_whitespace().collect();
            let unknown = match (&words[..], &user) {
                ([_, "one"], _) => {
                    challenges += 1;
                    let challenge = format!("WWW-Authenticate: {scheme} {number}.{challenges}\r\n");
                    answer("401 Unauthorized", &challenge, "")
                }
                ([_, "three", name, challenge], _) if *challenge == format!("{number}.{challenges}") => {
                    user = Some((*name).to_owned());
                    String::new()
                }
                (_, Some(_)) => String::new(),
                _ => answer("401 Unauthorized", &format!("WWW-Authenticate: Basic realm=\"a\", {scheme}\r\n"), ""),
            };
            connection.send(match &user {
                Some(user) if unknown.is_empty() => answer("200 OK", fields, &format!("you are {user}")),
                _ => unknown,
            });
        }
    }
}

/// A worker's connection, and the form of its request targets.
struct Worker {
    client: Client,
    base: String,
    host: String,
}

impl Worker {
    fn plain(proxy: std::net::SocketAddr, upstream: &Upstream) -> Self {
        Self { client: Client::connect(proxy), base: upstream.url(""), host: upstream.address().to_string() }
    }

    fn ask(&mut self, request: &str, fields: &str) -> Message {
        let (method, path) = request.split_once(' ').unwrap();
        let Self { client, base, host } = self;
        client.send(format!("{method} {base}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{fields}\r\n"));
        client.answer()
    }

    fn get(&mut self, fields: &str) -> Message {
        self.ask("GET /", fields)
    }

    fn challenge(&mut self, scheme: &str) -> String {
        let answer = self.get(&format!("Authorization: {scheme} one\r\n"));
        assert_eq!(answer.status(), 401, "{answer:?}");
        answer.field("www-authenticate").unwrap().split_once(' ').unwrap().1.to_owned()
    }

    fn meet(&mut self, scheme: &str, name: &str, challenge: &str) -> Message {
        self.get(&format!("Authorization: {scheme} three {name} {challenge}\r\n"))
    }

    fn log_in(&mut self, scheme: &str, name: &str) {
        let challenge = self.challenge(scheme);
        assert_eq!(self.meet(scheme, name, &challenge).text(), format!("you are {name}"));
    }
}

/// Alice logs in and stays logged in, other workers are challenged, and four concurrent logins all succeed.
fn kept_apart(worker: impl Fn() -> Worker) {
    let mut alice = worker();
    alice.log_in("NTLM", "alice");
    for _ in 0..6 {
        assert_eq!(worker().get("").status(), 401);
        assert_eq!(alice.get("").text(), "you are alice");
    }
    let mut four: Vec<_> = (0..4).map(|_| worker()).collect();
    let challenges: Vec<_> = four.iter_mut().map(|worker| worker.challenge("NTLM")).collect();
    for (number, (worker, challenge)) in four.iter_mut().zip(&challenges).enumerate() {
        let name = format!("user{number}");
        assert_eq!(worker.meet("NTLM", &name, challenge).text(), format!("you are {name}"));
    }
    drop((alice, four));
    for _ in 0..6 {
        assert_eq!(worker().get("").status(), 401, "they have left, and what they had logged in with them");
    }
}

#[test]
fn login_of_a_connection_is_its_workers_alone() {
    let (andante, upstream) = (Andante::serve(&["--threads", "1"]), Upstream::scripted(login("NTLM", "")));
    kept_apart(|| Worker::plain(andante.proxy(), &upstream));
}

#[test]
fn login_of_a_connection_is_its_workers_alone_by_gateway_and_under_interception() {
    let upstream = Upstream::secure(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]), login("NTLM", ""));
    let andante = Interceptor::serve(&["--threads", "1", "--intercept", "localhost"]);
    let (proxy, target) = (andante.andante.proxy(), format!("localhost:{}", upstream.address().port()));
    let base = format!("/https://{target}");
    kept_apart(|| Worker { client: Client::connect(proxy), base: base.clone(), host: proxy.to_string() });
    kept_apart(|| Worker { client: andante.worker(&target), base: String::new(), host: target.clone() });
}

#[test]
fn login_is_kept_apart_however_its_scheme_is_written() {
    for scheme in ["ntlm", "Negotiate", "nEGOTIATE"] {
        let (andante, upstream) = (Andante::serve(&["--threads", "1"]), Upstream::scripted(login(scheme, "")));
        let worker = || Worker::plain(andante.proxy(), &upstream);
        let mut alice = worker();
        alice.log_in(scheme, "alice");
        assert_eq!(worker().get("").status(), 401, "{scheme}");
    }
}

#[test]
fn connection_on_which_a_login_was_offered_goes_to_nobody_else() {
    for offer in
        ["WWW-Authenticate: NTLM\r\n", "WWW-Authenticate: Basic realm=\"a\"\r\nwww-authenticate: negotiate\r\n"]
    {
        let upstream = Upstream::always(answer("401 Unauthorized", offer, ""));
        let andante = Andante::serve(&["--threads", "1"]);
        let mut workers: Vec<_> = (0..3).map(|_| Worker::plain(andante.proxy(), &upstream)).collect();
        for _ in 0..2 {
            workers.iter_mut().for_each(|worker| assert_eq!(worker.get("").status(), 401));
        }
        assert_eq!(upstream.connections(), 3, "{offer}");
    }
}

#[test]
fn other_schemes_share_connections() {
    let upstream =
        Upstream::always(answer("401 Unauthorized", "WWW-Authenticate: Digest realm=\"NTLM\", nonce=\"n\"\r\n", ""));
    let andante = Andante::serve(&["--threads", "1"]);
    for fields in ["", "Authorization: Digest username=\"negotiate\"\r\n", "Authorization: Bearer ntlm\r\n"] {
        Worker::plain(andante.proxy(), &upstream).get(fields);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn logged_in_connection_closes_with_the_workers() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::scripted(login("NTLM", "")));
    let mut alice = Worker::plain(andante.proxy(), &upstream);
    alice.log_in("NTLM", "alice");
    assert_eq!((upstream.connections(), upstream.ended()), (1, 0));
    drop(alice);
    eventually("the end of the connection", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn answers_to_a_worker_that_has_logged_in_are_shared_with_nobody() {
    let upstream = Upstream::scripted(login("NTLM", "Cache-Control: public, max-age=60\r\n"));
    let rule = "cache = \"64KiB\"\ncoalesce = true\nidempotency-keys = \"1m\"";
    let andante = Andante::with_config(&format!("threads = 1\n[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address()));
    let mut alice = Worker::plain(andante.proxy(), &upstream);
    alice.log_in("NTLM", "alice");
    let key = "Idempotency-Key: 1\r\n";
    assert_eq!(alice.get("").text(), "you are alice");
    assert_eq!(alice.ask("POST /", key).text(), "you are alice");
    let mut bob = Worker::plain(andante.proxy(), &upstream);
    assert_eq!((bob.get("").status(), bob.ask("POST /", key).status()), (401, 401));
    bob.log_in("NTLM", "bob");
    assert_eq!((bob.get("").text(), alice.get("").text()), ("you are bob".to_owned(), "you are alice".to_owned()));
}

/// A call that came before its worker has logged in, and is sent after the login.
#[test]
fn call_that_is_shared_is_not_sent_on_a_logged_in_connection() {
    let upstream = Upstream::scripted(login("NTLM", ""));
    let config =
        format!("threads = 1\n[[rule]]\nhost = \"{}\"\ncoalesce = true\nlimits = [\"1/s\"]", upstream.address());
    let andante = Andante::with_config(&config);
    let mut alice = Client2::connect(andante.proxy());
    let mut ask = |path: &str, said: Option<&str>| {
        let request = http::Request::get(upstream.url(path));
        let said = said.map(|said| request.header("authorization", said));
        alice.send(said.unwrap_or_else(|| http::Request::get(upstream.url(path))))
    };
    let challenge = ask("/", Some("NTLM one")).answer().field("www-authenticate").unwrap();
    let challenge = challenge.split_once(' ').unwrap().1.to_owned();
    let last = ask("/", Some(&format!("NTLM three alice {challenge}")));
    let shared = ask("/shared", None);
    assert_eq!(last.answer().text(), "you are alice");
    drop(shared.answer());
    pause(Duration::from_millis(10));
    assert_eq!(Worker::plain(andante.proxy(), &upstream).ask("GET /shared", "").status(), 401);
}

/// A login in HTTP/2 would be refused with HTTP_1_1_REQUIRED.
#[test]
fn login_is_sent_by_http1_to_an_api_that_speaks_http2_too() {
    let upstream = Upstream::secure(Server::new(&TRUSTED.leaf(&["localhost"]), &["h2", "http/1.1"]), login("NTLM", ""));
    let andante = Interceptor::serve(&["--threads", "1"]);
    let (proxy, port) = (andante.andante.proxy(), upstream.address().port());
    let (client, base) = (Client::connect(proxy), format!("/https://localhost:{port}"));
    Worker { client, base, host: proxy.to_string() }.log_in("NTLM", "alice");
    assert_eq!(upstream.hello().alpn, ["http/1.1"]);
}

#[test]
fn worker_of_http2_logs_in_once_for_its_connection() {
    let (andante, upstream) = (Andante::serve(&["--threads", "1"]), Upstream::scripted(login("NTLM", "")));
    let mut alice = Client2::connect(andante.proxy());
    let mut ask = |said: &str| alice.send(http::Request::get(upstream.url("/")).header("authorization", said)).answer();
    let challenge = ask("NTLM one").field("www-authenticate").unwrap();
    let said = format!("NTLM three alice {}", challenge.split_once(' ').unwrap().1);
    assert_eq!(ask(&said).text(), "you are alice");
    assert_eq!(ask("NTLM x").text(), "you are alice");
    assert_eq!(Worker::plain(andante.proxy(), &upstream).get("").status(), 401);
}
