//! Asks name servers, and keeps what they say for as long as they say (RFC 1035 §3.2.1, RFC 2308).

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
    time::Duration,
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::parse_resolv_conf,
};
use tokio::sync::Semaphore;

use super::not_resolved::NotResolved;
use crate::error::BoxError;

/// How many answers are kept of each server: two for a name.
const MOST_KEPT: u64 = 2048;
/// Addresses change, whatever was promised for them.
const LONGEST_KEPT: Duration = Duration::from_secs(3600);
/// A name that is not there yet may be there soon.
const LONGEST_MISSED: Duration = Duration::from_secs(30);
/// How many look-ups may be without an answer: each may hold six sockets.
const MOST_OPEN: usize = 512;
/// How long the second kind of address is waited for once the first is there (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Whom to ask, and how.
pub(super) struct ServerSettings {
    pub(super) servers: Vec<SocketAddr>,
    /// What is appended to names that have fewer dots than `options` say.
    pub(super) search: Vec<Name>,
    /// The text of `/etc/hosts`: names that no server is asked about.
    pub(super) hosts: Vec<u8>,
    pub(super) options: ResolverOpts,
}

/// Name servers, and what they said.
pub(super) struct Servers {
    hosts: Hosts,
    /// In the order in which to ask. One resolver each: hickory would ask two at once and take the quicker word, where
    /// the first may know names that the second does not.
    each: Vec<TokioResolver>,
    /// The one that answered last is asked first.
    first: AtomicUsize,
    room: Semaphore,
}

// === impl ServerSettings ===

impl ServerSettings {
    /// These servers, and nothing else.
    pub(super) fn of(servers: &[SocketAddr]) -> Self {
        let options = ResolverOpts::default();
        Self { servers: servers.to_vec(), search: Vec::new(), hosts: Vec::new(), options }
    }

    /// Reads a `resolv.conf`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, BoxError> {
        let (config, options) = parse_resolv_conf(text)?;
        let (domain, search, servers) = config.into_parts();
        // As resolv.conf(5) has it: the domain is what is searched where nothing else is.
        let search = if search.is_empty() { domain.into_iter().collect() } else { search };
        let servers = servers.iter().map(|server| SocketAddr::new(server.ip, 53)).collect();
        Ok(Self { servers, search, hosts: Vec::new(), options })
    }
}

// === impl Servers ===

impl Servers {
    /// `patience` is how long it may take to have asked all of them.
    pub(super) fn new(settings: ServerSettings, patience: Duration) -> Self {
        let mut hosts = Hosts::default();
        // What is no line of such a file is passed over.
        let _ = hosts.read_hosts_conf(settings.hosts.as_slice());
        let attempts = settings.options.attempts.max(1);
        let turns = u32::try_from(settings.servers.len() * attempts).unwrap_or(u32::MAX).max(1);
        let mut options = settings.options;
        options.timeout = options.timeout.min(patience / turns);
        // hickory counts further attempts.
        options.attempts = attempts - 1;
        options.cache_size = MOST_KEPT;
        options.positive_max_ttl = Some(LONGEST_KEPT);
        options.negative_max_ttl = Some(LONGEST_MISSED);
        options.use_hosts_file = ResolveHosts::Never;
        let each = settings.servers.iter().filter_map(|server| resolver(*server, &settings.search, &options));
        Self { hosts, each: each.collect(), first: AtomicUsize::new(0), room: Semaphore::new(MOST_OPEN) }
    }

    /// All addresses of `host`, IPv6 first. At least one.
    pub(super) async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, NotResolved> {
        let name = Name::from_ascii(host).map_err(|error| NotResolved::Failed(error.into()))?;
        if let Some(found) = self.in_hosts(&name) {
            return Ok(found);
        }
        let mut asking = pin!(self.ask(&name));
        // What is known is there at the first poll, before anything is sent. Only what is not has to wait for room.
        if let Poll::Ready(known) = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await {
            return known;
        }
        let _room = self.room.acquire().await;
        asking.await
    }

    /// The addresses in `/etc/hosts`. If it has one family of addresses, no server is asked for the other: the file
    /// wins.
    fn in_hosts(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let kinds = [RecordType::AAAA, RecordType::A];
        let found = kinds.into_iter().filter_map(|kind| {
            let lookup = self.hosts.lookup_static_host(&Query::query(name.clone(), kind))?;
            Some(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
        });
        let found: Vec<_> = found.flatten().collect();
        (!found.is_empty()).then_some(found)
    }

    /// Asks one after the other until one answers; "no such name" is an answer.
    async fn ask(&self, name: &Name) -> Result<Vec<IpAddr>, NotResolved> {
        let first = self.first.load(Ordering::Relaxed);
        let mut outcome = Err(NotResolved::Failed("no name server is known".into()));
        for index in (first..first + self.each.len()).map(|index| index % self.each.len()) {
            let answer = both_kinds(&self.each[index], name).await;
            let answered = answer.as_ref().map_or_else(NetError::is_no_records_found, |_| true);
            outcome = answer.map_err(NotResolved::from);
            if answered {
                self.first.store(index, Ordering::Relaxed);
                break;
            }
        }
        outcome
    }
}

fn resolver(server: SocketAddr, search: &[Name], options: &ResolverOpts) -> Option<TokioResolver> {
    let on_port = |mut connection: ConnectionConfig| {
        connection.port = server.port();
        connection
    };
    // TCP is for what does not fit a datagram.
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(on_port);
    let server = NameServerConfig::new(server.ip(), true, connections.into());
    let config = ResolverConfig::from_parts(None, search.to_vec(), vec![server]);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    // Building fails for DNS over TLS only.
    builder.with_options(options.clone()).build().ok()
}

/// Asks for IPv6 and IPv4 at once. Some name servers never answer for IPv6: what is there is not held up by that.
async fn both_kinds(resolver: &TokioResolver, name: &Name) -> Result<Vec<IpAddr>, NetError> {
    let mut v6 = pin!(one_kind(resolver, name, RecordType::AAAA));
    let mut v4 = pin!(one_kind(resolver, name, RecordType::A));
    let (v6, v4) = tokio::select! {
        first = &mut v6 => { let second = after(&first, v4).await; (Some(first), second) }
        first = &mut v4 => { let second = after(&first, v6).await; (second, Some(first)) }
    };
    let (mut found, mut failure) = (Vec::new(), NetError::Timeout);
    for outcome in [v6, v4].into_iter().flatten() {
        match outcome {
            Ok(addresses) => found.extend(addresses),
            // "No such name" says more than "no answer".
            Err(error) if matches!(failure, NetError::Timeout) => failure = error,
            Err(_) => {}
        }
    }
    if found.is_empty() { Err(failure) } else { Ok(found) }
}

/// The outcome of `second`, as far as it is worth waiting for after `first`.
async fn after<T>(first: &Result<Vec<IpAddr>, NetError>, second: impl Future<Output = T>) -> Option<T> {
    match first {
        Err(error) if error.is_nx_domain() => None,
        Err(_) => Some(second.await),
        Ok(_) => tokio::time::timeout(RESOLUTION_DELAY, second).await.ok(),
    }
}

async fn one_kind(resolver: &TokioResolver, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, NetError> {
    let lookup = resolver.lookup(name.clone(), kind).await?;
    Ok(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect())
}
