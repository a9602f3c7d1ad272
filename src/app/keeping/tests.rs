//! Size of a state.

use std::path::Path;

use super::*;
use crate::{
    clock::Instant,
    lane::{
        Admission, AdmitRequest,
        order::{Claim, Turn},
    },
    learn::RouteKey,
    limit::Cost,
    policy::{Origin, Policy, Rules, Scheme},
};

/// The state at `path`, and the lanes that continue it.
fn start(path: &Path) -> (Lanes, Writing) {
    let (keeping, kept) =
        Keeping::begin(path.to_owned(), StateFile::open(path, false).unwrap(), Box::new(Reading::now));
    let any = Policy::new("any", vec!["*".parse().unwrap()]);
    let rules = Rules::new(vec![Policy { limits: vec!["10/s".parse().unwrap()], ..any }]);
    let lanes = Lanes::new(rules, Metrics::new(), keeping.clock).keeping(kept);
    lanes.open_kept();
    (lanes, Writing { keeping, metrics: Metrics::new() })
}

/// Sends one request, which is answered at once.
fn call(lanes: &Lanes, host: &str) {
    let origin = Origin::parse(Scheme::Http, host, Some(80)).unwrap();
    let kind = RouteKey::new("GET", "/");
    let (claim, turn) = (Claim::USUAL, Turn::New);
    let ask = AdmitRequest { cost: Cost::MIN, kind, claim, deadline: Instant::FAR, turn, draws: None, port: 80 };
    let Admission::Send(mut permit) = lanes.find(&origin).admit(ask) else { panic!("nothing was sent to {host} yet") };
    permit.sent();
}

#[tokio::test(start_paused = true)]
async fn however_many_hosts_there_were_the_file_is_as_large_as_what_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let mut sizes = Vec::new();
    for restart in 0..3 {
        let (lanes, mut writing) = start(&path);
        for wave in 0..4 {
            for host in 0..2000 {
                call(&lanes, &format!("h{restart}-{wave}-{host}.test"));
            }
            writing.write(&lanes, &[], true, false);
            tokio::time::advance(Duration::from_secs(60)).await;
            lanes.sweep();
            writing.write(&lanes, &[], true, false);
            let stored = writing.keeping.store.read().unwrap().lanes.len();
            assert!(stored <= 1024 && stored == lanes.len(), "{stored} are stored, {} there", lanes.len());
            sizes.push(std::fs::metadata(&path).unwrap().len());
        }
        writing.write(&lanes, &[], true, true);
    }
    println!("{sizes:?}");
    // The file may grow to twice its first size, although twelve waves bring new hosts and rewrite
    // lanes.
    assert!(sizes.iter().all(|size| *size <= sizes[0] * 2), "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn those_that_nobody_asks_for_again_are_forgotten_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let (lanes, mut writing) = start(&path);
    (0..100).for_each(|host| call(&lanes, &format!("h{host}.test")));
    writing.write(&lanes, &[], true, true);
    drop((lanes, writing));
    // No rule exists any more.
    let (keeping, kept) = Keeping::begin(path.clone(), StateFile::open(&path, false).unwrap(), Box::new(Reading::now));
    let lanes = Lanes::new(Rules::new(Vec::new()), Metrics::new(), keeping.clock).keeping(kept);
    let mut writing = Writing { keeping, metrics: Metrics::new() };
    lanes.sweep();
    writing.write(&lanes, &[], true, false);
    assert_eq!(writing.keeping.store.read().unwrap().lanes.len(), 100, "what was sent may count yet");
    tokio::time::advance(Duration::from_secs(3600)).await;
    lanes.sweep();
    writing.write(&lanes, &[], true, false);
    assert_eq!(writing.keeping.store.read().unwrap().lanes.len(), 0);
}
