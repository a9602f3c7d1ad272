//! Policies of peers that a connection has to keep: PINGs, empty frames, HTTP/1.1 where it is asked for, and windows.

use std::{sync::Arc, thread, time::Duration};

use h2::Reason;
use parking_lot::Mutex;

use super::{
    streams::frames,
    upstreams::{andante, framed, request},
};
use crate::support::{
    Andante, Client, Upstream, eventually,
    h2::{Client2, Upstream2, kind},
    tls::{Interceptor, Server, TRUSTED},
};

const INITIAL_WINDOW_SIZE: u16 = 4;
const END_HEADERS: u8 = 4;

/// How an upstream says HTTP_1_1_REQUIRED.
#[derive(Clone, Copy, Debug)]
enum Asked {
    ByReset,
    ByGoAway,
}

/// An upstream that agrees to HTTP/2 and then asks for HTTP/1.1, and how often it has.
fn wants_http1(asked: Asked) -> (Upstream, Arc<Mutex<usize>>) {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    let leaf = TRUSTED.leaf(&["127.0.0.1"]);
    let upstream = Upstream::secure(Server::new(&leaf, &["h2", "http/1.1"]), move |mut connection| {
        if !connection.is_http2() {
            while let Some(request) = connection.request() {
                let body = request.text();
                connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            }
            return;
        }
        let Some(mut frames) = connection.frames(&[]) else { return };
        while let Some(stream) = request(&mut frames) {
            *counted.lock() += 1;
            let reason = u32::from(Reason::HTTP_1_1_REQUIRED);
            match asked {
                Asked::ByReset => frames.send(kind::RST_STREAM, 0, stream, &reason.to_be_bytes()),
                Asked::ByGoAway => frames.go_away(0, Reason::HTTP_1_1_REQUIRED),
            }
        }
    });
    (upstream, count)
}

/// RFC 9113 §7: a request that is refused so was not processed, and is sent again by HTTP/1.1, a POST too. Later ones
/// need not be refused first.
#[test]
fn a_host_that_requires_http1_gets_it_and_is_not_asked_by_http2_again() {
    for asked in [Asked::ByReset, Asked::ByGoAway] {
        for retry in ["", "retry = \"off\""] {
            let (upstream, count) = wants_http1(asked);
            let andante = andante(upstream.port(), retry);
            let (up, to) = (upstream.address(), upstream.url("/"));
            let post = format!("POST {to} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 2\r\n\r\nhi");
            let case = format!("{asked:?}, {retry}");
            for round in 1..=3 {
                let answer = Client::ask(andante.andante.proxy(), &post);
                assert_eq!((answer.status(), answer.text().as_str()), (200, "hi"), "{case}, POST {round}: {answer:?}");
                assert_eq!(Client::get(andante.andante.proxy(), &to).status(), 200, "{case}, GET {round}");
            }
            assert_eq!(*count.lock(), 1, "{case}");
        }
    }
}

/// RFC 9113 §6.8: streams above the last stream id were not processed, whatever the reason is.
#[test]
fn a_post_above_the_last_stream_of_a_goaway_goes_elsewhere_whatever_the_reason() {
    for reason in [Reason::ENHANCE_YOUR_CALM, Reason::INTERNAL_ERROR, Reason::NO_ERROR] {
        let upstream = framed(&[], move |number, mut frames| {
            while let Some(stream) = request(&mut frames) {
                if number == 1 {
                    frames.go_away(0, reason);
                    return;
                }
                frames.headers(stream, &[(":status", "200")], false);
                frames.data(stream, b"elsewhere", true);
            }
        });
        for retry in ["", "retry = \"off\""] {
            let andante = andante(upstream.port(), retry);
            let (up, to) = (upstream.address(), upstream.url("/"));
            let post = format!("POST {to} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(Client::ask(andante.andante.proxy(), post).text(), "elsewhere", "{reason:?}, {retry}");
        }
    }
}

#[test]
fn an_api_may_send_an_empty_frame_with_each_answer() {
    const ANSWERS: usize = 250;
    let upstream = framed(&[], move |_, mut frames| {
        while let Some(stream) = request(&mut frames) {
            frames.headers(stream, &[(":status", "200")], false);
            frames.data(stream, b"", false);
            frames.data(stream, b"ok", false);
            frames.data(stream, b"", false);
            frames.data(stream, b"", true);
        }
    });
    let andante = andante(upstream.port(), "");
    let mut client = Client2::connect(andante.andante.proxy());
    for number in 0..ANSWERS {
        assert_eq!(client.get(&upstream.url("/")).answer().text(), "ok", "{number}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_worker_may_send_an_empty_frame_with_each_upload() {
    const UPLOADS: u32 = 250;
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let mut frames = frames(&andante);
    let host = upstream.address().to_string();
    for number in 0..UPLOADS {
        let stream = 2 * number + 1;
        let post = [(":method", "POST"), (":scheme", "http"), (":authority", &*host), (":path", "/")];
        frames.headers(stream, &post, false);
        frames.data(stream, b"", false);
        frames.data(stream, b"hi", false);
        frames.data(stream, b"", true);
        assert_eq!(frames.next_on(stream).expect("an answer").status(), 200, "{number}");
        while !frames.next_on(stream).expect("its end").ends() {}
    }
}

#[test]
fn an_api_that_floods_with_empty_frames_is_left() {
    let left = Arc::new(Mutex::new(None));
    let seen = left.clone();
    let upstream = framed(&[], move |_, mut frames| {
        let Some(stream) = request(&mut frames) else { return };
        frames.headers(stream, &[(":status", "200")], false);
        while frames.try_send(kind::DATA, 0, stream, &[]).is_ok() {}
        *seen.lock() = frames.next_of(kind::GOAWAY).map(|said| said.reason());
    });
    let andante = andante(upstream.port(), "retry = \"off\"");
    let mut client = Client2::connect(andante.andante.proxy());
    let answer = client.get(&upstream.url("/"));
    eventually("the connection's end", || (upstream.ended() == 1).then_some(()));
    // An error in words, unless the head has been passed on before.
    assert!(answer.try_answer().map_or(true, |answer| answer.status() == 502));
    assert!(left.lock().is_none_or(|reason| reason == Reason::ENHANCE_YOUR_CALM));
}

/// A window of half a megabyte is 5 MB/s at 100 ms: an answer that is read as it comes gets a larger one.
#[test]
fn an_answer_that_is_read_as_it_comes_gets_a_larger_window() {
    const FRAME: usize = 16 * 1024;
    const FIRST: u32 = 512 * 1024;
    const LARGE: u32 = 8 * 1024 * 1024;
    let (told, kept) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(0)));
    let (seen, sizes) = (told.clone(), kept.clone());
    let upstream = framed(&[], move |_, mut frames| {
        // The SETTINGS of andante are acknowledged as late as over a long path.
        crate::lifecycle::pass(Duration::from_millis(100));
        let Some(stream) = request(&mut frames) else { return };
        frames.send(kind::HEADERS, END_HEADERS, stream, &crate::support::h2::block(&[(":status", "200")]));
        let (mut window, mut whole) = (i64::from(FIRST), i64::from(FIRST));
        while whole < i64::from(LARGE) {
            // A window full at a time, as over a long path.
            while window >= FRAME as i64 {
                frames.data(stream, &[b'x'; FRAME], false);
                window -= FRAME as i64;
                *sizes.lock() += FRAME;
            }
            thread::park_timeout(Duration::from_millis(20));
            let Some(frame) = frames.next() else { return };
            if frame.kind == kind::WINDOW_UPDATE && frame.stream == stream {
                window += i64::from(u32::from_be_bytes(frame.payload[..4].try_into().unwrap()));
            }
            if frame.kind == kind::SETTINGS
                && let Some(size) = frame.setting(INITIAL_WINDOW_SIZE)
            {
                window += i64::from(size) - whole;
                whole = i64::from(size);
                seen.lock().push(size);
            }
        }
        frames.data(stream, b"", true);
    });
    let andante = andante(upstream.port(), "");
    let mut client = Client::connect(andante.andante.proxy());
    client.send(format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        upstream.url("/"),
        upstream.address()
    ));
    let read = client.rest().len();
    assert!(read > *kept.lock(), "{read} bytes came of {}", kept.lock());
    assert!(told.lock().is_sorted() && told.lock().last().is_some_and(|size| *size >= LARGE), "{told:?}");
}

#[test]
fn an_answer_that_nobody_reads_gets_no_larger_window() {
    let upstream = Upstream2::serving(|exchange| async move {
        let Some(mut sending) = exchange.start(200, &[], false) else { return };
        while crate::support::h2::Exchange::push(&mut sending, "x".repeat(16_000), false).await.is_ok() {}
    });
    let andante = Interceptor::with_config(
        &format!("[[rule]]\nhost = \"127.0.0.1:{}\"\nupstream = \"https\"\n", upstream.address().port()),
        &["--threads", "1"],
    );
    let before = crate::lifecycle::memory(&andante.andante, "VmRSS:");
    let settings = h2::client::Builder::new().initial_window_size(0).initial_connection_window_size(16 << 20).clone();
    let mut slow = Client2::with(&settings, andante.andante.proxy());
    let unread: Vec<_> = (0..40).map(|_| slow.get(&upstream.url("/")).head()).collect();
    crate::lifecycle::pass(Duration::from_secs(2));
    let taken = crate::lifecycle::memory(&andante.andante, "VmRSS:") - before;
    assert_eq!(unread.len(), 40);
    // The first window and the bytes read ahead, and as much again for the memory that holds them.
    assert!(taken < 40 * 2 * (512 + 64) * 1024, "{taken} bytes");
}

/// RFC 9113 §6.8: a stream up to the last stream id may have been processed, one above was not. "Too many" of that sort is the
/// connection's end, and no limit of requests.
#[test]
fn a_goaway_for_excessive_load_fails_only_what_may_have_been_processed_and_teaches_no_rate() {
    for answers_first in [true, false] {
        let upstream = framed(&[], move |number, mut frames| {
            if number > 1 {
                while let Some(stream) = request(&mut frames) {
                    frames.headers(stream, &[(":status", "200")], false);
                    frames.data(stream, b"elsewhere", true);
                }
                return;
            }
            let streams = [(); 4].map(|()| request(&mut frames).unwrap());
            frames.go_away(streams[0], Reason::ENHANCE_YOUR_CALM);
            if answers_first {
                frames.headers(streams[0], &[(":status", "200")], false);
                frames.data(streams[0], b"first", true);
            }
        });
        let andante = andante(upstream.port(), "");
        let (up, to) = (upstream.address(), upstream.url("/"));
        let post = format!("POST {to} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 2\r\n\r\nhi");
        let texts: Vec<String> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let answer = Client::ask(andante.andante.proxy(), &post);
                        if answer.status() == 200 { answer.text() } else { answer.status().to_string() }
                    })
                })
                .collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        let count = |text: &str| texts.iter().filter(|found| *found == text).count();
        let first = if answers_first { "first" } else { "502" };
        assert_eq!((count(first), count("elsewhere")), (1, 3), "{texts:?}");
        let lane = &andante.andante.status()["lanes"][0];
        assert!(lane["limits"] == serde_json::json!([]) && lane["gate"].is_null(), "{lane:#}");
    }
}
