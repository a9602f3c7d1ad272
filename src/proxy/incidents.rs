//! Failures so far, by cause, for `/status`.

use parking_lot::Mutex;

use crate::{
    clock::Instant,
    error::{Blame, Error},
    hint::Hopeless,
    lane::Refusal,
};

/// Failures in this process.
#[derive(Debug, Default)]
pub struct Incidents(Mutex<Vec<Incident>>);

/// A kind of failure, with its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The kind: an error type of RFC 9209, the outcome of a tunnel, or [`Incidents::HOPELESS`].
    pub kind: &'static str,
    /// Description of the failure, with the host; never a credential.
    pub detail: String,
    /// Remedy.
    pub hint: String,
    /// Party that can fix it: `client`, `proxy` or `upstream`.
    pub blame: &'static str,
    /// Number of requests or tunnels that have failed for it.
    pub total: u64,
    /// Time of the last occurrence.
    pub last: Instant,
}

/// Maximum number of incidents that are distinguished. A further one replaces the one that has not happened for
/// longest.
const MOST: usize = 50;

// === impl Incidents ===

impl Incidents {
    /// The kind of a worker that does not trust andante's certificates.
    pub const UNTRUSTED: &str = "untrusted_ca";
    /// The kind of workers that accept andante's certificate, and leave without a request.
    pub const UNUSED: &str = "no_request";
    /// The kind of workers that leave while andante finds out the API's protocol.
    pub const LEFT_EARLY: &str = "left_early";
    /// The kind of an intercepted tunnel that failed for another reason.
    pub const NOT_INTERCEPTED: &str = "interception_failed";
    /// The kind of an intercepted tunnel that holds neither TLS nor HTTP.
    pub const NOT_HTTP: &str = "not_http";
    /// The kind of requests inside tunnels whose connection the API closed while they waited.
    pub const CLOSED_IN_QUEUE: &str = "closed_in_queue";
    /// The kind of refusals that waiting does not help: a cap on spending, a request that is too large.
    pub const HOPELESS: &str = "waiting_does_not_help";

    /// Adds a request that failed with `error`; `text` is the error with its causes.
    pub(crate) fn failed(&self, error: &Error, text: &str, now: Instant) {
        let detail = match error {
            // Numbers that differ from request to request do not make another cause. Times until a cap is renewed are
            // such numbers, too.
            Error::Refused { host, cause, .. } if *cause == Refusal::CAPPED => format!("{host}: {cause}"),
            Error::Refused { host, cause, obstacle, .. } => {
                let obstacle = obstacle.as_ref().map_or_else(String::new, |obstacle| format!("; {}", obstacle.what));
                format!("{host}: {cause}{obstacle}")
            }
            _ => text.to_owned(),
        };
        let (kind, hint, blame) = (error.proxy_status(), error.hint().to_owned(), name(error.blame()));
        self.add(Incident { kind, detail, hint, blame, total: 1, last: now });
    }

    /// Adds an intercepted tunnel that has failed.
    pub(crate) fn not_intercepted(&self, kind: &'static str, detail: String, hint: impl Into<String>, now: Instant) {
        let (hint, blame) = (hint.into(), name(Blame::Client));
        self.add(Incident { kind, detail, hint, blame, total: 1, last: now });
    }

    /// Adds a request inside a tunnel to `host`, whose connection the API closed while the request waited for its slot.
    pub(crate) fn closed_in_queue(&self, host: &str, now: Instant) {
        let detail = format!("{host}: the API closed a connection while a request in a tunnel waited for its slot");
        let hint = format!(
            "send fewer requests at once, or start with --intercept {host}: then no connection is needed while a request waits"
        );
        let (kind, blame) = (Self::CLOSED_IN_QUEUE, name(Blame::Us));
        self.add(Incident { kind, detail, hint, blame, total: 1, last: now });
    }

    /// Adds a request that an API has refused, if waiting does not help.
    pub(crate) fn hopeless(&self, host: &str, why: Hopeless, now: Instant) {
        let detail = format!("{host}: refused, and waiting does not help: {}", why.reason());
        let hint = why.remedy().to_owned();
        self.add(Incident { kind: Self::HOPELESS, detail, hint, blame: name(Blame::Client), total: 1, last: now });
    }

    /// All known incidents, the most frequent first.
    pub fn all(&self) -> Vec<Incident> {
        let mut all = self.0.lock().clone();
        all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.detail.cmp(&b.detail)));
        all
    }

    fn add(&self, incident: Incident) {
        let mut known = self.0.lock();
        if let Some(known) = known.iter_mut().find(|one| one.kind == incident.kind && one.detail == incident.detail) {
            known.total += 1;
            known.last = incident.last;
            return;
        }
        if known.len() >= MOST
            && let Some(oldest) = (0..known.len()).min_by_key(|index| known[*index].last)
        {
            known.swap_remove(oldest);
        }
        known.push(incident);
    }
}

/// Name of the party, in answers and in `/status`.
pub(crate) fn name(blame: Blame) -> &'static str {
    match blame {
        Blame::Client => "client",
        Blame::Us => "proxy",
        Blame::Upstream => "upstream",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> Instant {
        Instant::START + Duration::from_secs(second)
    }

    fn dns(host: &str) -> Error {
        Error::DnsTimeout { host: host.into() }
    }

    #[test]
    fn the_same_cause_is_one_incident() {
        let incidents = Incidents::default();
        for (second, host) in [(1, "a.test"), (2, "b.test"), (3, "b.test")] {
            let error = dns(host);
            incidents.failed(&error, &error.to_string(), at(second));
        }
        for (waiting, cause) in [(1, "late"), (2, "late"), (3, "late"), (5, "full"), (6, "full"), (7, Refusal::CAPPED)]
        {
            let why = format!("it would wait behind {waiting} others");
            let error = Error::Refused {
                host: "c.test".into(),
                why,
                cause,
                rule: "c.test".into(),
                obstacle: None,
                retry_after: Duration::ZERO,
            };
            incidents.failed(&error, &error.to_string(), at(4));
        }
        let told: Vec<_> = incidents.all().into_iter().map(|one| (one.kind, one.total, one.last)).collect();
        let denied = "http_request_denied";
        let mut expected = vec![(denied, 3, at(4)), (denied, 2, at(4)), ("dns_timeout", 2, at(3))];
        expected.extend([(denied, 1, at(4)), ("dns_timeout", 1, at(1))]);
        assert_eq!(told, expected, "each cause of a refusal is one");
    }

    #[test]
    fn many_causes_do_not_fill_the_memory_and_the_oldest_goes() {
        let incidents = Incidents::default();
        for second in 0..3 * MOST as u64 {
            let error = dns(&format!("{second}.test"));
            incidents.failed(&error, &error.to_string(), at(second));
        }
        let all = incidents.all();
        assert_eq!(all.len(), MOST);
        assert!(all.iter().all(|one| one.last >= at(2 * MOST as u64)));
    }
}
