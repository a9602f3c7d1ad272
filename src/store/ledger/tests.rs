//! Held to the same replies: the book in Rust, and the script in a Redis that is started for this.

mod server;

use std::sync::Arc;

use self::server::Server;
use super::redis::read;
use crate::fleet::{Basis, Book, Entry, Epoch, Extent, MemberId, Micros, Reply, Sync, Terms};

/// The same numbers each time.
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

/// A member that says anything: what it holds is nearly always what it was given.
struct Chatterer {
    id: MemberId,
    seq: u64,
    epoch: Option<Epoch>,
    holds: [u32; 2],
    reports: bool,
}

const POOLS: [(&str, u32, Micros); 2] =
    [("api\nhost\n1000000", 7, 1_000_000), ("api\nhost\n20000000", 400, 20_000_000)];
const LEASE: Micros = 10_000_000;

impl Chatterer {
    fn new(dice: &mut Dice) -> Self {
        Self { id: MemberId(dice.below(1 << 31) << 20), seq: 0, epoch: None, holds: [0; 2], reports: false }
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
                per: *per,
                settle: 30_000 + dice.below(1000) as Micros,
                holds: self.holds[at],
                want: if cost == 0 { 0 } else { dice.below(u64::from(*limit)) as u32 },
                cost,
                need: dice.below(u64::from(cost) * u64::from(*limit) / 8 + 1) as u32,
                demand: dice.below(u64::from(*limit) + 1) as u32,
                ends: ends.then(|| dice.below(5_000_000) as Micros),
            });
        }
        self.seq += 1;
        let basis = (!dice.once_in(4)).then(|| Basis { seq: self.seq - 1, elapsed: dice.below(6_000_000) as Micros });
        Sync {
            member: self.id,
            seq: if dice.once_in(30) { self.seq.saturating_sub(1) } else { self.seq },
            epoch: self.epoch,
            leased: self.epoch.is_some() && !dice.once_in(10),
            basis,
            terms: Terms { lease: if dice.once_in(60) { LEASE / 2 } else { LEASE }, split: 0 },
            nonce: dice.below(1 << 31) as u32,
            extent,
            entries,
        }
    }

    fn heard(&mut self, dice: &mut Dice, call: &Sync, reply: &Reply) {
        self.reports = false;
        match reply {
            Reply::Done { epoch, given, .. } if call.extent != Extent::Leaving => {
                self.epoch = Some(*epoch);
                for (entry, given) in call.entries.iter().zip(given) {
                    let at = POOLS.iter().position(|(pool, ..)| *pool == &*entry.pool).unwrap();
                    self.holds[at] = given.holds;
                }
            }
            Reply::Report => self.reports = true,
            Reply::Done { .. } | Reply::Reset => *self = Self::new(dice),
            Reply::Ignored | Reply::Deposed | Reply::Disagreed(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_script_says_what_the_book_says() {
    let server = Server::start();
    let mut ledger = server.ledger();
    let mut seen = std::collections::BTreeSet::new();
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
            if let Reply::Done { given, .. } = &reply {
                let told: Vec<String> = hints
                    .iter()
                    .flat_map(|hint| [hint.member.map_or("*".into(), |id| id.to_string()), hint.pool.to_string()])
                    .collect();
                assert_eq!(said[6 + 7 * given.len()..], told, "seed {seed}, step {step}");
            }
            assert!(book.is_sound(), "seed {seed}, step {step}: {book:?}");
            seen.insert(said[0].clone());
            members[at].heard(&mut dice, &call, &reply);
        }
    }
    let words: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(words, ["disagreed", "done", "ignored", "report", "reset"], "nothing is left out");
}
