//! Secrets are in no log at any level, on no page, and in no answer of andante's own.

use std::fs;

use super::{localhost, secure};
use crate::support::{
    Client, Message, Upstream, rejected,
    tls::{Interceptor, Leaf, Server},
};

/// Secrets that must not be visible: as sent, and as written in the configuration.
const SECRETS: [&str; 7] =
    ["tok-31337", "cookie-31337", "c2VjcmV0LTMxMzM3", "secret-31337", "secret%2d31337", "query-31337", "BEGIN PRIVATE"];

fn request(target: &str) -> String {
    format!(
        "POST /path?key=query-31337 HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer tok-31337\r\n\
         Cookie: session=cookie-31337\r\nProxy-Authorization: Basic c2VjcmV0LTMxMzM3\r\nX-Api-Key: tok-31337\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

#[test]
fn credentials_are_in_no_log_on_no_page_and_in_no_answer() {
    let good = secure();
    let bad = Upstream::secure_ok(Server::new(&Leaf::self_signed(&["localhost"]), &["http/1.1"]));
    let torn = Upstream::once("HTTP/1.1 200 OK\r\nContent-Length: x\r\nSet-Cookie: a=cookie-31337\r\n\r\n");
    let parent =
        Upstream::once("HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=secret-31337\r\nContent-Length: 0\r\n\r\n");
    let toml = format!(
        "[[rule]]\nhost = \"*.corp\"\nvia = \"http://user:secret%2d31337@{}\"\nlimits = [\"100/s\"]\n",
        parent.address()
    );
    let interceptor = Interceptor::logging("trace", &toml, &["--intercept", "*", "--limit", "localhost=100/s"]);
    let proxy = interceptor.andante.proxy();
    let inside = |target: &str| {
        let mut worker = interceptor.worker(target);
        worker.send(request(target));
        worker.answer()
    };
    let mut answers: Vec<Message> = vec![inside(&localhost(&bad)), inside("api.corp:443")];
    rejected(&answers[0], 502, "tls_certificate_error", "self-signed");
    rejected(&answers[1], 502, "destination_unavailable", "a parent");
    assert_eq!(inside(&localhost(&good)).text(), "ok");
    assert_eq!(good.request().field("authorization").as_deref(), Some("Bearer tok-31337"), "it is sent, of course");

    let asked = |text: String| Client::ask(proxy, text);
    let torn = torn.address();
    answers.push(asked(request("a").replacen("/path", &format!("http://{torn}/path"), 1)));
    answers.push(asked(request("a").replacen("/path", "http://user:secret-31337@a.test/path", 1)));
    answers.push(asked(request("a").replacen("HTTP/1.1", "HTTP/1.1\r\nBad : tok-31337", 1)));
    answers.push(asked("CONNECT user:secret-31337@a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned()));
    let mut other = interceptor.worker(&localhost(&good));
    other.send(request("other.test"));
    answers.push(other.answer());

    let andante = &interceptor.andante;
    let key = fs::read_to_string(interceptor.data().join("ca-key.pem")).unwrap();
    let key = key.lines().nth(1).unwrap();
    let log = andante.stderr();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "nothing was logged: {log}");
    let pages = ["/status", "/metrics", "/"].map(|path| (path.to_owned(), andante.page(path).text()));
    let shown = answers.iter().map(|answer| {
        assert!(answer.status() >= 400, "{answer:?}");
        (answer.line(), format!("{answer:?}"))
    });
    for (place, text) in pages.into_iter().chain(shown).chain([("the log".to_owned(), log)]) {
        for secret in SECRETS.iter().chain([&key]) {
            assert!(!text.contains(secret), "{secret} in {place}: {text}");
        }
    }
}
