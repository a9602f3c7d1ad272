//! CONNECT: connects, and hands over a tunnel. A CONNECT takes a permit like any request, unless the tunnel is paced by
//! turns. The tunnel's first bytes decide whether the permit is spent.

use http::{Method, Response};
use tokio::net::TcpStream;
use tracing::info;

use crate::{
    error::Error,
    policy::Https,
    proxy::{
        call::{Admitted, Answered, BoxedCall, Call},
        exchange::Exchange,
        outbound::{response_body::ResponseBody, route::Route},
        steps::{ask, read::check_tunnel},
        takeover::{Takeover, TunnelPace, TunnelTerms},
    },
};

/// Returns whether `call` asks for a tunnel that is paced by turns, and needs no slot itself.
pub(crate) fn is_by_turns(call: &Call) -> bool {
    let route = &call.route;
    *call.request.method() == Method::CONNECT
        && call.exchange.proxy.lanes.rules().https(&route.origin, route.lane.policy()) == Https::Turns
}

/// Connects, and answers only then (RFC 9110 §9.3.6); earlier bytes of the client stay unread.
pub(crate) async fn open(admitted: Admitted) -> Answered {
    let Admitted { call, mut permit, .. } = admitted;
    let (exchange, route) = (&call.exchange, &call.route);
    permit.connecting();
    let upstream = connect(exchange, route).await.inspect_err(|_| permit.not_connected())?;
    Ok(hand_over(*call, upstream, TunnelPace::Slot(permit)))
}

/// Connects without a slot: each turn inside asks for one.
pub(crate) async fn open_by_turns(call: BoxedCall) -> Answered {
    let upstream = connect(&call.exchange, &call.route).await?;
    say_turns(&call.exchange, &call.route);
    Ok(hand_over(*call, upstream, TunnelPace::Turns))
}

async fn connect(exchange: &Exchange, route: &Route) -> Result<TcpStream, Error> {
    let policy = route.lane.policy();
    let dial = || route.dialer().connect(&route.origin, &policy.egress, policy.allow_private);
    let begun = exchange.attempt_begins();
    let dialled = exchange.session.pool.with_room(&exchange.proxy.drain, dial).await;
    exchange.attempt_ends(begun);
    dialled
}

fn hand_over(call: Call, upstream: TcpStream, pace: TunnelPace) -> Response<ResponseBody> {
    let Call { exchange, request, route, .. } = call;
    let plain_http_only = is_plain_http_only(&exchange, &route);
    let stated = ask::stated(request.headers());
    let terms = Box::new(TunnelTerms { pace, stated, plain_http_only });
    exchange.hand_over(Takeover::Tunnel { request, route, upstream, terms });
    Response::new(ResponseBody::Own(None))
}

/// Returns whether the port of a tunnel along `route` is for plain HTTP only.
fn is_plain_http_only(exchange: &Exchange, route: &Route) -> bool {
    let proxy = &exchange.proxy;
    proxy.access.exposed && check_tunnel(&route.origin, &proxy.lanes.rules()).is_err()
}

/// Logs that requests are only counted by turns, unless a rule asks for that.
fn say_turns(exchange: &Exchange, route: &Route) {
    let host = &route.origin.host;
    if route.lane.policy().https.is_none() && exchange.proxy.reports.throttle.is_newly_unseen(host) {
        info!(
            %host,
            "HTTPS of this host is paced by turns: its limits hold for HTTP/1.1, but refusals, paths, methods and costs \
             are not seen, and nothing is sent again; to change that, start with --intercept {host} and let workers trust \
             the CA (andante ca env), use andante run, or call the API by a gateway address"
        );
    }
}
