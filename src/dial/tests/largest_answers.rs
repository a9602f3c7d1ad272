//! Test that reading the largest answer of a name server takes time linear in its size.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, UdpSocket},
    thread,
};

use tokio::runtime::Builder;

use super::{
    super::servers::{ServerSettings, Servers},
    name_server::question,
    *,
};
use crate::clock::assert_linear;

/// Maximum bytes of the records in an answer by TCP, with 100 bytes left for header and question. The length field has
/// 16 bits (RFC 1035 §4.2.2).
const LARGEST_BYTES: usize = 65_535 - 100;
/// Bytes of an answer before its question.
const HEADER_BYTES: usize = 12;

/// Function that returns records of at most `bytes`, and their number. The answer's question has `question` bytes.
type Records = fn(question: usize, bytes: usize) -> (Vec<u8>, usize);

/// Starts a server that truncates its answers by UDP. By TCP, it answers each question with the same `records`.
fn start(records: Records, bytes: usize) -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(at).unwrap();
    thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, from)) = udp.recv_from(&mut query) {
            let (_, _, question) = question(&query[HEADER_BYTES..length]);
            let truncated = [&query[..2], &[0x83, 0x80, 0, 1, 0, 0, 0, 0, 0, 0], question].concat();
            udp.send_to(&truncated, from).unwrap();
        }
    });
    thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut query).unwrap();
                    let (_, _, question) = question(&query[HEADER_BYTES..]);
                    let (records, count) = records(question.len(), bytes);
                    let count = (count as u16).to_be_bytes();
                    let head = [&query[..2], &[0x81, 0x80, 0, 1, count[0], count[1], 0, 0, 0, 0]].concat();
                    let answer = [&head[..], question, &records].concat();
                    let length = (answer.len() as u16).to_be_bytes();
                    if stream.write_all(&[&length[..], &answer].concat()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    at
}

/// Fills `bytes` with records. `record` receives the number of a record and its offset in the answer.
fn filled(question: usize, bytes: usize, record: impl Fn(usize, usize) -> Vec<u8>) -> (Vec<u8>, usize) {
    let (mut records, mut count) = (Vec::new(), 0);
    loop {
        let next = record(count, HEADER_BYTES + question + records.len());
        if records.len() + next.len() > bytes {
            return (records, count);
        }
        records.extend(next);
        count += 1;
    }
}

/// Returns a record whose owner name is at offset `owner` of the answer.
fn record(owner: usize, kind: u8, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [&pointer(owner)[..], &[0, kind, 0, 1, 0, 0, 0, 60], &length, data].concat()
}

/// Returns a compression pointer to offset `to` (RFC 1035 §4.1.4).
fn pointer(to: usize) -> [u8; 2] {
    (0xc000 | (to as u16 & 0x3fff)).to_be_bytes()
}

/// Bytes of a record before its data, with a compressed name.
const RECORD_BYTES: usize = 12;
const A: u8 = 1;
const CNAME: u8 = 5;

fn addresses(question: usize, bytes: usize) -> (Vec<u8>, usize) {
    filled(question, bytes, |number, _| record(HEADER_BYTES, A, &(number as u32).to_be_bytes()))
}

/// Returns a chain of aliases: the owner of each record is the data of the record before.
fn chain(question: usize, bytes: usize) -> (Vec<u8>, usize) {
    filled(question, bytes, |number, at| {
        let label = format!("{number:05}");
        let data = [&[5][..], label.as_bytes(), &[0]].concat();
        // Pointers reach 16 KiB. Records beyond have the name in the question as their owner.
        let before =
            at - RECORD_BYTES * usize::from(number > 0) - (data.len() * usize::from(number > 0)) + RECORD_BYTES;
        let owner = if number == 0 || before > 0x3fff { HEADER_BYTES } else { before };
        record(owner, CNAME, &data)
    })
}

/// Returns aliases whose names all point to the longest name, which the first record contains.
fn longest_names(question: usize, bytes: usize) -> (Vec<u8>, usize) {
    let longest: Vec<u8> = [1, b'a'].repeat(120).into_iter().chain([0]).collect();
    let first = record(HEADER_BYTES, CNAME, &longest);
    let name = HEADER_BYTES + question + RECORD_BYTES;
    let (more, count) = filled(question + first.len(), bytes - first.len(), |_, _| record(name, CNAME, &pointer(name)));
    ([first, more].concat(), count + 1)
}

#[test]
fn largest_answer_is_read_in_linear_time() {
    for (case, records) in
        [("addresses", addresses as Records), ("a chain of names", chain), ("the longest names", longest_names)]
    {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = |bytes| start(records, bytes);
        assert_linear(case, LARGEST_BYTES, server, |server| {
            // A new resolver has an empty cache.
            let servers = Servers::new(ServerSettings::of(&[*server]), Duration::from_secs(20));
            let outcome = runtime.block_on(servers.resolve("api.example"));
            match (case, outcome) {
                ("addresses", Ok(found)) => assert!(found.list.len() > 500, "{}", found.list.len()),
                ("addresses", Err(error)) => panic!("{error:?}"),
                _ => {}
            }
        });
    }
}
