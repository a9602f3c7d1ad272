//! A member with a misbehaving store, in virtual time.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
};

use parking_lot::Mutex;

use super::*;
use crate::{
    fleet::{Floor, PauseCause, PoolGrant, Reply, Sync},
    store::InMemoryLedger,
};

/// Behaviour of a store towards each call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Sound,
    Fails,
    SaysReset,
    SaysReport,
    SaysIgnored,
    SaysDeposed,
    GivesUnasked,
    PausesForEver,
    /// Every other call fails.
    Falters,
    Hangs,
}

#[derive(Clone)]
struct Unruly {
    manner: Arc<Mutex<Manner>>,
    calls: Arc<AtomicU32>,
    sound: InMemoryLedger,
}

impl Ledger for Unruly {
    async fn sync(&mut self, call: &Sync) -> Result<Reply, LedgerError> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let manner = *self.manner.lock();
        match manner {
            Manner::Sound => {}
            Manner::Falters if calls.is_multiple_of(2) => {}
            Manner::Fails | Manner::Falters => return Err(LedgerError("out of order".to_owned())),
            Manner::SaysReset => return Ok(Reply::Reset),
            Manner::SaysReport => return Ok(Reply::Report),
            Manner::SaysIgnored => return Ok(Reply::Ignored),
            Manner::SaysDeposed => return Ok(Reply::Deposed),
            Manner::Hangs => return std::future::pending().await,
            Manner::GivesUnasked => {
                let mut reply = self.sound.sync(call).await?;
                if let Reply::Done { given, .. } = &mut reply {
                    given.push(PoolGrant { holds: u32::MAX, target: f64::NAN, ..PoolGrant::default() });
                }
                return Ok(reply);
            }
            Manner::PausesForEver => {
                let mut reply = self.sound.sync(call).await?;
                if let Reply::Done { pauses, .. } = &mut reply {
                    pauses.push(Pause { name: "\napi.test".into(), left: i64::MAX, cause: PauseCause::Banned });
                }
                return Ok(reply);
            }
        }
        self.sound.sync(call).await
    }

    fn listen(&mut self, member: MemberId) -> mpsc::Receiver<StoreHint> {
        self.sound.listen(member)
    }
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Captures the log from now on.
    fn new() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for Written {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_of_its_mind_is_asked_seldom_and_told_of_seldom() {
    use Manner::{Fails, Falters, GivesUnasked, Hangs, PausesForEver, SaysDeposed, SaysIgnored, SaysReport, SaysReset};
    for manner in [Fails, SaysReset, SaysReport, SaysIgnored, SaysDeposed, GivesUnasked, PausesForEver, Falters, Hangs]
    {
        let (log, _guard) = Written::new();
        let lines = || log.text();
        let (config, clock) = (FleetConfig::default(), Clock::start());
        let ledger = Unruly {
            manner: Arc::new(Mutex::new(Manner::Sound)),
            calls: Arc::default(),
            sound: InMemoryLedger::declared_new(clock, micros(config.lease)),
        };
        let (member, _sharing) = FleetMember::new(ledger.clone(), "redis://store.example".into(), &config, clock);
        let report = member.report.clone();
        let (leave, left) = oneshot::channel();
        let task = tokio::spawn(member.run(Weak::new(), left));
        tokio::time::sleep(MINUTE).await;
        assert_eq!(report.status().standing, "shared", "{}", lines());

        *ledger.manner.lock() = manner;
        let before = ledger.calls.swap(0, Ordering::Relaxed);
        assert!(before <= 30, "{before} calls of a store that is well");
        tokio::time::sleep(MINUTE).await;
        let (calls, status) = (ledger.calls.swap(0, Ordering::Relaxed), report.status());
        assert!((5..=150).contains(&calls), "{manner:?}: {calls} calls in a minute");
        let said = lines();
        let most = if manner == Falters { 32 } else { 5 };
        assert!(said.lines().count() <= most, "{manner:?}: {} lines: {said}", said.lines().count());
        if manner == Falters {
            assert!(report.is_ready());
        } else {
            assert!(["cut-off", "joining"].contains(&status.standing.as_str()), "{manner:?}: {status:?}");
            assert!(status.problem.is_some_and(|problem| said.contains(&problem)), "{manner:?}: {said}");
            assert!(!report.is_ready());
        }

        *ledger.manner.lock() = Manner::Sound;
        tokio::time::sleep(MINUTE).await;
        let status = report.status();
        assert_eq!((status.standing.as_str(), status.problem), ("shared", None), "{manner:?}: {}", lines());
        assert!(lines().lines().last().is_some_and(|line| line.contains("shared with the fleet")), "{}", lines());
        leave.send(()).unwrap();
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn members_with_other_floors_are_told_and_the_last_one_has_none() {
    let (log, _guard) = Written::new();
    let clock = Clock::start();
    let ledger = InMemoryLedger::declared_new(clock, micros(FleetConfig::default().lease));
    let mut members = Vec::new();
    for (percent, size) in [(20, 4), (20, 4), (50, 2)] {
        let size = NonZeroU32::new(size).unwrap();
        let down = StoreDown::Floor(Floor { percent, members: size });
        let config = FleetConfig { size: Some(size), down, ..FleetConfig::default() };
        let (member, sharing) = FleetMember::new(ledger.clone(), "redis://store.example".into(), &config, clock);
        let report = member.report.clone();
        let (leave, left) = oneshot::channel();
        let task = tokio::spawn(member.run(Weak::new(), left));
        members.push((leave, task, report, sharing));
        tokio::time::sleep(MINUTE).await;
    }
    let told = "others of the fleet have another fleet-size or floor";
    assert_eq!(log.text().matches(told).count(), 3, "{}", log.text());
    for (_, _, report, _) in &members {
        let status = report.status();
        assert_eq!((status.standing.as_str(), status.problem.as_deref()), ("shared", Some(told)));
    }
    let seated = |members: &Vec<(_, _, _, Sharing)>| -> Vec<bool> {
        members.iter().map(|(_, _, _, sharing)| sharing.lease.is_seated()).collect()
    };
    assert_eq!(seated(&members), [true, true, false]);
    // The others end, so no member is left with another floor.
    for (leave, task, ..) in members.drain(..2) {
        leave.send(()).unwrap();
        task.await.unwrap();
    }
    tokio::time::sleep(MINUTE).await;
    assert_eq!((seated(&members), members[0].2.status().problem), (vec![true], None));
}
