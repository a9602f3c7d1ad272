//! Compares two implementations by their replies: the book in Rust, and the script in a Redis that the tests
//! start.

mod server;
mod throughput;

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
};

use proptest::prelude::*;

use self::server::Server;
use super::{Ledger as _, RedisLedger, redis::read};
use crate::fleet::{
    CallAge, Division, Entry, Epoch, Extent, MemberId, Micros, Pause, PauseCause, Reply, Sync, Terms, WakeUp,
};
use andante_fleet_model::Book;

/// A generator that gives the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A member that makes arbitrary calls; it nearly always holds the amount that it was granted.
struct Chatterer {
    id: MemberId,
    seq: u64,
    epoch: Option<Epoch>,
    holds: [u32; 2],
    split: Micros,
    reports: bool,
    pauses_known: u64,
}

const POOLS: [(&str, u32, Micros); 2] =
    [("api\nhost\n1000000", 7, 1_000_000), ("api\nhost\n20000000", 400, 20_000_000)];
const LEASE: Micros = 10_000_000;

impl Chatterer {
    fn new(dice: &mut Dice) -> Self {
        Self {
            id: MemberId(dice.below(1 << 31) << 20),
            seq: 0,
            epoch: None,
            holds: [0; 2],
            // Time for which a store may go on after another one has replaced it.
            split: dice.below(2) as Micros * 2_000_000,
            reports: false,
            pauses_known: 0,
        }
    }

    fn call(&mut self, dice: &mut Dice) -> Sync {
        let extent = match () {
            () if self.reports => Extent::All,
            () if self.epoch.is_some() && dice.once_in(40) => Extent::Leaving,
            () => Extent::Some,
        };
        let mut entries = Vec::new();
        for (at, (pool, limit, per)) in POOLS.iter().enumerate() {
            if self.epoch.is_none() || extent == Extent::Some && dice.once_in(3) {
                continue;
            }
            let gift = if dice.once_in(2) { dice.below(u64::from(self.holds[at]) + 1) as u32 } else { 0 };
            self.holds[at] -= gift;
            let cost = dice.below(4) as u32;
            let ends = extent == Extent::Leaving || dice.once_in(15);
            entries.push(Entry {
                pool: Arc::from(*pool),
                limit: if dice.once_in(20) { limit / 2 } else { *limit },
                // Members may differ in their opinion of how long answers last.
                per: if dice.once_in(20) { 2 * per } else { *per },
                settle: 30_000 + dice.below(1000) as Micros,
                holds: self.holds[at],
                want: if cost == 0 { 0 } else { dice.below(u64::from(*limit)) as u32 },
                cost,
                need: dice.below(u64::from(cost) * u64::from(*limit) / 8 + 1) as u32,
                demand: dice.below(u64::from(*limit) + 1) as u32,
                ends: ends.then(|| dice.below(5_000_000) as Micros),
                word: ["", "", "60 s", "200\n1 h"][dice.below(4) as usize].into(),
            });
        }
        let pauses = (0..dice.below(16).saturating_sub(12)).map(|_| Pause {
            name: Arc::from(["api\nhost", "api\nhost\ncore", "api\nother"][dice.below(3) as usize]),
            left: if dice.once_in(5) { 0 } else { dice.below(20_000_000) as Micros },
            cause: [PauseCause::RetryAfter, PauseCause::Exhausted, PauseCause::Banned][dice.below(3) as usize],
        });
        let pauses = pauses.collect();
        self.seq += 1;
        let basis = (!dice.once_in(4)).then(|| CallAge { seq: self.seq - 1, elapsed: dice.below(6_000_000) as Micros });
        Sync {
            member: self.id,
            seq: if dice.once_in(30) { self.seq.saturating_sub(1) } else { self.seq },
            epoch: self.epoch,
            leased: self.epoch.is_some() && !dice.once_in(10),
            basis,
            terms: Terms {
                lease: if dice.once_in(60) { LEASE / 2 } else { LEASE },
                split: self.split,
                division: Division { members: 4, floor: if dice.once_in(20) { 0 } else { 20 } },
            },
            nonce: dice.below(1 << 31) as u32,
            extent,
            pauses_known: if dice.once_in(10) { dice.below(9) } else { self.pauses_known },
            pauses,
            entries,
        }
    }

    fn heard(&mut self, dice: &mut Dice, call: &Sync, reply: &Reply) {
        self.reports = false;
        match reply {
            Reply::Done { epoch, given, pauses_known, .. } if call.extent != Extent::Leaving => {
                (self.epoch, self.pauses_known) = (Some(*epoch), *pauses_known);
                for (entry, given) in call.entries.iter().zip(given) {
                    let at = POOLS.iter().position(|(pool, ..)| *pool == &*entry.pool).unwrap();
                    self.holds[at] = given.holds;
                }
            }
            Reply::Report => self.reports = true,
            Reply::Done { .. } | Reply::Reset => *self = Self::new(dice),
            Reply::Ignored | Reply::Deposed | Reply::NotYet(_) | Reply::Disagreed(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_script_says_what_the_book_says() {
    let server = Server::start();
    let mut ledger = server.ledger();
    let mut seen = std::collections::BTreeSet::new();
    let (mut paused, mut ended) = (0, 0);
    for seed in 0..40 {
        let mut dice = Dice(seed);
        server.flush().await;
        let (mut book, mut wall, mut run) = (Book::default(), 1_700_000_000_000_000, 0);
        let mut members: Vec<_> = (0..2 + dice.below(4)).map(|_| Chatterer::new(&mut dice)).collect();
        for step in 0..120 {
            wall += match dice.below(40) {
                0 => -5_000_000,
                1 => 30_000_000,
                2..8 => dice.below(4_000_000) as Micros,
                _ => dice.below(300_000) as Micros,
            };
            run += i64::from(dice.once_in(80));
            let at = dice.below(members.len() as u64) as usize;
            let call = members[at].call(&mut dice);
            let (reply, hints) = book.sync(&call, wall, &run.to_string());
            let said = ledger.run(&call, Some((wall, &run.to_string()))).await.unwrap();
            let theirs = read(&said).unwrap_or_else(|| panic!("{said:?}"));
            assert_eq!(theirs, reply, "seed {seed}, step {step}: {call:?}");
            if let Reply::Done { given, pauses, .. } = &reply {
                let told = |hint: &WakeUp| match hint {
                    WakeUp::Pool { member, pool } => [member.map_or("*".into(), |id| id.to_string()), pool.to_string()],
                    WakeUp::Pauses => ["pauses".into(), String::new()],
                };
                let told: Vec<String> = hints.iter().flat_map(told).collect();
                assert_eq!(said[9 + 8 * given.len() + 3 * pauses.len()..], told, "seed {seed}, step {step}");
                paused += pauses.iter().filter(|pause| pause.left > 0).count();
                ended += pauses.iter().filter(|pause| pause.left == 0).count();
            }
            assert!(book.is_sound(), "seed {seed}, step {step}: {book:?}");
            seen.insert(said[0].clone());
            members[at].heard(&mut dice, &call, &reply);
        }
    }
    let words: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(words, ["disagreed", "done", "ignored", "not-yet", "report", "reset"], "nothing is left out");
    assert!(paused > 100 && ended > 10, "{paused} pauses, {ended} ends");
}

/// A first call, which any store can answer.
fn first_call() -> Sync {
    let (member, terms) = (MemberId(7), Terms { lease: LEASE, split: 0, division: Division::default() });
    Sync {
        member,
        seq: 1,
        epoch: None,
        leased: false,
        basis: None,
        terms,
        nonce: 5,
        extent: Extent::Some,
        pauses_known: 0,
        pauses: vec![],
        entries: vec![],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_redis_refuses_is_said_and_goes_by_when_it_is_mended() {
    let server = Server::start();
    server.flush().await;
    let breaks: [(&[&str], &str, &[&str]); 4] = [
        (&["SET", "{andante}:ledger", "1"], "WRONGTYPE", &["DEL", "{andante}:ledger"]),
        (&["CONFIG", "SET", "maxmemory", "1"], "OOM", &["CONFIG", "SET", "maxmemory", "0"]),
        (&["REPLICAOF", "127.0.0.1", "1"], "READONLY", &["REPLICAOF", "NO", "ONE"]),
        (&["CONFIG", "SET", "requirepass", "hunter2"], "NOAUTH", &["CONFIG", "SET", "requirepass", ""]),
    ];
    let mut operator = server.connection().await;
    for (breaks, word, mends) in breaks {
        let mut tell = async |words: &[&str]| {
            redis::cmd(words[0]).arg(&words[1..]).query_async::<()>(&mut operator).await.unwrap();
        };
        server.ledger().sync(&first_call()).await.unwrap();
        tell(breaks).await;
        // A connection that has sent its password once need not send it again.
        let mut ledger = server.ledger();
        for seq in 2..4 {
            let error = ledger.sync(&Sync { seq, ..first_call() }).await.unwrap_err().to_string();
            assert!(error.contains(word) && error.len() < 300, "{word}: {error}");
        }
        tell(mends).await;
        let reply = ledger.sync(&Sync { seq: 5, ..first_call() }).await;
        assert!(matches!(reply, Ok(Reply::Done { .. })), "{word}: {reply:?}");
        server.flush().await;
    }
}

/// The server may lack its primary's last changes: another member may hold tokens that this server counts as
/// free.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_was_a_replica_meanwhile_begins_anew_though_it_has_forgotten_nothing() {
    let server = Server::start();
    server.flush().await;
    let (mut ledger, mut operator) = (server.ledger(), server.connection().await);
    let mut epoch = async |seq| match ledger.sync(&Sync { seq, ..first_call() }).await.unwrap() {
        Reply::Done { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    };
    let first = epoch(1).await;
    assert_eq!(epoch(2).await, first);
    // The server never connects to that primary, and keeps its data.
    for words in [["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]] {
        redis::cmd(words[0]).arg(&words[1..]).query_async::<()>(&mut operator).await.unwrap();
    }
    let second = epoch(3).await;
    assert_eq!((second.counter, second.id == first.id), (first.counter + 1, false));
    assert_eq!(epoch(4).await, second);
}

/// A server that sends `greets` as its answer to the first commands of a connection, and this `reply` to
/// each script.
fn says(reply: Vec<u8>) -> RedisLedger {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), reply) = (stream, reply.clone()) else { return };
            thread::spawn(move || {
                let mut said = [0; 65536];
                while let Ok(read @ 1..) = stream.read(&mut said) {
                    let text = String::from_utf8_lossy(&said[..read]).to_uppercase();
                    let hello = text.matches("HELLO\r\n").count();
                    let others = text.matches("CLIENT\r\n").count();
                    let mut answer = b"%1\r\n+proto\r\n:3\r\n".repeat(hello);
                    answer.extend(b"+OK\r\n".repeat(others));
                    if text.contains("EVAL") {
                        answer.extend(&reply);
                    }
                    if stream.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    RedisLedger::new(&format!("redis://{address}").parse().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_speaks_nonsense_is_an_error_with_the_beginning_of_it() {
    let array = |words: &[&str]| {
        let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        words.into_bytes()
    };
    let of = |words: &[&str]| [format!("*{}\r\n", words.len()).into_bytes(), array(words)].concat();
    let (many, long) = (u64::MAX.to_string(), "x".repeat(5000));
    let cases = [
        (of(&["done", "1", "2", "0", "1", "0", &many]), "makes no sense: done 1 2 0 1 0 1844"),
        (of(&["done", "-1", "2", "0", "1", "0", "0"]), "makes no sense"),
        (of(&["done", "1", "2", "nan", "1", "0", "0"]), "makes no sense"),
        (of(&[&long]), "makes no sense: xxx"),
        (of(&["\u{1b}[2J\n"]), "makes no sense:  [2J"),
        (b"$-1\r\n".to_vec(), ""),
        (b":5\r\n".to_vec(), ""),
        (b"-LOADING Redis is loading the dataset in memory\r\n".to_vec(), "loading"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), ""),
    ];
    for (reply, words) in cases {
        let mut ledger = says(reply.clone());
        let error = ledger.sync(&first_call()).await.unwrap_err().to_string();
        assert!(error.contains(words) && error.len() < 300, "{}: {error}", String::from_utf8_lossy(&reply));
    }
}

const WORDS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "7",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "4294967295",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "",
    "x",
];

proptest! {
    /// Any bytes from a store are either no reply, or a reply that grants no more than was asked for.
    #[test]
    fn a_reply_is_sound_or_none(
        word in 0..7_usize, numbers in proptest::collection::vec(0..WORDS.len(), 0..30), entries in 0..3_usize, want in 0..5_u32
    ) {
        let mut said = vec![["done", "report", "reset", "deposed", "disagreed", "ignored", "not-yet"][word].to_owned()];
        said.extend(numbers.iter().map(|at| WORDS[*at].to_owned()));
        let entry = Entry {
            pool: "api".into(),
            limit: 20,
            per: 1_000_000,
            settle: 0,
            holds: 2,
            want,
            cost: 1,
            need: 0,
            demand: 5,
            ends: None,
            word: Box::default(),
        };
        let call = Sync { entries: vec![entry; entries], ..first_call() };
        if let Some(Reply::Done { given, pauses, .. }) = read(&said).filter(|reply| reply.answers(&call)) {
            prop_assert!(pauses.iter().all(|pause| (0..=86_400_000_000).contains(&pause.left)));
            prop_assert!(given.len() == entries && given.iter().all(|given| given.holds <= 2 + want));
            prop_assert!(given.iter().all(|given| given.target.is_finite() && given.pace >= 0.0 && given.limit > 0));
        }
    }
}
