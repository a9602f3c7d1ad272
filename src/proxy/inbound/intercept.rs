//! Tunnels whose host is intercepted: their requests are handled like all others.
//!
//! An intercepted tunnel never falls back to a blind one: a tunnel with neither TLS nor HTTP is ended, and the log
//! names the remedy.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::AlertDescription;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::LazyConfigAcceptor;
use tracing::{debug, warn};

use super::{
    http1, http2, relay,
    server_name::{self, HANDSHAKE},
    socket::Socket,
};
use crate::{
    ca::{Alpn, CaError},
    metrics::TunnelContent,
    policy::{self, Https, Origin, Scheme},
    proxy::{
        context::Proxy,
        exchange::Exchange,
        incidents::Incidents,
        log_throttle::LogTopic,
        message::client_hello::ClientHello,
        outbound::{route::Route, way::Pin},
        protocol::PREFACE,
        session::Session,
        takeover::Takeover,
    },
    tls::Protocol,
};

/// Remedy if a worker does not trust andante's certificate.
const LET_TRUST: &str = "let it: `eval \"$(andante env)\"` in the client's shell (`andante run` does that itself, `andante ca \
                         trust` is for the whole system, docs/clients.md has the others), or set https = \"turns\" in a \
                         rule for the host (keeps its limit)";
/// Remedy if a host cannot be intercepted.
const LEAVE_ALONE: &str = "if it is meant to pass, set https = \"tunnel\" in a rule for the host";
/// Possible reason why a worker leaves without a request.
const PINNED: &str = "it may accept no certificate but the API's own (pinning): then set https = \"turns\" in a rule for \
                      the host (keeps its limit)";
/// The fatal alert `access_denied` in a record of its own (RFC 8446 §6.2).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
/// Length of the longest methods: `MKREDIRECTREF`, `UPDATEREDIRECTREF` (RFC 4437).
const LONGEST_METHOD: usize = 17;

/// Serves plain HTTP that came through a blind tunnel, on the connection that was made for it.
pub(crate) async fn plain(
    exchange: Arc<Exchange>,
    route: Arc<Route>,
    client: Socket,
    protocol: Protocol,
    upstream: TcpStream,
) {
    let origin = Origin { scheme: Scheme::Http, ..route.origin.clone() };
    let session = Arc::new(exchange.session.inside(origin, protocol));
    if protocol == Protocol::Http1
        && let Some(route) = session.route_inside()
        && let Err(error) = route.insert(upstream).await
    {
        debug!(%error, "a tunnel's connection could not be used");
    }
    spoken(session, client, protocol).await;
}

/// Protocol that begins with the bytes `first`, if it is HTTP. A whole line has to name HTTP at its end: lines of RTSP,
/// or commands of Redis, begin like a request.
pub(crate) fn protocol(first: &[u8]) -> Option<Protocol> {
    if first.starts_with(PREFACE) {
        return Some(Protocol::Http2);
    }
    let method =
        first.iter().take(LONGEST_METHOD).take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    let rest = &first[method..];
    let names_http = rest.iter().position(|byte| *byte == b'\n').is_none_or(|end| {
        let line = rest[..end].trim_ascii_end();
        line.rsplit(|byte| *byte == b' ').next().is_some_and(|version| version.starts_with(b"HTTP/"))
    });
    (method > 0 && names_http && rest.first().is_none_or(|after| *after == b' ')).then_some(Protocol::Http1)
}

/// Serves the requests inside a tunnel. The requests may ask for an upgrade, but not for another tunnel.
async fn spoken<S>(session: Arc<Session>, stream: S, protocol: Protocol)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match protocol {
        Protocol::Http1 => {
            let now = session.proxy.clock.now();
            let exchange = Arc::new(Exchange::new(session, now));
            http1::serve(exchange.clone(), stream).await;
            if let Some(takeover) = exchange.take_over()
                && let Takeover::Upgrade { worker, upstream, permit } = *takeover
            {
                relay::upgraded(exchange, worker, upstream, permit).await;
            }
        }
        Protocol::Http2 => http2::serve(session, stream).await,
    }
}

/// A tunnel to an intercepted target that the rule of the name in its ClientHello leaves alone.
pub(super) struct LeftAlone {
    pub(super) route: Arc<Route>,
    pub(super) client: Socket,
    pub(super) hello: ClientHello,
}

/// Serves the requests in a tunnel to an intercepted host. Returns the tunnel if it is to be relayed blindly.
pub(super) async fn serve(exchange: Arc<Exchange>, mut client: Socket, route: Arc<Route>) -> Option<LeftAlone> {
    let (proxy, patience) = (&exchange.proxy, exchange.progress.timeouts().head);
    let first = tokio::select! {
        first = client.peek() => first.map(|first| (first.first().copied(), protocol(first))),
        () = proxy.clock.sleep_until(proxy.clock.now() + patience) => Ok((None, None)),
        () = proxy.drain.begun() => return None,
    };
    match first {
        Ok((Some(HANDSHAKE), _)) => return serve_tls(&exchange, client, route, patience).await,
        Ok((_, Some(protocol))) => {
            route.lane.metrics().intercepted(TunnelContent::Plain);
            let session = exchange.session.inside(Origin { scheme: Scheme::Http, ..route.origin.clone() }, protocol);
            spoken(Arc::new(session), client, protocol).await;
        }
        // The tunnel was opened and closed without data.
        Ok((None, _)) | Err(_) => debug!(origin = %route.origin, "nothing came through a tunnel"),
        Ok(_) => not_http(proxy, &route),
    }
    None
}

/// Serves a tunnel that begins with a TLS handshake. Returns it if it is to be relayed blindly.
async fn serve_tls(
    exchange: &Arc<Exchange>,
    mut client: Socket,
    route: Arc<Route>,
    patience: Duration,
) -> Option<LeftAlone> {
    let drain = &exchange.proxy.drain;
    let named = tokio::select! {
        named = by_name(exchange, &mut client, &route) => named,
        () = drain.begun() => return None,
    };
    let (session, route) = match named {
        Named::Intercepted(session, route) => (session, route),
        Named::Refused(name) => {
            server_name::refused(exchange, &route, Some(&name));
            return None;
        }
        Named::Blind(hello) => return Some(LeftAlone { route, client, hello }),
    };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(patience, shake_hands(exchange, client, &route)) => shaken,
        // No request has come yet, and a slow handshake must not delay the end.
        () = drain.begun() => return None,
    };
    match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            route.lane.metrics().intercepted(TunnelContent::Tls);
            let newer = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            spoken(session.clone(), stream, if newer { Protocol::Http2 } else { Protocol::Http1 }).await;
            if session.routes.lock().is_empty() && !exchange.proxy.is_draining() {
                left_unused(exchange, &route);
            }
        }
        Err(error) => not_shaken(exchange, &route, &error),
    }
    None
}

/// Reports a tunnel whose first bytes are neither TLS nor HTTP.
fn not_http(proxy: &Proxy, route: &Route) {
    route.lane.metrics().intercepted(TunnelContent::NotHttp);
    let (host, now) = (&route.origin.host, proxy.clock.now());
    let detail = format!("{host}: what came through a tunnel is neither TLS nor HTTP");
    proxy.reports.incidents.not_intercepted(Incidents::NOT_HTTP, detail, LEAVE_ALONE, now);
    if proxy.reports.throttle.is_due(LogTopic::NotHttp, host, now) {
        warn!(
            %host,
            "ended a tunnel: its host is intercepted, and what came through it is neither TLS nor HTTP/1; {LEAVE_ALONE}"
        );
    }
}

/// Ends a tunnel to a port that takes plain HTTP only. A TLS client gets an alert with the reason.
pub(crate) async fn end_other_port(exchange: &Exchange, route: &Route, mut client: Socket) {
    let (proxy, host, port) = (&exchange.proxy, &route.origin.host, route.origin.port);
    let tls = tokio::select! {
        biased;
        first = client.peek() => first.is_ok_and(|first| first.first() == Some(&HANDSHAKE)),
        // The client has sent nothing: its time is over, or the upstream has sent data first.
        () = std::future::ready(()) => false,
    };
    if tls {
        // The connection ends in either case.
        let _ = client.write_all(&ACCESS_DENIED).await;
        let _ = client.shutdown().await;
    }
    route.lane.metrics().intercepted(TunnelContent::NotHttp);
    let (now, hint) = (proxy.clock.now(), format!("name the port in a rule: host = \"{host}:{port}\""));
    let detail = format!("{host}: a tunnel to port {port} carried no plain HTTP, and no rule names that port");
    proxy.reports.incidents.not_intercepted(Incidents::NOT_HTTP, detail, hint.as_str(), now);
    if proxy.reports.throttle.is_due(LogTopic::NotHttp, host, now) {
        warn!(%host, port, hint, "ended a tunnel: to ports other than 443 that no rule names it may carry plain HTTP only");
    }
}

/// Decision by the server name in a ClientHello, for a tunnel to an intercepted target.
enum Named {
    /// The tunnel is intercepted: its requests come from this session and take this route.
    Intercepted(Arc<Session>, Arc<Route>),
    /// The rule of this name refuses the tunnel.
    Refused(Origin),
    /// The rule of the name leaves the tunnel alone.
    Blind(ClientHello),
}

/// Reads the server name that `client` asks for in a tunnel to `route`. If the target is an address, the rules and both
/// certificates go by that name. If the target is another name, the server name can only refuse the tunnel or leave it
/// blind.
async fn by_name(exchange: &Arc<Exchange>, client: &mut Socket, route: &Arc<Route>) -> Named {
    let (target, rules) = (&route.origin, exchange.proxy.lanes.rules());
    let inside = |origin: &Origin| exchange.session.inside(origin.clone(), Protocol::Http1);
    let unnamed = || Named::Intercepted(Arc::new(inside(target)), route.clone());
    let address = policy::address(target).is_some();
    if !address && !rules.may_name() {
        return unnamed();
    }
    let hello = server_name::client_hello(exchange, client).await.unwrap_or_default();
    let name = hello.server_name.as_deref().and_then(|name| server_name::origin_of(name, target));
    let Some(name) = name.filter(|name| name.host != target.host) else { return unnamed() };
    match rules.named(target, &name).https {
        Https::Refuse => return Named::Refused(name),
        Https::Tunnel | Https::Turns => return Named::Blind(hello),
        Https::Intercept if !address => return unnamed(),
        Https::Intercept => {}
    }
    let allow_private = route.lane.policy().allow_private;
    let session = inside(&name).pinned(Pin { target: target.clone(), allow_private });
    match session.route_inside() {
        Some(route) => Named::Intercepted(Arc::new(session), Arc::new(route)),
        None => unnamed(),
    }
}

/// Shows the worker a certificate for the host of `route`, regardless of the name in the handshake.
async fn shake_hands(
    exchange: &Arc<Exchange>,
    client: Socket,
    route: &Route,
) -> io::Result<tokio_rustls::server::TlsStream<Socket>> {
    let proxy = &exchange.proxy;
    let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client).await.map_err(unasked)?;
    // The worker is offered the upstream's protocol. If the upstream cannot be reached, the worker gets the error in an
    // answer, which it can read, and not as a failed handshake.
    let alpn = match route.protocol(&exchange.session.pool).await {
        Some(Protocol::Http1) => Alpn::Http1First,
        Some(Protocol::Http2) | None => Alpn::Http2First,
    };
    if exchange.session.client.has_left() {
        // A client that leaves before the handshake continues has not rejected andante's certificate.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let ca = proxy.ca().ok_or_else(|| io::Error::other("there is no certificate authority"))?;
    let config = ca.server_config(&route.origin.host, alpn, SystemTime::now()).map_err(io::Error::other)?;
    start.into_stream(config).await
}

/// A client that leaves before its ClientHello has seen no certificate that it could distrust.
fn unasked(error: io::Error) -> io::Error {
    if went_away(&error) { io::Error::other("the client went away in its ClientHello") } else { error }
}

fn went_away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Reports a failed TLS handshake. Usually the worker does not trust andante, which only the worker's side can change.
fn not_shaken(exchange: &Exchange, route: &Route, error: &io::Error) {
    let (proxy, host, now) = (&exchange.proxy, &route.origin.host, exchange.proxy.clock.now());
    let note = |kind, detail, hint: &str| proxy.reports.incidents.not_intercepted(kind, detail, hint, now);
    if let Some(unsigned) = error.get_ref().and_then(|error| error.downcast_ref::<CaError>()) {
        route.lane.metrics().intercepted(TunnelContent::Failed);
        let hint = unsigned.hint().unwrap_or_default();
        note(Incidents::NOT_INTERCEPTED, format!("{host}: {unsigned}"), &hint);
        if proxy.reports.throttle.is_due(LogTopic::Unsigned, host, now) {
            warn!(%host, error = %unsigned, hint, "could not intercept a tunnel: there is no certificate for its host");
        }
        return;
    }
    let alert = match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
        _ => None,
    };
    // Some clients send an alert, others just close the connection.
    let untrusted = alert.map_or(went_away(error), is_distrust);
    route.lane.metrics().intercepted(if untrusted { TunnelContent::Untrusted } else { TunnelContent::Failed });
    if !untrusted {
        debug!(%host, %error, "a worker's TLS handshake failed");
        match error.kind() {
            io::ErrorKind::ConnectionAborted => {
                let detail = format!("{host}: a client left before the API was connected to");
                note(Incidents::LEFT_EARLY, detail, "see whether the API can be reached from this machine");
            }
            _ => note(
                Incidents::NOT_INTERCEPTED,
                format!("{host}: a client's TLS handshake failed: {error}"),
                LEAVE_ALONE,
            ),
        }
        return;
    }
    let alert = alert.map_or_else(|| "none, it closed the connection".to_owned(), |alert| format!("{alert:?}"));
    note(Incidents::UNTRUSTED, format!("{host}: a client does not trust andante's CA (alert: {alert})"), LET_TRUST);
    let client = exchange.session.address.to_string().into();
    if proxy.reports.throttle.is_due(LogTopic::Untrusted, &client, now) {
        warn!(%client, %host, alert, "a client does not trust andante's certificates; {LET_TRUST}");
    }
}

/// Logs that a worker accepted andante's certificate and left without a request, if no request was ever sent to the
/// host. Clients that pin a certificate check it only after the handshake; others open connections in advance.
fn left_unused(exchange: &Exchange, route: &Route) {
    let (proxy, host, now) = (&exchange.proxy, &route.origin.host, exchange.proxy.clock.now());
    if route.lane.snapshot().stats.sent > 0 {
        return;
    }
    let detail = format!("{host}: a client took andante's certificate and left without a request");
    proxy.reports.incidents.not_intercepted(Incidents::UNUSED, detail, PINNED, now);
    if proxy.reports.throttle.is_due(LogTopic::Unused, host, now) {
        warn!(%host, "a worker took andante's certificate and left without a request; {PINNED}");
    }
}

/// Returns whether a client sends this alert about a certificate that it does not accept.
fn is_distrust(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_told_from_everything_else() {
        for yes in [&b"GET / HTTP/1.1\r\n"[..], b"G", b"M-SEARCH * HTTP/1.1", b"OPTIONS *"] {
            assert_eq!(protocol(yes), Some(Protocol::Http1), "{yes:?}");
        }
        assert_eq!(protocol(b"PRI * HTTP/2.0\r\n"), Some(Protocol::Http2));
        for no in [&b""[..], b"\x16\x03\x01", b"SSH-2.0-OpenSSH", b"\x05\x01\x00", b"get / HTTP/1.1", b"EHLO\r\n"] {
            assert_eq!(protocol(no), None, "{no:?}");
        }
    }
}
