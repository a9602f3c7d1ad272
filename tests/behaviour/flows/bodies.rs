//! Large bodies pass interception with the memory of small ones, in both directions.

use bytes::Bytes;
use http::Request;

use crate::{
    lifecycle::memory,
    support::{
        Upstream,
        h2::{Client2, Exchange, Upstream2, next, wait},
        tls::{Interceptor, Server, TRUSTED},
    },
};

const MIB: usize = 1 << 20;
const SIZE: usize = 200 * MIB;

/// Additional memory of andante for a large body each way, over the memory for a small one.
fn grown(andante: &Interceptor, mut exchange: impl FnMut(usize)) -> u64 {
    // One-time allocations happen here.
    exchange(4 * MIB);
    let before = memory(&andante.andante, "VmRSS:");
    exchange(SIZE);
    memory(&andante.andante, "VmHWM:").saturating_sub(before)
}

#[test]
fn large_bodies_pass_interception_at_fixed_memory() {
    let tls = Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["http/1.1"]);
    let upstream = Upstream::secure(tls, |mut connection| {
        let piece = vec![b'x'; MIB];
        while let Some(request) = connection.head() {
            let size: usize = request.target()[1..].parse().unwrap();
            if request.line().starts_with("POST") {
                (0..size / MIB).for_each(|_| drop(connection.bytes(MIB).expect("more of the body")));
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            } else {
                connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"));
                (0..size / MIB).for_each(|_| connection.send(&piece));
            }
        }
    });
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1", "--threads", "1"]);
    let mut client = andante.worker(&target);
    let piece = vec![b'x'; MIB];
    let grown = grown(&andante, |size| {
        client.send(format!("POST /{size} HTTP/1.1\r\nHost: {target}\r\nContent-Length: {size}\r\n\r\n"));
        (0..size / MIB).for_each(|_| client.send(&piece));
        assert_eq!(client.answer().status(), 200);
        client.send(format!("GET /{size} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        client.until("\r\n\r\n");
        (0..size / MIB).for_each(|_| drop(client.bytes(MIB)));
    });
    assert!(grown < 8 << 20, "it took {grown} bytes more");
}

#[test]
fn large_bodies_pass_http2_at_fixed_memory() {
    let upstream = Upstream2::serving(|mut exchange| async move {
        let piece = Bytes::from(vec![b'x'; MIB]);
        let size: usize = exchange.request.target().rsplit('/').next().unwrap().parse().unwrap();
        if exchange.request.line().starts_with("POST") {
            let mut got = 0;
            while let Some(Ok(piece)) = exchange.next().await {
                got += piece.len();
            }
            assert_eq!(got, size);
            return exchange.answer(200, &[], "");
        }
        let mut sending = exchange.start(200, &[], false).unwrap();
        for left in (0..size / MIB).rev() {
            Exchange::push(&mut sending, piece.clone(), left == 0).await.unwrap();
        }
    });
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1", "--threads", "1"]);
    let mut client = Client2::inside(&andante, &target);
    let piece = Bytes::from(vec![b'x'; MIB]);
    let grown = grown(&andante, |size| {
        let mut asked = client.begin(Request::post(format!("https://{target}/{size}")));
        (0..size / MIB).rev().for_each(|left| asked.push(piece.clone(), left == 0));
        assert_eq!(asked.answer().status(), 200);
        let mut body = client.get(&format!("https://{target}/{size}")).head().into_body();
        let mut got = 0;
        while got < size {
            got += wait("more of the body", next(&mut body)).unwrap().unwrap().len();
        }
    });
    assert!(grown < 8 << 20, "it took {grown} bytes more");
}
