//! Memory of a waiting request.

use std::{io::Write as _, net::TcpStream};

use andante_scoreboard::Scoreboard;

use crate::{
    lifecycle::memory,
    support::{Andante, Client, Upstream, alone},
};

/// Requests that wait before the counted ones: they fill what is allocated once.
const WARM: usize = 1000;
/// Counted requests.
const COUNTED: usize = 4000;

/// Connections of which each has one waiting request.
fn wait(andante: &Andante, upstream: &Upstream, requests: usize) -> Vec<TcpStream> {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: python-requests/2.32.3\r\nAccept: */*\r\n\
         Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\r\n",
        upstream.url("/"),
        upstream.address()
    );
    let held = (0..requests).map(|_| {
        let mut stream = TcpStream::connect(andante.proxy()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    });
    held.collect()
}

#[test]
fn a_waiting_request_holds_as_little_memory_as_committed() {
    let _alone = alone();
    let upstream = Upstream::ok();
    let rule = format!(
        "threads = 1\n[[rule]]\nhost = \"{}\"\nlimits = [\"1/h\"]\nmax-wait = \"20000h\"\n",
        upstream.address()
    );
    let andante = Andante::with_config(&rule);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let resident = |waiting: usize| {
        andante.wait_for(|status| status["lanes"][0]["waiting"] == waiting);
        memory(&andante, "VmRSS:")
    };
    let _first = wait(&andante, &upstream, WARM);
    let before = resident(WARM);
    let _others = wait(&andante, &upstream, COUNTED);
    let bytes = resident(WARM + COUNTED) - before;
    let mut board = Scoreboard::of("a_waiting_request_holds_as_little_memory_as_committed");
    board.add("KiB of a waiting HTTP/1 request with its connection", bytes as f64 / 1024.0 / COUNTED as f64);
    board.judge();
}
