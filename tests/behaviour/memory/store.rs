//! A shared store that says more than anybody asked.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use andante::clock::Clock;

use super::{MAX_MEMORY, withstands};
use crate::support::{Andante, Upstream};

const HELLO: &str = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n\
                     $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                     $7\r\nmodules\r\n*0\r\n";
/// A member's three channels, whose names do not matter for that.
const SUBSCRIBED: &str = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n\
                          >3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:3\r\n";

/// A store that answers calls by `script`, and follows a subscription by `pushed`, until its client has had enough.
fn lying_store(
    script: impl Fn(&mut TcpStream) + Clone + Send + 'static,
    pushed: impl Fn(&mut TcpStream) + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (script, pushed) = (script.clone(), pushed.clone());
            thread::spawn(move || serve(stream, script, pushed));
        }
    });
    url
}

fn serve(mut stream: TcpStream, script: impl Fn(&mut TcpStream), pushed: impl Fn(&mut TcpStream)) {
    let mut bytes = [0; 65536];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..read]).to_ascii_uppercase();
        if text.contains("HELLO") {
            let _ = stream.write_all(HELLO.as_bytes());
        }
        (0..text.matches("CLIENT\r\n").count()).for_each(|_| drop(stream.write_all(b"+OK\r\n")));
        if text.contains("EVAL") {
            script(&mut stream);
        }
        if text.contains("SUBSCRIBE") {
            let _ = stream.write_all(SUBSCRIBED.as_bytes());
            pushed(&mut stream);
        }
    }
}

/// Sends `piece` again and again, for three seconds or until it is not taken any more.
fn flood(stream: &mut TcpStream, piece: &[u8]) {
    let clock = Clock::start();
    let begun = clock.now();
    while clock.now().since(begun) < Duration::from_secs(3) && stream.write_all(piece).is_ok() {}
}

fn withstands_store(url: &str) {
    let beside = Upstream::ok();
    let andante = Andante::with_config(&format!("{MAX_MEMORY}store = \"{url}\"\nstore-down = \"open\"\n"));
    withstands(&andante, &beside, || thread::park_timeout(Duration::from_secs(4)));
}

#[test]
fn a_store_whose_reply_does_not_end_stays_below_the_bound() {
    let reply = |stream: &mut TcpStream| {
        let _ = stream.write_all(b"$1000000000\r\n");
        flood(stream, &[b'x'; 1 << 20]);
    };
    withstands_store(&lying_store(reply, |_| {}));
}

#[test]
fn a_store_that_floods_its_channels_stays_below_the_bound() {
    let message = format!(">3\r\n$7\r\nmessage\r\n$15\r\n{{andante}}:hints\r\n$1000\r\n{}\r\n", "p".repeat(1000));
    let (reply, messages) =
        (|stream: &mut TcpStream| drop(stream.write_all(b"*1\r\n$7\r\nignored\r\n")), message.repeat(100));
    withstands_store(&lying_store(reply, move |stream| flood(stream, messages.as_bytes())));
}
