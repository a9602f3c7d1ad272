//! A shared store whose replies exceed any question.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

use andante::clock::Clock;

use super::{MAX_MEMORY, withstands};
use crate::support::{
    Andante, Upstream, alone,
    tls::{Server, TRUSTED},
};

const HELLO: &str = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n\
                     $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                     $7\r\nmodules\r\n*0\r\n";
/// A member's three channels, whose names do not matter here.
const SUBSCRIBED: &str = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n\
                          >3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:3\r\n";

/// A connection of a store.
trait Connection: Read + Write {}

impl<S: Read + Write> Connection for S {}

/// A store's answers to calls, and its messages to a subscriber.
type Script = fn(&mut dyn Connection);

/// A store that answers calls by `script`, and follows a subscription by `pushed`, until its client has had enough. With `tls`,
/// it speaks nothing else.
fn lying_store(tls: Option<Server>, script: Script, pushed: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let scheme = if tls.is_some() { "rediss" } else { "redis" };
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = tls.clone();
            thread::spawn(move || match tls {
                Some(tls) => serve(&mut tls.over(stream), script, pushed),
                None => serve(&mut { stream }, script, pushed),
            });
        }
    });
    url
}

fn serve(stream: &mut dyn Connection, script: Script, pushed: Script) {
    let mut bytes = [0; 65536];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..read]).to_ascii_uppercase();
        if text.contains("HELLO") {
            let _ = stream.write_all(HELLO.as_bytes());
        }
        (0..text.matches("CLIENT\r\n").count()).for_each(|_| drop(stream.write_all(b"+OK\r\n")));
        if text.contains("EVAL") {
            script(stream);
        }
        if text.contains("SUBSCRIBE") {
            let _ = stream.write_all(SUBSCRIBED.as_bytes());
            pushed(stream);
        }
    }
}

/// Sends `piece` again and again, for three seconds or until it is not taken any more.
fn flood(stream: &mut dyn Connection, piece: &[u8]) {
    let clock = Clock::start();
    let begun = clock.now();
    while clock.now().since(begun) < Duration::from_secs(3) && stream.write_all(piece).is_ok() {}
}

/// A reply that does not end.
fn endless(stream: &mut dyn Connection) {
    let _ = stream.write_all(b"$1000000000\r\n");
    flood(stream, &[b'x'; 1 << 20]);
}

/// Messages of a channel, as many as are taken.
fn messages(stream: &mut dyn Connection) {
    let message = format!(">3\r\n$7\r\nmessage\r\n$15\r\n{{andante}}:hints\r\n$1000\r\n{}\r\n", "p".repeat(1000));
    flood(stream, message.repeat(100).as_bytes());
}

fn withstands_store(url: &str) {
    let beside = Upstream::ok();
    let config = format!("{MAX_MEMORY}store = \"{url}\"\nstore-down = \"open\"\n");
    let andante = Andante::with_environment_and_config("SSL_CERT_FILE", TRUSTED.file(), &config);
    withstands(&andante, &beside, || thread::park_timeout(Duration::from_secs(4)));
}

#[test]
fn a_store_whose_reply_does_not_end_stays_below_the_bound() {
    let _alone = alone();
    withstands_store(&lying_store(None, endless, |_| {}));
}

#[test]
fn a_store_whose_reply_by_tls_does_not_end_stays_below_the_bound() {
    let _alone = alone();
    let tls = Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &[]);
    withstands_store(&lying_store(Some(tls), endless, |_| {}));
}

#[test]
fn a_store_that_floods_its_channels_stays_below_the_bound() {
    let _alone = alone();
    let reply: Script = |stream| drop(stream.write_all(b"*1\r\n$7\r\nignored\r\n"));
    withstands_store(&lying_store(None, reply, messages));
}
