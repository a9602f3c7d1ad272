//! Records clients that leave before their answer: of requests, and of turns inside tunnels.

use std::{sync::atomic::Ordering, time::Duration};

use tracing::warn;

use super::{context::Proxy, log_throttle::LogTopic};
use crate::{clock::log_seconds, lane::Lane};

/// Records that a client of `lane` has left, `waited` after its request had come; `queued` says that the request was
/// waiting for a slot. If clients keep leaving after the same time, their time-out is too short for the queue, and only
/// andante can see that.
pub(crate) fn record(proxy: &Proxy, lane: &Lane, waited: Duration, queued: bool) {
    let now = proxy.clock.now();
    let Some(usual) = lane.departures().record(now, waited, queued) else { return };
    if proxy.reports.own_clients.load(Ordering::Relaxed) {
        return;
    }
    if proxy.reports.throttle.is_due(LogTopic::Departures, lane.host(), now) {
        let (host, rule, stats) = (lane.host(), &lane.policy().name, lane.departures().stats());
        warn!(
            %host, %rule, after_s = log_seconds(usual), left = stats.total,
            in_queue = stats.queued,
            "clients keep leaving before their answer, most of them after the same time: probably a time-out of their \
             own; raise it in the client (docs/troubleshooting.md names the usual ones), or send fewer requests at once"
        );
    }
}
