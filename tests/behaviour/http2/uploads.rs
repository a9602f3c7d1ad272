//! Uploads by HTTP/2 that an API does not read, whether it has answered them or not.

use std::{
    future::{pending, poll_fn},
    sync::mpsc::{Receiver, channel},
};

use h2::{Reason, server};
use http::Request;

use super::upstreams::andante;
use crate::support::{
    Client, PATIENCE,
    h2::{Client2, Exchange, Upstream2},
    tls::Interceptor,
};

/// An API that allows one stream and reads no upload. `POST /whole` gets all of an answer, and other uploads get half
/// of one. Then the API reports how the stream was reset. All other requests get `ok`.
fn unread() -> (Upstream2, Receiver<Reason>) {
    let (reset, resets) = channel();
    let settings = server::Builder::new().max_concurrent_streams(1).clone();
    let upstream = Upstream2::with(settings, move |mut exchange| {
        let reset = reset.clone();
        async move {
            if exchange.request.line().starts_with("GET") {
                return exchange.answer(200, &[], "ok");
            }
            let whole = exchange.request.target().ends_with("/whole");
            let Some(mut sending) = exchange.head(200, &[], false) else { return };
            let _ = Exchange::push(&mut sending, "done", whole).await;
            if let Ok(reason) = poll_fn(|cx| sending.poll_reset(cx)).await {
                let _ = reset.send(reason);
            }
            // The upload stays unread.
            pending::<()>().await;
            drop(exchange);
        }
    });
    (upstream, resets)
}

/// A worker that has begun an upload too large for the stream's window.
fn upload(andante: &Interceptor, upstream: &Upstream2, path: &str) -> Client {
    let mut worker = Client::connect(andante.andante.proxy());
    let head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", upstream.url(path), upstream.address());
    worker.send(format!("{head}Content-Length: 10000000\r\n\r\n"));
    worker.send(vec![b'x'; 200_000]);
    worker
}

#[test]
fn upload_that_goes_on_after_its_answer_counts_as_a_stream() {
    let (upstream, _resets) = unread();
    let andante = andante(upstream.address().port(), "");
    let mut worker = upload(&andante, &upstream, "/whole");
    assert_eq!(worker.answer().text(), "done");
    for _ in 0..2 {
        assert_eq!(Client::get(andante.andante.proxy(), &upstream.url("/")).text(), "ok");
    }
    assert_eq!(upstream.connections(), 2, "the API allows one stream on each");
}

#[test]
fn upload_that_is_not_read_after_its_answer_is_reset_after_idle() {
    let (upstream, resets) = unread();
    let andante = andante(upstream.address().port(), "[timeouts]\nidle = \"500ms\"");
    let mut worker = upload(&andante, &upstream, "/whole");
    assert_eq!(worker.answer().text(), "done");
    assert_eq!(resets.recv_timeout(PATIENCE), Ok(Reason::CANCEL));
}

#[test]
fn upload_is_reset_when_its_worker_leaves_in_the_middle_of_the_answer() {
    let (upstream, resets) = unread();
    let andante = andante(upstream.address().port(), "");
    let mut worker = Client2::connect(andante.andante.proxy());
    let mut asked = worker.begin(Request::post(upstream.url("/half")));
    asked.push(vec![b'x'; 100_000], false);
    let mut answer = asked.head();
    assert_eq!(answer.next().unwrap().unwrap(), "done");
    drop(answer);
    assert_eq!(resets.recv_timeout(PATIENCE), Ok(Reason::CANCEL));
}
