//! Logs a condition at most once in a period, regardless of how often it happens.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{clock::Instant, hint::Hopeless};

/// Minimum time between two lines about the same topic and host.
const PAUSE: Duration = Duration::from_secs(600);
/// Maximum number of topics and hosts whose last line is remembered. Beyond that there are no lines at all: a log is no
/// place for a list.
const MOST: usize = 1000;
/// Maximum number of hosts whose blind tunnels are logged, once for each host.
const MOST_UNSEEN: usize = 100;

/// Topic of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogTopic {
    /// A turn inside a tunnel that may not wait any longer.
    TurnRefused,
    /// Terms of a CONNECT that do not fit the rules.
    MisfitTerms,
    /// A connection that the API closed while a turn in it waited.
    TurnClosed,
    /// A server name that its rule does not let through a tunnel to another host.
    NameRefused,
    /// A tunnel was closed because its ClientHello could not be read.
    HelloUnreadable,
    /// Limits that a blind tunnel gets around.
    BlindTunnel,
    /// A client that does not accept andante's certificates, by its address: the remedy is the same for all hosts.
    Untrusted,
    /// A worker that accepts andante's certificate, and leaves.
    Unused,
    /// A host for which andante's CA has no certificate.
    Unsigned,
    /// Clients that leave after the same time.
    Departures,
    /// Connections to upstreams for which there is no file descriptor left.
    Descriptors,
    /// Requests of a client for which no memory is left.
    Memory,
    /// Connections of workers for which there is no file descriptor left.
    Unaccepted,
    /// Connections of workers that could not be accepted for another reason.
    AcceptFailed,
    /// Something in an intercepted tunnel that is neither TLS nor HTTP.
    NotHttp,
    /// Requests that an API refuses, and that waiting does not help.
    Hopeless(Hopeless),
}

/// Maximum number of pairs of host and client for which an offer of HTTP/2 is logged.
const MOST_HTTP2_OFFERS: usize = 1000;

/// Lines that were logged, with their times.
#[derive(Default)]
pub(crate) struct LogThrottle {
    /// Time of the last line.
    said: Mutex<HashMap<(LogTopic, Arc<str>), Instant>>,
    /// Hosts whose blind tunnels were logged.
    unseen: Mutex<HashSet<Arc<str>>>,
    /// Pairs of host and client for which an offer of HTTP/2 was logged.
    http2_offers: Mutex<HashSet<(Arc<str>, IpAddr)>>,
}

impl LogThrottle {
    /// Returns whether `notice` about `host` is to be logged now, and records that it was.
    pub(crate) fn is_due(&self, notice: LogTopic, host: &Arc<str>, now: Instant) -> bool {
        let mut said = self.said.lock();
        if said.len() >= MOST {
            said.retain(|_, at| now.since(*at) < PAUSE);
        }
        let key = (notice, host.clone());
        let due = said.get(&key).is_none_or(|at| now.since(*at) >= PAUSE);
        if due && said.len() < MOST {
            said.insert(key, now);
            return true;
        }
        false
    }

    /// Records that `client` offers HTTP/2 to `host`. Returns whether that is new, and to be logged.
    pub(crate) fn is_new_http2_offer(&self, host: &Arc<str>, client: IpAddr) -> bool {
        let mut offers = self.http2_offers.lock();
        offers.len() < MOST_HTTP2_OFFERS && offers.insert((host.clone(), client))
    }

    /// Returns whether to log that tunnels to `host` are blind, and records that it was logged.
    pub(crate) fn is_newly_unseen(&self, host: &Arc<str>) -> bool {
        let mut unseen = self.unseen.lock();
        unseen.len() < MOST_UNSEEN && unseen.insert(host.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_in_a_while() {
        let (throttle, host) = (LogThrottle::default(), Arc::from("a.test"));
        let due = |at| throttle.is_due(LogTopic::Untrusted, &host, Instant::START + at);
        assert!(due(Duration::ZERO));
        assert!(!due(PAUSE - Duration::from_secs(1)));
        assert!(throttle.is_due(LogTopic::BlindTunnel, &host, Instant::START));
        assert!(due(PAUSE));
    }

    #[test]
    fn that_a_host_is_not_seen_is_said_once() {
        let (throttle, [a, b]) = (LogThrottle::default(), ["a.test", "b.test"].map(Arc::from));
        assert_eq!([&a, &b, &a].map(|host| throttle.is_newly_unseen(host)), [true, true, false]);
    }

    #[test]
    fn many_hosts_do_not_fill_the_memory() {
        let throttle = LogThrottle::default();
        for host in 0..2 * MOST {
            throttle.is_due(LogTopic::NotHttp, &host.to_string().into(), Instant::START);
            throttle.is_newly_unseen(&host.to_string().into());
        }
        assert_eq!(throttle.unseen.lock().len(), MOST_UNSEEN);
        assert_eq!(throttle.said.lock().len(), MOST);
    }
}
