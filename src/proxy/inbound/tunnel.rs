//! Serves a tunnel whose connection is made. By the client's first bytes, it becomes a blind tunnel, a tunnel paced by
//! turns, an intercepted tunnel, or plain HTTP paced by request.

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::net::TcpStream;
use tracing::{debug, info, warn};

use super::{
    intercept::{self, LeftAlone},
    relay, server_name,
    socket::Socket,
    turn_lanes::{Origins, TurnLanes},
    turn_relay,
};
use crate::{
    clock::log_seconds,
    learn::AnswerReport,
    metrics::CallOutcome,
    policy::{Https, NamedTunnel, Origin, Scheme},
    proxy::{
        context::Proxy,
        exchange::Exchange,
        log_throttle::LogTopic,
        message::client_hello::ClientHello,
        outbound::route::Route,
        takeover::{TunnelPace, TunnelTerms},
    },
    tls::Protocol,
};

/// Maximum time that a silent tunnel keeps its slot. An unspent slot blocks its lane: silent tunnels could take all
/// slots of a limit.
const FIRST_BYTES_WITHIN: Duration = Duration::from_millis(500);

/// Protocol that a client begins to speak.
#[derive(Debug)]
enum FirstBytes {
    Http(Protocol),
    Tls,
    /// Another protocol, or the upstream sends first.
    Other,
    /// Neither side has sent anything for as long as `idle`.
    Nothing,
}

/// Serves the tunnel to its end.
pub(super) async fn serve(
    exchange: Arc<Exchange>,
    route: Arc<Route>,
    mut client: Socket,
    upstream: TcpStream,
    mut terms: TunnelTerms,
) {
    let (may_name, plain_http_only) = (exchange.proxy.lanes.rules().may_name(), terms.plain_http_only);
    let mut first = first_bytes(&exchange, &route, &mut client, &upstream, &mut terms.pace).await;
    // Without limits, requests for another host pass unseen: the tunnel may lead to a proxy, or to a host by its address.
    if !plain_http_only
        && is_unlimited(&route, &terms.pace)
        && matches!(first, FirstBytes::Http(Protocol::Http1))
        && !client.peek().await.is_ok_and(|head| is_for(head, &route.origin))
    {
        first = FirstBytes::Other;
    }
    match first {
        FirstBytes::Http(protocol) => {
            // An unspent slot is returned. The tunnel's connection serves the first of the requests.
            terms.pace.give_back();
            intercept::plain(exchange, route, client, protocol, upstream).await;
        }
        // With limits, a blind tunnel would let any number of requests through for one slot, and to any name.
        FirstBytes::Nothing => {
            let (host, silent_s) = (&route.origin.host, log_seconds(exchange.progress.timeouts().idle));
            info!(%host, client = %exchange.session.address, silent_s, timeout = "idle", "ended a silent tunnel");
            route.lane.metrics().count(CallOutcome::Tunnelled);
        }
        _ if plain_http_only => intercept::end_other_port(&exchange, &route, client).await,
        FirstBytes::Tls => {
            settle_unlimited(&exchange, &route, &mut terms.pace);
            if !may_name && matches!(terms.pace, TunnelPace::Unpaced) {
                return blind(exchange, route, client, upstream, terms, Origins::new()).await;
            }
            let hello = server_name::client_hello(&exchange, &mut client).await;
            let Some(hello) = hello.or_else(|| (!may_name).then(ClientHello::default)) else {
                return server_name::unreadable(&exchange, &route);
            };
            by_hello(exchange, route, client, upstream, terms, hello).await;
        }
        FirstBytes::Other => {
            settle_unlimited(&exchange, &route, &mut terms.pace);
            blind(exchange, route, client, upstream, terms, Origins::new()).await;
        }
    }
}

/// Serves the tunnel of an intercepted target that the rule of the name in its `hello` leaves alone. Its CONNECT had the
/// fields `stated`.
pub(super) async fn connect(exchange: Arc<Exchange>, left: LeftAlone, stated: HeaderMap) {
    let LeftAlone { route, client, hello } = left;
    let policy = route.lane.policy();
    let dial = || route.dialer().connect(&route.origin, &policy.egress, policy.allow_private);
    let upstream = match exchange.session.pool.with_room(&exchange.proxy.drain, dial).await {
        Ok(upstream) => upstream,
        Err(error) => return debug!(%error, "a tunnel could not be connected"),
    };
    let terms = TunnelTerms { pace: TunnelPace::Turns, stated, plain_http_only: false };
    by_hello(exchange, route, client, upstream, terms, hello).await;
}

/// Serves a tunnel to `route` with TLS inside, by the rules for its target and for the name in its `hello`.
async fn by_hello(
    exchange: Arc<Exchange>,
    route: Arc<Route>,
    client: Socket,
    upstream: TcpStream,
    mut terms: TunnelTerms,
    hello: ClientHello,
) {
    let rules = exchange.proxy.lanes.rules();
    let name = hello.server_name.as_deref().and_then(|name| server_name::origin_of(name, &route.origin));
    let named = name.as_ref().map(|name| rules.named(&route.origin, name));
    let https = named.map_or_else(|| rules.https(&route.origin, route.lane.policy()), |named| named.https);
    match https {
        Https::Refuse => return server_name::refused(&exchange, &route, name.as_ref()),
        Https::Intercept => {
            drop(upstream);
            terms.pace.give_back();
            // By the same rules, interception leaves no tunnel alone here.
            return drop(intercept::serve(exchange, client, route).await);
        }
        Https::Turns | Https::Tunnel => {}
    }
    let NamedTunnel { by_target, by_name, .. } =
        named.unwrap_or(NamedTunnel { https, by_target: true, by_name: false });
    let mut origins: Origins = name.filter(|_| by_name).into_iter().collect();
    let pace = std::mem::replace(&mut terms.pace, TunnelPace::Unpaced);
    if by_target && !matches!(pace, TunnelPace::Unpaced) {
        origins.push(route.origin.clone());
    }
    // Lanes are asked in a fixed order: two tunnels must not each hold a slot that the other one waits for.
    pace.give_back();
    if https == Https::Tunnel {
        return blind(exchange, route, client, upstream, terms, origins).await;
    }
    let Some(lanes) = find_lanes(&exchange, &route, origins, terms.stated) else { return };
    let Some(first) = lanes.current(&exchange).first().map(|of| of.lane.clone()) else {
        return relay::tunnel(exchange, &route, client, upstream, relay::Permits::new()).await;
    };
    if hello.offers_http2 {
        note_http2_offered(&exchange.proxy, &first, exchange.session.address);
    }
    turn_relay::relay(exchange, client, upstream, lanes).await;
    route.lane.metrics().count(CallOutcome::Tunnelled);
}

/// The lanes of `origins` with limits. `None` if the tunnel is closed, since its terms do not fit them.
fn find_lanes(exchange: &Exchange, route: &Route, origins: Origins, stated: HeaderMap) -> Option<TurnLanes> {
    let lanes = TurnLanes::find(exchange, origins, stated);
    if lanes.is_none() {
        route.lane.metrics().count(CallOutcome::Rejected);
    }
    lanes
}

/// Relays a blind tunnel for one slot of each limited lane: of those of `origins`, and of its own host by its pace.
async fn blind(
    exchange: Arc<Exchange>,
    route: Arc<Route>,
    client: Socket,
    upstream: TcpStream,
    terms: TunnelTerms,
    mut origins: Origins,
) {
    let TunnelTerms { pace, stated, .. } = terms;
    let (mut permits, turns) = (relay::Permits::new(), matches!(pace, TunnelPace::Turns));
    match pace {
        TunnelPace::Unpaced => {}
        TunnelPace::Slot(permit) => permits.push(permit),
        TunnelPace::Turns => origins.push(route.origin.clone()),
    }
    if !origins.is_empty() {
        let Some(lanes) = find_lanes(&exchange, &route, origins, stated) else { return };
        match turn_relay::take_once(&exchange, &lanes).await {
            Some(taken) => permits.extend(taken),
            None => return,
        }
    }
    let now = exchange.proxy.clock.now();
    for permit in &mut permits {
        permit.sent_at(now);
        permit.answered(&AnswerReport::SERVED, now);
    }
    if !permits.is_empty() {
        warn_blind(&exchange, &route, turns);
    }
    relay::tunnel(exchange, &route, client, upstream, permits).await;
}

/// Logs that a limit counts tunnels only: because a rule says so, or although `turns` were to be counted.
fn warn_blind(exchange: &Exchange, route: &Route, turns: bool) {
    let (proxy, host) = (&exchange.proxy, &route.origin.host);
    if !proxy.reports.throttle.is_due(LogTopic::BlindTunnel, host, proxy.clock.now()) {
        return;
    }
    if turns {
        warn!(
            %host,
            client = %exchange.session.address,
            "a tunnel to a host with limits carries neither TLS nor HTTP: it takes one slot until its end, whatever is \
             sent in it"
        );
    } else {
        warn!(
            %host,
            "a limit is set for this host, but only tunnels to it are counted, not the requests inside; to pace those, \
             leave out https = \"tunnel\", or start with --intercept {host} and let workers trust the CA (andante env)"
        );
    }
}

/// Returns whether the tunnel's own host has neither limits nor turns.
fn is_unlimited(route: &Route, pace: &TunnelPace) -> bool {
    !route.lane.policy().is_limited() && !matches!(pace, TunnelPace::Turns)
}

/// Returns whether the request that begins with `head` is for `origin`, as far as its target and its whole lines show.
fn is_for(head: &[u8], origin: &Origin) -> bool {
    let head = String::from_utf8_lossy(head);
    let (whole, _) = head.rsplit_once('\n').unwrap_or_default();
    let target = head.split([' ', '\r', '\n']).nth(1).unwrap_or_default();
    let fields = whole.lines().skip(1).take_while(|line| !line.is_empty());
    let host = fields.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let is_own = |host: &str| {
        let named = Origin::parse(Scheme::Http, host.trim(), Some(origin.port));
        named.is_ok_and(|named| named.host == origin.host && named.port == origin.port)
    };
    (target.is_empty() || target.starts_with(['/', '*'])) && host.is_none_or(|(_, host)| is_own(host))
}

/// Settles a tunnel to a host without limits whose content is not seen: it does not count as in flight, and the log says
/// that it is blind, unless a rule asks for that.
fn settle_unlimited(exchange: &Exchange, route: &Route, pace: &mut TunnelPace) {
    let policy = route.lane.policy();
    if !is_unlimited(route, pace) {
        return;
    }
    spend(exchange, route, pace);
    let host = &route.origin.host;
    // A drain ends the wait for the first bytes: whether they are blind is unknown then.
    let is_blind = !exchange.proxy.is_draining();
    if is_blind && policy.https.is_none() && exchange.proxy.reports.throttle.is_newly_unseen(host) {
        info!(
            %host,
            "a blind tunnel: requests inside are neither paced nor sent again after a 429; to change that, start with \
             --intercept {host} and let workers trust the CA (andante env), use andante run, or call the API by a \
             gateway address; https = \"tunnel\" in a rule for the host says that it is meant"
        );
    }
}

/// Spends the slot of a tunnel. Only a host with limits keeps it in flight until the tunnel's end.
fn spend(exchange: &Exchange, route: &Route, pace: &mut TunnelPace) {
    if let TunnelPace::Slot(permit) = pace {
        permit.sent();
        permit.answered(&AnswerReport::SERVED, exchange.proxy.clock.now());
        if !route.lane.policy().is_limited() {
            *pace = TunnelPace::Unpaced;
        }
    }
}

/// Records that `client` offers HTTP/2 in a tunnel to the host of `lane`, which is paced by turns.
fn note_http2_offered(proxy: &Proxy, lane: &crate::lane::Lane, client: IpAddr) {
    lane.metrics().offered_http2();
    let host = lane.host();
    if proxy.reports.throttle.is_new_http2_offer(host, client) {
        info!(
            %host,
            %client,
            "a client offers HTTP/2 inside of a tunnel that is paced by turns: its requests at once may count as one; for \
             an exact count start with --intercept {host}, or let the client speak HTTP/1.1"
        );
    }
}

/// Waits for the client's first bytes. A slot is spent if they take too long.
async fn first_bytes(
    exchange: &Exchange,
    route: &Route,
    client: &mut Socket,
    upstream: &TcpStream,
    pace: &mut TunnelPace,
) -> FirstBytes {
    let clock = exchange.proxy.clock;
    let mut first = pin!(spoken_first(exchange, client, upstream));
    let first = tokio::select! {
        first = &mut first => first,
        () = clock.sleep_until(clock.now() + FIRST_BYTES_WITHIN) => {
            spend(exchange, route, pace);
            first.await
        }
    };
    first.unwrap_or(FirstBytes::Other)
}

async fn spoken_first(exchange: &Exchange, client: &mut Socket, upstream: &TcpStream) -> io::Result<FirstBytes> {
    let (proxy, mut there) = (&exchange.proxy, [0]);
    tokio::select! {
        biased;
        first = client.peek() => first.map(|first| match intercept::protocol(first) {
            Some(protocol) => FirstBytes::Http(protocol),
            None if server_name::is_tls(first) => FirstBytes::Tls,
            None => FirstBytes::Other,
        }),
        // A client that waits for the upstream to send first speaks neither HTTP nor TLS. The socket is peeked at,
        // because a connection that a parent proxy has made is still marked readable after the parent's answer.
        _ = upstream.peek(&mut there) => Ok(FirstBytes::Other),
        () = proxy.clock.sleep_until(proxy.clock.now() + exchange.progress.idle()) => Ok(FirstBytes::Nothing),
        () = proxy.drain.begun() => Ok(FirstBytes::Other),
    }
}
