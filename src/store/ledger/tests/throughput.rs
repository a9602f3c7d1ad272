//! Server time per call, which does not grow with the number of members.

use redis::aio::MultiplexedConnection;

use super::{Server, Sync, first_call};
use crate::{
    fleet::{Entry, Epoch, Extent, MemberId, Reply},
    store::ledger::{Ledger as _, RedisLedger},
};

/// A member with constant demand: each call returns its tokens, and asks for more.
struct Presser {
    id: MemberId,
    seq: u64,
    epoch: Option<Epoch>,
}

/// Counts of a server: calls of scripts, their time in microseconds, and bytes in and out.
#[derive(Clone, Copy)]
struct Counts {
    calls: f64,
    time: f64,
    bytes: f64,
}

/// The limit that all members share.
const LIMIT: u32 = 1_000_000;

impl Presser {
    async fn call(&mut self, ledger: &mut RedisLedger, slots: u32, pools: usize) -> u64 {
        self.seq += 1;
        let entry = |pool| Entry {
            pool: format!("api\nhost{pool}\n1000000").into(),
            limit: LIMIT,
            per: 1_000_000,
            settle: 30_000,
            holds: 0,
            want: slots,
            cost: 1,
            need: 0,
            demand: LIMIT,
            ends: None,
            word: Box::default(),
        };
        let entries = if self.epoch.is_some() { (0..pools).map(entry).collect() } else { vec![] };
        let call = Sync {
            member: self.id,
            seq: self.seq,
            epoch: self.epoch,
            leased: self.epoch.is_some(),
            extent: Extent::Some,
            entries,
            ..first_call()
        };
        let Reply::Done { epoch, given, .. } = ledger.sync(&call).await.unwrap() else { panic!("{call:?}") };
        self.epoch = Some(epoch);
        given.iter().map(|given| u64::from(given.holds)).sum()
    }
}

async fn counts(operator: &mut MultiplexedConnection) -> Counts {
    let said: String = redis::cmd("INFO").arg("commandstats").arg("stats").query_async(operator).await.unwrap();
    let number = |line: &str, name: &str| -> f64 {
        let line = said.lines().find(|said| said.starts_with(line)).unwrap_or_default();
        let rest = line.split(name).nth(1).unwrap_or("0");
        rest.split([',', '\r']).next().unwrap().parse().unwrap()
    };
    Counts {
        calls: number("cmdstat_evalsha:", "calls="),
        time: number("cmdstat_evalsha:", "usec="),
        bytes: number("total_net_input_bytes:", "bytes:") + number("total_net_output_bytes:", "bytes:"),
    }
}

/// Means per call: microseconds, granted slots, and bytes. Each of the members uses this many pools and wants this many
/// slots.
async fn measured(members: usize, pools: usize, slots: u32, calls: usize) -> (f64, f64, f64) {
    let server = Server::start();
    server.flush().await;
    let (mut ledger, mut operator) = (server.ledger(), server.connection().await);
    assert!(ledger.declare_new(first_call().terms.lease, 7).await.unwrap());
    let new = |at| Presser { id: MemberId(at as u64 + 1), seq: 0, epoch: None };
    let mut pressers: Vec<Presser> = (0..members).map(new).collect();
    for _ in 0..2 {
        for presser in &mut pressers {
            presser.call(&mut ledger, slots, pools).await;
        }
    }
    let before = counts(&mut operator).await;
    let mut granted = 0;
    for at in 0..calls {
        granted += pressers[at * 7 % members].call(&mut ledger, slots, pools).await;
    }
    let after = counts(&mut operator).await;
    let made = after.calls - before.calls;
    ((after.time - before.time) / made, granted as f64 / made, (after.bytes - before.bytes) / made)
}

/// `CALLS=20000 cargo test --release --lib a_call_takes_as_long -- --nocapture` prints a table.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_takes_as_long_with_a_thousand_members_as_with_ten() {
    let calls = std::env::var("CALLS").ok().and_then(|calls| calls.parse().ok());
    if let Some(calls) = calls {
        println!("members  pools  slots wanted  µs a call  calls/s of a core  slots/s of a core  bytes a call");
        for (members, pools, slots) in
            [(10, 1, 20), (16, 1, 1), (16, 1, 5), (16, 1, 20), (16, 1, 100), (1000, 1, 20), (16, 20, 20)]
        {
            let (time, granted, bytes) = measured(members, pools, slots, calls).await;
            let rate = 1e6 / time;
            println!("{members:7} {pools:6} {slots:13} {time:10.1} {rate:18.0} {:18.0} {bytes:13.0}", rate * granted);
        }
        return;
    }
    // Other load can only increase the time, so the least counts.
    let (mut few, mut many) = (f64::MAX, f64::MAX);
    for _ in 0..4 {
        for (least, members) in [(&mut few, 10), (&mut many, 1000)] {
            let (time, granted, _) = measured(members, 1, 20, 1500).await;
            assert_eq!(granted, 20.0, "all that was wanted was there");
            *least = least.min(time);
        }
    }
    assert!(many < 1.5 * few, "{few} µs with 10, {many} with 1,000");
}
