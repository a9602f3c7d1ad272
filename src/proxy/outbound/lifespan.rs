//! Facts that decide whether a connection to an upstream may carry another request: its birth, its last use, its
//! announced end, and its peer's address.

use std::{collections::HashSet, net::IpAddr, time::Duration};

use crate::{clock::Instant, config::Timeouts, proxy::message::keep_alive::KeepAlive};

/// A connection is not reused this shortly before its announced end: a request that may not be repeated would be lost.
/// undici keeps the same margin.
const MARGIN_BEFORE_ANNOUNCED_END: Duration = Duration::from_secs(1);

/// Configured bounds on how long a connection is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReuseLimits {
    /// `timeouts.upstream-keep-alive`: maximum time without a request.
    idle: Duration,
    /// `timeouts.upstream-max-age`: maximum age.
    age: Duration,
}

/// Facts about one connection.
#[derive(Clone, Debug)]
pub(crate) struct Lifespan {
    born: Instant,
    last_used: Instant,
    /// Time for which the upstream keeps the connection after an answer, if announced.
    announced_idle: Option<Duration>,
    /// Last `max` that the upstream announced.
    announced_max: Option<u32>,
    /// Number of answers on the connection.
    answered: u32,
    /// Number of answers after which the upstream closes the connection.
    last_answer: Option<u32>,
    /// Address of the peer, if known.
    peer: Option<IpAddr>,
}

/// Addresses of an upstream's name, as reported by a name server. A name may have thousands, and each connection of the
/// host looks up its own.
pub(crate) struct ReportedAddresses {
    asked_at: Instant,
    /// Addresses in canonical form.
    all: HashSet<IpAddr>,
    has_v4: bool,
    has_v6: bool,
}

// === impl ReportedAddresses ===

impl ReportedAddresses {
    /// The addresses in `list`, as the answer to a question that was asked at `asked_at`.
    pub(crate) fn new(asked_at: Instant, list: &[IpAddr]) -> Self {
        let all: HashSet<_> = list.iter().map(IpAddr::to_canonical).collect();
        let (has_v4, has_v6) = (all.iter().any(IpAddr::is_ipv4), all.iter().any(IpAddr::is_ipv6));
        Self { asked_at, all, has_v4, has_v6 }
    }
}

// === impl ReuseLimits ===

impl ReuseLimits {
    pub(crate) fn of(timeouts: &Timeouts) -> Self {
        Self { idle: timeouts.upstream_keep_alive, age: timeouts.upstream_max_age }
    }

    /// Limits of connections that a worker may have logged in: they end with the worker, and not in the middle of a
    /// login.
    pub(crate) fn of_any_age(self) -> Self {
        Self { age: Duration::MAX, ..self }
    }

    /// Returns whether a connection that is unused `since` then has been idle for too long.
    pub(crate) fn is_idle_over(&self, since: Instant, now: Instant) -> bool {
        now.since(since) >= self.idle
    }
}

// === impl Lifespan ===

impl Lifespan {
    /// Begins `now`, at a connection to `peer`.
    pub(crate) fn new(now: Instant, peer: Option<IpAddr>) -> Self {
        Self {
            born: now,
            last_used: now,
            announced_idle: None,
            announced_max: None,
            answered: 0,
            last_answer: None,
            peer: peer.map(|peer| peer.to_canonical()),
        }
    }

    /// Records an answer's head and the limits that it `announced`.
    pub(crate) fn on_answer(&mut self, announced: KeepAlive) {
        self.answered = self.answered.saturating_add(1);
        self.announced_idle = announced.timeout.or(self.announced_idle);
        if let Some(max) = announced.max {
            // A falling value counts the requests left; a constant value counts all.
            let counts_down = self.announced_max.is_some_and(|before| max < before);
            let left = if counts_down { max } else { max.saturating_sub(self.answered) };
            self.last_answer = Some(self.answered.saturating_add(left));
            self.announced_max = Some(max);
        }
    }

    /// Records that the answer was read to its end.
    pub(crate) fn on_release(&mut self, now: Instant) {
        self.last_used = now;
    }

    /// Returns whether the connection may carry another request, by all clocks and counts.
    pub(crate) fn is_reusable(&self, now: Instant, limits: &ReuseLimits) -> bool {
        let idle_for = now.since(self.last_used);
        let announced_end = self.announced_idle.is_some_and(|idle| idle_for + MARGIN_BEFORE_ANNOUNCED_END >= idle);
        !announced_end
            && !self.is_counted_out()
            && !limits.is_idle_over(self.last_used, now)
            && !self.is_too_old(now, limits)
    }

    /// Returns whether the connection's last answer has come, by the announced number.
    pub(crate) fn is_counted_out(&self) -> bool {
        self.last_answer.is_some_and(|last| self.answered >= last)
    }

    /// Returns whether the connection was made too long ago.
    pub(crate) fn is_too_old(&self, now: Instant, limits: &ReuseLimits) -> bool {
        now.since(self.born) >= limits.age
    }

    /// Returns whether the upstream is `reported` at other addresses. A report without any address of the peer's family
    /// is ignored: some name servers do not answer for both families in time.
    pub(crate) fn has_moved(&self, reported: &ReportedAddresses) -> bool {
        let Some(peer) = self.peer.filter(|_| self.born < reported.asked_at) else { return false };
        let is_family_reported = if peer.is_ipv4() { reported.has_v4 } else { reported.has_v6 };
        is_family_reported && !reported.all.contains(&peer)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::clock::assert_linear;

    const LIMITS: ReuseLimits = ReuseLimits { idle: Duration::from_secs(60), age: Duration::from_secs(3600) };

    fn at(seconds: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(seconds)
    }

    fn announced(timeout: Option<u64>, max: Option<u32>) -> KeepAlive {
        KeepAlive { timeout: timeout.map(Duration::from_secs), max }
    }

    #[test]
    fn connection_is_left_a_second_before_its_announced_end() {
        for (timeout, last) in [(5, 3.9), (2, 0.9), (100, 59.9)] {
            let mut life = Lifespan::new(at(0.0), None);
            life.on_answer(announced(Some(timeout), None));
            life.on_release(at(10.0));
            assert!(life.is_reusable(at(10.0 + last), &LIMITS), "{timeout}");
            assert!(!life.is_reusable(at(10.0 + last + 0.1), &LIMITS), "{timeout}");
        }
    }

    #[test]
    fn connection_that_is_kept_for_a_second_or_less_is_not_used_again() {
        for timeout in [0, 1] {
            let mut life = Lifespan::new(at(0.0), None);
            life.on_answer(announced(Some(timeout), None));
            assert!(!life.is_reusable(at(0.0), &LIMITS), "{timeout}");
        }
    }

    #[test]
    fn age_is_counted_from_the_beginning_and_not_from_the_last_use() {
        let mut life = Lifespan::new(at(0.0), None);
        life.on_release(at(3590.0));
        assert!(life.is_reusable(at(3599.0), &LIMITS));
        assert!(!life.is_reusable(at(3600.0), &LIMITS));
        assert!(life.is_reusable(at(3600.0), &LIMITS.of_any_age()));
    }

    /// Number of requests that a connection carries whose answers announce these values.
    fn carried(announcements: impl IntoIterator<Item = u32>) -> usize {
        let mut life = Lifespan::new(at(0.0), None);
        let mut carried = 0;
        for max in announcements {
            life.on_answer(announced(None, Some(max)));
            carried += 1;
            if !life.is_reusable(at(0.0), &LIMITS) {
                break;
            }
        }
        carried
    }

    #[test]
    fn as_many_requests_are_sent_as_were_announced_counted_down_or_in_all() {
        assert_eq!(carried((0..5).rev()), 5, "Apache: 4 more, 3 more, and so on");
        assert_eq!(carried([5; 20]), 5, "Node: 5 in all");
        assert_eq!(carried([0]), 1);
        assert_eq!(carried([u32::MAX; 20]), 20);
    }

    fn reported(seconds: f64, addresses: &[IpAddr]) -> ReportedAddresses {
        ReportedAddresses::new(at(seconds), addresses)
    }

    /// As many addresses as fit into the largest answer of a name server, for as many connections as a host may keep.
    #[test]
    fn largest_answer_of_a_name_server_is_compared_with_all_connections_in_linear_time() {
        let address = |number: usize| IpAddr::V4(Ipv4Addr::from_bits(number as u32));
        assert_linear(
            "addresses and connections",
            4096,
            |count| (0..count).map(address).collect::<Vec<_>>(),
            |list| {
                let reported = ReportedAddresses::new(at(2.0), list);
                let moved = (0..list.len() / 4).filter(|number| {
                    let life = Lifespan::new(at(1.0), Some(address(list.len() + number)));
                    life.has_moved(&reported)
                });
                assert_eq!(moved.count(), list.len() / 4);
            },
        );
    }

    #[test]
    fn connection_has_moved_if_its_family_is_reported_elsewhere_later() {
        let (old, new) = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));
        let other_family = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let life = Lifespan::new(at(1.0), Some(old));
        assert!(life.has_moved(&reported(2.0, &[new, other_family])));
        assert!(!life.has_moved(&reported(2.0, &[new, old])), "it is still one of them");
        assert!(!life.has_moved(&reported(2.0, &[other_family])), "nothing is said of its family");
        assert!(!life.has_moved(&reported(0.5, &[new])), "it was made after that");
        assert!(!Lifespan::new(at(1.0), None).has_moved(&reported(2.0, &[new])));
        let mapped = Lifespan::new(at(1.0), Some("::ffff:192.0.2.1".parse().unwrap()));
        assert!(!mapped.has_moved(&reported(2.0, &[old])));
    }
}
