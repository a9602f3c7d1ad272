//! Reports the outcome of turns inside tunnels: in metrics, among the lane's departed clients, as incidents and in the
//! log.

use std::time::Duration;

use tracing::warn;

use super::turn_lanes::TurnLane;
use crate::{
    lane::{Lane, Refusal},
    metrics::TurnOutcome,
    proxy::{client_aborts, exchange::Exchange, log_throttle::LogTopic, outbound, steps::wait},
};

/// Reports the `outcome` of a turn that has `waited` for its slots. There is a `refusal` if it was refused.
pub(super) fn on_outcome(
    exchange: &Exchange,
    lanes: &[TurnLane],
    outcome: TurnOutcome,
    refusal: Option<&Refusal>,
    waited: Duration,
) {
    for lane in lanes.iter().map(|of| &of.lane) {
        lane.metrics().turned(outcome);
        match outcome {
            TurnOutcome::Sent => wait::stayed(lane, waited),
            TurnOutcome::Left => client_aborts::record(&exchange.proxy, lane, waited, true),
            TurnOutcome::Closed => on_close(exchange, lane),
            TurnOutcome::Refused | TurnOutcome::Ended => {}
        }
    }
    if let Some(refusal) = refusal {
        on_refusal(exchange, lanes, refusal);
    }
}

/// Reports that a tunnel is closed because of `refusal`: there is no other answer.
pub(super) fn on_refusal(exchange: &Exchange, lanes: &[TurnLane], refusal: &Refusal) {
    let proxy = &exchange.proxy;
    let Some(lane) = lanes.first().map(|of| &of.lane) else { return };
    let (host, now) = (lane.host(), proxy.clock.now());
    let error = outbound::refusal::error(host, lane, refusal);
    proxy.reports.incidents.failed(&error, &error.with_causes(), now);
    if proxy.reports.throttle.is_due(LogTopic::TurnRefused, host, now) {
        warn!(
            %host,
            client = %exchange.session.address,
            %refusal,
            "closed a tunnel: a request inside may not wait for its slot any longer, and there is no other answer; \
             raise max-wait or the client's time-out, send fewer requests at once, or start with --intercept {host}"
        );
    }
}

/// Reports that the client finds its connection closed, although its request was never sent.
fn on_close(exchange: &Exchange, lane: &Lane) {
    let (proxy, host) = (&exchange.proxy, lane.host());
    let now = proxy.clock.now();
    proxy.reports.incidents.closed_in_queue(host, now);
    if proxy.reports.throttle.is_due(LogTopic::TurnClosed, host, now) {
        warn!(
            %host,
            client = %exchange.session.address,
            "the API closed a connection while a request in it waited for its slot: the wait was longer than the API \
             keeps idle connections; send fewer requests at once, or start with --intercept {host}, which needs no \
             connection while a request waits"
        );
    }
}
