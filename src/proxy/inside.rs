//! What comes through a tunnel whose host is intercepted: its requests go the way of all others.
//!
//! Never falls back to a blind tunnel: what is neither TLS nor HTTP is ended, and the log says what to do (R48).

use std::{future::Future, io, pin::Pin, sync::Arc, time::SystemTime};

use http::Response;
use rustls::AlertDescription;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tracing::{debug, warn};

use super::{
    body::Body,
    http1, http2,
    link::{Link, Peer},
    notices::Notice,
    socket::Socket,
    stack::Boxed,
    tunnel::{drained, worker},
    upstream::Route,
};
use crate::{
    ca::Alpn,
    metrics::Interception,
    policy::{Origin, Scheme},
    tls::Protocol,
};

/// The first byte of a TLS handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// The longest method that is looked for: `MKREDIRECTREF`, `UPDATEREDIRECTREF` (RFC 4437).
const LONGEST_METHOD: usize = 17;

/// Answers a CONNECT, and serves what comes then. Nothing is connected yet: each request inside takes its slot first.
pub(super) fn open(link: Arc<Link>, request: Boxed, route: Arc<Route>) -> Response<Body> {
    // A trait object, because what is served there has a stack of its own, which has this in it.
    let served: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(serve(link, request, route));
    tokio::spawn(served);
    Response::new(Body::Own(None))
}

/// Serves plain HTTP that came through a blind tunnel, on the connection that was made for it.
pub(super) fn plain(
    link: Arc<Link>,
    route: Arc<Route>,
    client: Socket,
    upstream: TcpStream,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let origin = Origin { scheme: Scheme::Http, ..route.origin.clone() };
        let link = Arc::new(Link::new(Arc::new(link.peer.inside(origin.clone()))));
        if let Some(route) = Route::inside(&origin, &link.peer)
            && let Err(error) = route.adopt(&link.proxy, upstream).await
        {
            debug!(%error, "a tunnel's connection could not be used");
        }
        http1::serve(link, client).await;
    })
}

/// Whether `first` is the beginning of an HTTP/1 request.
pub(super) fn is_http1(first: &[u8]) -> bool {
    let method =
        first.iter().take(LONGEST_METHOD).take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    method > 0 && first.get(method).is_none_or(|after| *after == b' ')
}

async fn serve(link: Arc<Link>, request: Boxed, route: Arc<Route>) {
    let Some(mut client) = worker(request).await else { return };
    let (proxy, metrics) = (&link.proxy, route.lane.metrics());
    let first = tokio::select! {
        first = client.glance() => first.map(|first| (first.first().copied(), is_http1(first))),
        () = proxy.clock.sleep_until(proxy.clock.now() + proxy.timeouts.head) => Ok((None, false)),
        () = drained(&link) => return,
    };
    match first {
        Ok((Some(HANDSHAKE), _)) => {
            let shaken = tokio::time::timeout(proxy.timeouts.head, shake_hands(&link, client, &route));
            match shaken.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok((stream, peer)) => {
                    metrics.intercepted(Interception::Tls);
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        http2::serve(peer, stream).await;
                    } else {
                        http1::serve(Arc::new(Link::new(peer)), stream).await;
                    }
                }
                Err(error) => not_shaken(&link, &route, &error),
            }
        }
        Ok((_, true)) => {
            metrics.intercepted(Interception::Plain);
            let peer = link.peer.inside(Origin { scheme: Scheme::Http, ..route.origin.clone() });
            http1::serve(Arc::new(Link::new(Arc::new(peer))), client).await;
        }
        // Opened and closed without a word.
        Ok((None, _)) | Err(_) => debug!(origin = %route.origin, "nothing came through a tunnel"),
        Ok(_) => {
            metrics.intercepted(Interception::Stranger);
            let host = &route.origin.host;
            if proxy.notices.is_due(Notice::Stranger, host, proxy.clock.now()) {
                warn!(
                    %host,
                    "ended a tunnel: its host is intercepted, and what came through it is neither TLS nor HTTP/1; \
                     if that is meant to pass, set https = \"tunnel\" in a rule for the host"
                );
            }
        }
    }
}

/// Shows the worker a certificate for the host that it asked for, whatever name it says in the handshake (R42).
async fn shake_hands(
    link: &Arc<Link>,
    client: Socket,
    route: &Route,
) -> io::Result<(tokio_rustls::server::TlsStream<Socket>, Arc<Peer>)> {
    let proxy = &link.proxy;
    let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client).await?;
    // What the upstream speaks is what the worker is offered (R43). If it cannot be reached the worker is to hear that in
    // an answer, which it can read, and not as a failed handshake.
    let alpn = match route.protocol(proxy).await {
        Ok(Protocol::Http1) => Alpn::Http1First,
        Ok(Protocol::Http2) | Err(_) => Alpn::Http2First,
    };
    let ca = proxy.ca.as_ref().ok_or_else(|| io::Error::other("there is no certificate authority"))?;
    let config = ca.server_config(&route.origin.host, alpn, SystemTime::now()).map_err(io::Error::other)?;
    let stream = start.into_stream(config).await?;
    Ok((stream, Arc::new(link.peer.inside(route.origin.clone()))))
}

/// Says why there is no TLS: mostly because the worker does not trust us, which it alone can change.
fn not_shaken(link: &Link, route: &Route, error: &io::Error) {
    let (proxy, host) = (&link.proxy, &route.origin.host);
    let alert = match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
        _ => None,
    };
    // Some say so, some just go away.
    let closed = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
    let untrusted = alert.map_or(closed, is_distrust);
    route.lane.metrics().intercepted(if untrusted { Interception::Untrusted } else { Interception::Failed });
    if !untrusted {
        debug!(%host, %error, "a worker's TLS handshake failed");
        return;
    }
    if proxy.notices.is_due(Notice::Untrusted, host, proxy.clock.now()) {
        let alert = alert.map_or_else(|| "none, it closed the connection".to_owned(), |alert| format!("{alert:?}"));
        warn!(
            %host,
            alert,
            "a worker does not trust andante's certificates; let it (`andante ca env` prints the variables that clients \
             read, `andante ca trust` tells the whole system), or set https = \"tunnel\" in a rule for the host"
        );
    }
}

/// What clients say about certificates that they do not take.
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
    fn http1_is_told_from_everything_else() {
        for yes in [&b"GET / HTTP/1.1\r\n"[..], b"G", b"M-SEARCH * HTTP/1.1", b"OPTIONS *"] {
            assert!(is_http1(yes), "{yes:?}");
        }
        for no in [&b""[..], b"\x16\x03\x01", b"SSH-2.0-OpenSSH", b"\x05\x01\x00", b"get / HTTP/1.1", b"EHLO\r\n"] {
            assert!(!is_http1(no), "{no:?}");
        }
    }
}
