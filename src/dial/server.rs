//! Name server with its cached answers and its support of EDNS (RFC 6891).

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{Name, RecordType},
};

/// Silence after which a query is repeated without EDNS, because some servers drop queries with it. Most servers answer
/// within 100 ms, and BIND retransmits after 800 ms.
const MAX_EDNS_SILENCE: Duration = Duration::from_secs(1);

/// Name server that is asked with EDNS if the options say so and the server supports it.
pub(super) struct NameServer {
    /// Resolver that sends an OPT record with each query; `None` without EDNS.
    edns: Option<TokioResolver>,
    /// Resolver without EDNS.
    plain: TokioResolver,
    /// True once the server has answered without EDNS a query that failed with EDNS (RFC 6891 §7).
    is_plain: AtomicBool,
}

// === impl NameServer ===

impl NameServer {
    /// Creates the server at `address`, or returns `None` if its resolver cannot be built.
    ///
    /// A look-up ends after `attempts` unanswered queries. With EDNS, that number is at least two.
    pub(super) fn new(address: SocketAddr, attempts: usize, options: &ResolverOpts) -> Option<Self> {
        let mut plain = options.clone();
        plain.edns0 = false;
        // The query with EDNS is one of the attempts. hickory's option counts repetitions only.
        plain.attempts = attempts.saturating_sub(1 + usize::from(options.edns0));
        let edns = options.edns0.then(|| {
            let mut edns = options.clone();
            edns.attempts = 0;
            edns.timeout = edns.timeout.min(MAX_EDNS_SILENCE);
            resolver(address, edns)
        });
        Some(Self { edns: edns.flatten(), plain: resolver(address, plain)?, is_plain: AtomicBool::new(false) })
    }

    /// Returns the records of one type that `name` has. Repeats the query without EDNS if the first one got no answer
    /// about the name.
    pub(super) async fn lookup(&self, name: &Name, kind: RecordType) -> Result<Lookup, NetError> {
        let Some(edns) = self.edns.as_ref().filter(|_| !self.is_plain.load(Ordering::Relaxed)) else {
            return self.plain.lookup(name.clone(), kind).await;
        };
        let first = edns.lookup(name.clone(), kind).await;
        if is_answer(&first) {
            return first;
        }
        let second = self.plain.lookup(name.clone(), kind).await;
        if is_answer(&second) {
            self.is_plain.store(true, Ordering::Relaxed);
        }
        second
    }
}

/// Returns whether the outcome is an answer about the name, positive or negative.
fn is_answer(outcome: &Result<Lookup, NetError>) -> bool {
    outcome.as_ref().map_or_else(NetError::is_no_records_found, |_| true)
}

fn resolver(server: SocketAddr, options: ResolverOpts) -> Option<TokioResolver> {
    let on_port = |mut connection: ConnectionConfig| {
        connection.port = server.port();
        connection
    };
    // TCP is for answers that do not fit into a datagram.
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(on_port);
    let server = NameServerConfig::new(server.ip(), true, connections.into());
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    // Building fails for DNS over TLS only.
    builder.with_options(options).build().ok()
}
