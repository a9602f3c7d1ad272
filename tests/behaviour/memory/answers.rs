//! Answers that nobody reads.

use std::{io::Write as _, net::TcpStream};

use super::{MAX_MEMORY, withstands};
use crate::support::{Andante, Client, Upstream};

/// An upstream whose answers have a body of 7 MiB and may be stored, with the head of each answer in `head`.
fn large(head: &str) -> Upstream {
    let answer = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{}", 7 << 20, "x".repeat(7 << 20));
    Upstream::always(answer)
}

#[test]
fn stored_answers_that_workers_do_not_read_stay_below_the_bound() {
    let (upstream, beside) = (large("Cache-Control: max-age=600\r\n"), Upstream::ok());
    let rule = format!("[[rule]]\nhost = \"{}\"\ncache = \"64MiB\"\n", upstream.address());
    let andante = Andante::with_config(&format!("{MAX_MEMORY}{rule}"));
    withstands(&andante, &beside, || {
        let unread = (0..60).map(|number| {
            let url = upstream.url(&format!("/{number}"));
            assert_eq!(Client::get(andante.proxy(), &url).body.len(), 7 << 20);
            let mut stream = TcpStream::connect(andante.proxy()).unwrap();
            let request = format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.address());
            stream.write_all(request.as_bytes()).unwrap();
            stream
        });
        let _unread: Vec<_> = unread.collect();
    });
    // Who reads gets all of it, stored or not.
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/0")).body.len(), 7 << 20);
}
