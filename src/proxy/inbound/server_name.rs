//! The server name in the ClientHello that begins a tunnel. Peeks at the bytes, and leaves them to be read.

use std::io;

use tracing::warn;

use super::socket::Socket;
use crate::{
    metrics::CallOutcome,
    policy::{Origin, Scheme},
    proxy::{
        exchange::Exchange,
        log_throttle::LogTopic,
        message::client_hello::{ClientHello, HelloReader},
        outbound::route::Route,
    },
};

/// Maximum number of bytes of a ClientHello. The longest in use, with post-quantum keys, have some 2 KiB.
const LONGEST_HELLO_BYTES: usize = 64 * 1024;
/// The first byte of a TLS handshake (RFC 8446 §5.1).
pub(super) const HANDSHAKE: u8 = 22;

/// Returns whether `first` may be the first bytes of TLS: of a handshake, or of an alert before it, which some servers
/// skip.
pub(super) fn is_tls(first: &[u8]) -> bool {
    matches!(first, [20..=24] | [20..=24, 3, ..])
}

/// Returns `name` of a handshake as an origin on the port of `target`.
pub(super) fn origin_of(name: &str, target: &Origin) -> Option<Origin> {
    Origin::parse(Scheme::Https, name, Some(target.port)).ok().map(|origin| Origin { port: target.port, ..origin })
}

/// Logs and counts a tunnel whose server name belongs to a host with `https = "refuse"`.
pub(super) fn refused(exchange: &Exchange, route: &Route, name: Option<&Origin>) {
    let (proxy, host) = (&exchange.proxy, name.map_or(&route.origin.host, |name| &name.host));
    route.lane.metrics().count(CallOutcome::Rejected);
    if proxy.reports.throttle.is_due(LogTopic::NameRefused, host, proxy.clock.now()) {
        warn!(
            %host,
            target = %route.origin,
            client = %exchange.session.address,
            "closed a tunnel: the rule of the host that its TLS handshake names refuses tunnels"
        );
    }
}

/// Logs and counts a tunnel that is closed because its handshake cannot be read for a name, by which rules go. The
/// server may read more than andante: if the bytes were passed on, they could name any host.
pub(super) fn unreadable(exchange: &Exchange, route: &Route) {
    let (proxy, host) = (&exchange.proxy, &route.origin.host);
    route.lane.metrics().count(CallOutcome::Rejected);
    if proxy.reports.throttle.is_due(LogTopic::HelloUnreadable, host, proxy.clock.now()) {
        warn!(
            %host,
            client = %exchange.session.address,
            "closed a tunnel: its TLS handshake began with no ClientHello that could be read, or the ClientHello took longer \
             than timeouts.head, so that the rules of the host that it names could not be found"
        );
    }
}

/// The ClientHello with which `client` begins; `None` if it cannot be read, or does not come in time.
pub(super) async fn client_hello(exchange: &Exchange, client: &mut Socket) -> Option<ClientHello> {
    let patience = exchange.progress.timeouts().head;
    let read = async {
        let (mut reader, mut read) = (HelloReader::default(), 0);
        loop {
            let bytes = client.peek().await?;
            if let Some(hello) = reader.read(&bytes[read..])? {
                return Ok(Some(hello));
            }
            read = bytes.len();
            if read > LONGEST_HELLO_BYTES || client.peek_on().await? == 0 {
                return io::Result::Ok(None);
            }
        }
    };
    tokio::time::timeout(patience, read).await.ok()?.ok()?
}
