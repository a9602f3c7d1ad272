//! Requirements of andante on the machine: ports, open files, the clock, a place for its state, and the store if there
//! is one.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rustix::process::{Resource, getrlimit};
use tokio::time;

use super::Finding;
use crate::{
    cli::{admin_client, wording},
    clock::{self, Clock},
    config::{Config, StatePlace},
    fleet::{Division, Extent, Lease, Member, MemberId, Terms, micros},
    listen,
    store::{LedgerError, RedisLedger},
};

/// Least number of open files: each waiting request holds a connection, and with fewer files a burst does not fit.
const FEW_FILES: u64 = 4096;
/// 2026-01-01, before andante's first release. A clock with an earlier time has never been set.
const YOUNGEST: Duration = Duration::from_secs(1_767_225_600);
/// Lateness of timers from which on pacing becomes random.
const LATE: Duration = Duration::from_millis(250);
/// Time limit for other programs' answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for a store: longer than the connection may take, whose own error is the better message.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Checks that andante can listen on the addresses.
pub(super) async fn ports(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for (address, admin) in
        config.listen.iter().map(|address| (*address, false)).chain(config.admin.map(|at| (at, true)))
    {
        let (name, flag) = if admin { ("admin port", "--admin") } else { ("port", "--listen") };
        found.push(match listen::bind(address) {
            Ok(_) => Finding::ok(name, format!("{address} is free")),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && andante_runs(config).await => {
                Finding::ok(name, format!("{address} is in use, and an andante answers on the admin address"))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::not_ok(
                name,
                format!("could not listen on {address}: {error}"),
                format!(
                    "`ss -ltnp 'sport = :{0}'` says who does; end that, or name another with {flag}",
                    address.port()
                ),
            ),
            Err(error) => Finding::not_ok(
                name,
                format!("could not listen on {address}: {error}"),
                format!("name an address of this machine, and a port above 1023, with {flag}"),
            ),
        });
    }
    found
}

/// Returns whether an andante answers at the admin address.
pub(super) async fn andante_runs(config: &Config) -> bool {
    let Some(admin) = config.admin.and_then(|admin| admin_client::address(Some(admin)).ok()) else { return false };
    let request = Request::get("/healthz").body(Full::new(Bytes::new())).expect("the request is valid");
    let answer = time::timeout(PATIENCE, admin_client::ask(admin, request)).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().is_success() && **answer.body() == *b"ok\n"))
}

/// Checks that enough files may be open.
pub(super) fn files() -> Finding {
    // andante raises the limit to the hard limit.
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let said = if most == u64::MAX { "any number".to_owned() } else { wording::count(most) };
    let detail = format!("{said} may be open; each request that waits takes one, or two where it is sent");
    match most < FEW_FILES {
        false => Finding::ok("open files", detail),
        true => Finding::not_ok(
            "open files",
            detail,
            format!(
                "allow at least {FEW_FILES}: `LimitNOFILE=65536` in the unit, `ulimit -Hn 65536`, --ulimit nofile=65536"
            ),
        ),
    }
}

/// Checks that the clock is set, and that timers fire in time.
pub(super) async fn clock() -> Finding {
    let clock = Clock::start();
    let mut latest = Duration::ZERO;
    for _ in 0..5 {
        let due = clock.now() + Duration::from_millis(10);
        clock.sleep_until(due).await;
        latest = latest.max(clock.now().since(due));
    }
    judge_clock(clock::wall(), latest)
}

fn judge_clock(wall: Duration, latest: Duration) -> Finding {
    let detail = format!("timers are at most {} late", wording::short(latest));
    if wall < YOUNGEST {
        let hint = "set it, or start a time service: calendar limits and certificates go by it";
        return Finding::not_ok("clock", "the system's clock says a time before andante was made", hint);
    }
    if latest > LATE {
        let hint = "give andante a core of its own, or a larger share: slots that come late are lost";
        return Finding::not_ok("clock", detail, hint);
    }
    Finding::ok("clock", detail)
}

/// Checks that the state can be written, if its place is configured.
pub(super) fn state(config: &Config) -> Option<Finding> {
    let StatePlace::At(path) = &config.state else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let tried = tempfile::tempfile_in(folder);
    Some(match tried {
        Ok(_) => Finding::ok("state", format!("{} can be written", folder.display())),
        Err(error) => Finding::not_ok(
            "state",
            format!("could not write into {}: {error}", folder.display()),
            "make the folder for the user that andante runs as, or name another file with --state",
        ),
    })
}

/// Checks that the store of the fleet executes andante's script.
pub(super) async fn store(config: &Config) -> Option<Finding> {
    let url = config.fleet.store.as_ref()?;
    let (clock, lease) = (Clock::start(), micros(config.fleet.lease));
    let asked = async {
        let mut ledger = RedisLedger::new(url)?;
        // As by a member that calls for the first time.
        let terms = Terms { lease, split: 0, division: Division::default() };
        let mut member = Member::new(MemberId(1), terms, Lease::default());
        ledger.try_out(&member.call(clock.now(), Extent::Some, Vec::new(), Vec::new())).await
    };
    Some(match time::timeout(STORE_PATIENCE, asked).await {
        Ok(Ok(true)) => Finding::ok("store", format!("{url} executes andante's script, and has the ledger of a fleet")),
        Ok(Ok(false)) => Finding {
            hint: Some("if it is new, run `andante fleet init` before the first andante starts".into()),
            ..Finding::ok(
                "store",
                format!(
                    "{url} executes andante's script, and has no fleet yet: requests under shared \
                     limits wait for a lease, a window and 2.5 s"
                ),
            )
        },
        Ok(Err(error)) => Finding::not_ok("store", format!("could not ask {url}: {error}"), error.remedy()),
        Err(_) => {
            let error = LedgerError(format!("{url} did not answer within {STORE_PATIENCE:?}"));
            Finding::not_ok("store", error.to_string(), error.remedy())
        }
    })
}

/// The ports on which workers reach andante.
pub(super) fn worker_ports(listen: &[SocketAddr]) -> Vec<u16> {
    listen.iter().map(SocketAddr::port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_never_set_and_late_timers_are_not_ok() {
        let (now, ms) = (YOUNGEST * 2, Duration::from_millis);
        assert!(judge_clock(now, ms(3)).ok);
        assert!(!judge_clock(Duration::from_secs(60), ms(3)).ok);
        assert!(!judge_clock(now, ms(900)).ok);
    }

    #[tokio::test]
    async fn a_port_that_somebody_has_is_not_ok() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config { listen: vec![taken.local_addr().unwrap()], admin: None, ..Config::default() };
        let found = ports(&config).await;
        assert!(!found[0].ok && found[0].detail.contains(&taken.local_addr().unwrap().to_string()), "{found:?}");
        let free = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], admin: None, ..Config::default() };
        assert!(ports(&free).await[0].ok);
    }

    #[test]
    fn a_state_without_a_folder_is_not_ok() {
        let at = |path: &str| Config { state: StatePlace::At(path.into()), ..Config::default() };
        assert!(!state(&at("/nowhere/at/all/state")).unwrap().ok);
        assert_eq!(state(&Config::default()), None);
        let folder = tempfile::tempdir().unwrap();
        assert!(state(&at(folder.path().join("state").to_str().unwrap())).unwrap().ok);
    }
}
