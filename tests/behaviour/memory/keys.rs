//! Names and keys that requests make up.

use std::{io::Write as _, net::TcpStream, thread, time::Duration};

use super::{MAX_MEMORY, withstands};
use crate::support::{
    Andante, Client, Upstream, alone,
    h2::{Frames, kind},
    rejected,
};

/// Sends `count` GETs on HTTP/2 connections, 500 at a time, with these `fields` of each, and waits for all answers.
fn get_many(andante: &Andante, count: usize, fields: impl Fn(usize) -> Vec<(&'static str, String)>) {
    let stream = TcpStream::connect(andante.proxy()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut frames = Frames::client(stream, &[(4, 1 << 20)]);
    frames.send(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    let (mut sent, mut ended) = (0, 0);
    while ended < count {
        while sent < count && sent - ended < 500 {
            let fields = fields(sent);
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            frames.headers(2 * sent as u32 + 1, &fields, true);
            sent += 1;
        }
        let frame = frames.next().expect("the connection stays");
        ended += usize::from(frame.stream > 0 && (frame.ends() || frame.kind == kind::RST_STREAM));
    }
}

fn get(authority: &str, more: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", "/")];
    fields.map(|(name, value)| (name, value.to_owned())).into_iter().chain(more).collect()
}

/// A rule whose budgets remember a request for a day, and one without limits for the rest.
fn by_tenant(host: &str) -> String {
    format!(
        "{MAX_MEMORY}[[rule]]\nhost = \"{host}\"\n[[rule]]\nhost = \"{host}\"\nkey = [\"header:x-tenant\"]\n\
         limits = [\"1/day\"]\nmax-wait = \"0s\"\n"
    )
}

#[test]
fn keyed_budgets_are_bounded_and_the_oldest_is_forgotten_first() {
    let _alone = alone();
    let (upstream, beside) = (Upstream::ok(), Upstream::ok());
    let host = upstream.address().to_string();
    let andante = Andante::with_config(&by_tenant(&host));
    withstands(&andante, &beside, || {
        get_many(&andante, 40_000, |number| get(&host, vec![("x-tenant", number.to_string())]));
    });
    let budgets =
        || andante.status()["lanes"].as_array().unwrap().iter().find_map(|lane| lane["rules"][0]["budgets"].as_u64());
    assert_eq!(budgets(), Some(32_768), "an eighth of 256 MiB, at 1 KiB each");
    let ask = |tenant: usize| {
        let request = format!("GET {} HTTP/1.1\r\nHost: {host}\r\nX-Tenant: {tenant}\r\n\r\n", upstream.url("/"));
        Client::ask(andante.proxy(), request)
    };
    for late in [39_999, 39_000, 20_000] {
        rejected(&ask(late), 429, "http_request_denied", "its one request of the day is gone");
    }
    assert_eq!(ask(0).status(), 200, "the oldest begins anew");
}

#[test]
fn host_names_that_requests_make_up_stay_below_the_bound() {
    let _alone = alone();
    let (upstream, beside) = (Upstream::ok(), Upstream::ok());
    let rule = "[[rule]]\nhost = \"*.made-up.test\"\nresolve = \"127.0.0.1\"\nlimits = [\"100/day\"]\n";
    let andante = Andante::with_config(&format!("{MAX_MEMORY}{rule}"));
    let port = upstream.address().port();
    withstands(&andante, &beside, || {
        get_many(&andante, 6000, |number| get(&format!("h{number}.made-up.test:{port}"), Vec::new()));
    });
    let lanes = andante.status()["lanes_total"].as_u64().unwrap();
    assert!(lanes <= 3000, "{lanes} lanes");
}

#[test]
fn readers_of_status_that_do_not_read_stay_below_the_bound() {
    let _alone = alone();
    let (upstream, beside) = (Upstream::ok(), Upstream::ok());
    let rule = "[[rule]]\nhost = \"*.made-up.test\"\nresolve = \"127.0.0.1\"\nlimits = [\"100/day\"]\n";
    let andante = Andante::with_config(&format!("{MAX_MEMORY}{rule}"));
    let port = upstream.address().port();
    get_many(&andante, 1500, |number| get(&format!("h{number}.made-up.test:{port}"), Vec::new()));
    let pid = andante.pid().as_raw_nonzero();
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let before = threads();
    withstands(&andante, &beside, || {
        let ask = |_| {
            let mut stream = TcpStream::connect(andante.admin()).unwrap();
            let _ = stream.write_all(b"GET /status?limit=100000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
            stream
        };
        // 300 clients leave at once, and 60 do not read.
        (0..300).for_each(|number| drop(ask(number)));
        let _unread: Vec<_> = (0..60).map(ask).collect();
        thread::park_timeout(Duration::from_secs(2));
        assert!(threads() <= before + 4, "{} threads, {before} before", threads());
    });
    assert_eq!(andante.status()["lanes_total"].as_u64(), Some(1501));
}
