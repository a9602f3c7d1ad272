//! CONNECT: connects, and leaves a blind tunnel behind. It takes a permit like any request, and holds it until it ends.

use http::Response;
use tracing::info;

use crate::{
    learn::AnswerReport,
    proxy::{
        call::{Admitted, Answered, Call},
        exchange::Exchange,
        outbound::{response_body::ResponseBody, route::Route},
        steps::read::check_tunnel,
        takeover::{Takeover, TunnelUse},
    },
};

/// Connects, and only then says so (RFC 9110 §9.3.6); what the client sends before that stays unread.
pub(crate) async fn open(admitted: Admitted) -> Answered {
    let Admitted { call, mut permit, .. } = admitted;
    let Call { exchange, request, route, .. } = *call;
    let policy = route.lane.policy();
    let dial = || route.dialer().connect(&route.origin, &policy.egress, policy.allow_private);
    let begun = exchange.attempt_begins();
    permit.connecting();
    let dialled = exchange.session.pool.with_room(&exchange.proxy.drain, dial).await;
    exchange.attempt_ends(begun);
    let upstream = dialled.inspect_err(|_| permit.not_connected())?;
    let (exposed, rules) = (exchange.proxy.access.exposed, || exchange.proxy.lanes.rules());
    let use_of = match policy.is_limited() {
        _ if exposed && check_tunnel(&route.origin, &rules()).is_err() => TunnelUse::PlainHttp,
        true => TunnelUse::Limited,
        false => TunnelUse::Blind,
    };
    if use_of == TunnelUse::Blind {
        permit.sent();
        permit.answered(&AnswerReport::SERVED, exchange.proxy.clock.now());
        say_unseen(&exchange, &route);
    }
    exchange.hand_over(Takeover::Tunnel { request, route, upstream, permit, use_of });
    Ok(Response::new(ResponseBody::Own(None)))
}

/// Says that what is inside is not seen, unless that was asked for.
fn say_unseen(exchange: &Exchange, route: &Route) {
    let host = &route.origin.host;
    if route.lane.policy().https.is_none() && exchange.proxy.reports.throttle.is_newly_unseen(host) {
        info!(
            %host,
            "a blind tunnel: requests inside are neither paced nor sent again after a 429; to change that, start with \
             --intercept {host} and let workers trust the CA (andante env), use andante run, or call the API by a \
             gateway address; https = \"tunnel\" in a rule for the host says that it is meant"
        );
    }
}
