//! Look-ups of addresses: order of the name servers, names of the search list, and both types of address.
//!
//! A negative answer concerns one record type of one name of the search list. The host has no address only if no name
//! of the list has an address of either type.

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
    time::Duration,
};

use hickory_resolver::{
    Hosts,
    config::{ResolveHosts, ResolverOpts},
    lookup::Lookup,
    net::{DnsError, NetError, NoRecords},
    proto::{
        op::{Query, ResponseCode},
        rr::{Name, RecordType},
    },
    system_conf::parse_resolv_conf,
};
use tokio::sync::Semaphore;

use super::{addresses::Addresses, not_resolved::NotResolved, server::NameServer};
use crate::error::BoxError;

/// Maximum number of cached answers per resolver. A name takes two, and a server has one or two resolvers.
const MOST_KEPT: u64 = 2048;
/// Maximum TTL of addresses, because they may change before a longer one expires.
const LONGEST_KEPT: Duration = Duration::from_secs(3600);
/// Maximum TTL of negative answers, because a missing name may soon exist.
const LONGEST_MISSED: Duration = Duration::from_secs(30);
/// Maximum number of look-ups in flight. Each may hold six sockets.
const MOST_OPEN: usize = 512;
/// Wait for the second type of address after an answer with the first (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Wait for the IPv6 answer after "no such name" for IPv4. Few names have only IPv6, and some servers never answer such
/// queries.
const MAX_V6_DELAY_AFTER_NXDOMAIN: Duration = Duration::from_secs(1);

/// Name servers and options of look-ups.
pub(super) struct ServerSettings {
    pub(super) servers: Vec<SocketAddr>,
    /// Domains to append to relative names. Names with fewer dots than `options.ndots` try them first, others last.
    pub(super) search: Vec<Name>,
    /// Text of `/etc/hosts`. Names in it need no server.
    pub(super) hosts: Vec<u8>,
    pub(super) options: ResolverOpts,
}

/// Name servers with their cached answers.
pub(super) struct Servers {
    hosts: Hosts,
    search: Vec<Name>,
    /// Number of dots from which a name is tried unchanged before the search list.
    ndots: usize,
    /// Servers in the configured order. A resolver of hickory for all of them would ask two at once and take the first
    /// answer. But an earlier server may know names that a later one does not.
    each: Vec<NameServer>,
    /// Index of the server to ask first: the one that answered last.
    first: AtomicUsize,
    /// Permits for look-ups in flight.
    room: Semaphore,
}

// === impl ServerSettings ===

impl ServerSettings {
    /// Creates settings with these servers and the default options.
    pub(super) fn of(servers: &[SocketAddr]) -> Self {
        let options = ResolverOpts::default();
        Self { servers: servers.to_vec(), search: Vec::new(), hosts: Vec::new(), options }
    }

    /// Parses a `resolv.conf`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, BoxError> {
        let (config, options) = parse_resolv_conf(text)?;
        let (domain, search, servers) = config.into_parts();
        // Without a search list, the domain is searched (resolv.conf(5)).
        let search = if search.is_empty() { domain.into_iter().collect() } else { search };
        let servers = servers.iter().map(|server| SocketAddr::new(server.ip, 53)).collect();
        Ok(Self { servers, search, hosts: Vec::new(), options })
    }
}

// === impl Servers ===

impl Servers {
    /// Creates the servers. The time-out of a query is at most `patience` divided by the attempts at all servers.
    pub(super) fn new(settings: ServerSettings, patience: Duration) -> Self {
        let mut hosts = Hosts::default();
        // Malformed lines are skipped.
        let _ = hosts.read_hosts_conf(settings.hosts.as_slice());
        let attempts = settings.options.attempts.max(1);
        let turns = u32::try_from(settings.servers.len() * attempts).unwrap_or(u32::MAX).max(1);
        let mut options = settings.options;
        options.timeout = options.timeout.min(patience / turns);
        options.cache_size = MOST_KEPT;
        options.positive_max_ttl = Some(LONGEST_KEPT);
        options.negative_max_ttl = Some(LONGEST_MISSED);
        options.use_hosts_file = ResolveHosts::Never;
        let each = settings.servers.iter().filter_map(|server| NameServer::new(*server, attempts, &options));
        Self {
            hosts,
            search: settings.search,
            ndots: options.ndots,
            each: each.collect(),
            first: AtomicUsize::new(0),
            room: Semaphore::new(MOST_OPEN),
        }
    }

    /// Returns the addresses of `host`, IPv6 first.
    pub(super) async fn resolve(&self, host: &str) -> Result<Addresses, NotResolved> {
        let name = Name::from_ascii(host).map_err(|error| NotResolved::Failed(error.into()))?;
        if let Some(found) = self.in_hosts(&name) {
            return Ok(Addresses::new(found, LONGEST_KEPT));
        }
        let mut asking = pin!(self.ask(&name));
        // Cached answers are ready at the first poll, before a query is sent. Only other look-ups wait for a permit.
        if let Poll::Ready(known) = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await {
            return known;
        }
        let _room = self.room.acquire().await;
        asking.await
    }

    /// Returns the addresses in `/etc/hosts`. If a name has one type of address there, the other is not looked up.
    fn in_hosts(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let kinds = [RecordType::AAAA, RecordType::A];
        let found = kinds.into_iter().filter_map(|kind| {
            let lookup = self.hosts.lookup_static_host(&Query::query(name.clone(), kind))?;
            Some(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
        });
        let found: Vec<_> = found.flatten().collect();
        (!found.is_empty()).then_some(found)
    }

    /// Asks one server after another until one answers. "No such name" is an answer.
    async fn ask(&self, name: &Name) -> Result<Addresses, NotResolved> {
        let candidates = self.candidates(name);
        let first = self.first.load(Ordering::Relaxed);
        let mut outcome = Err(NotResolved::Failed("no name server is known".into()));
        for index in (first..first + self.each.len()).map(|index| index % self.each.len()) {
            let answer = first_found(&self.each[index], &candidates).await;
            let answered = answer.as_ref().map_or_else(NetError::is_no_records_found, |_| true);
            outcome = answer.map_err(NotResolved::from);
            if answered {
                self.first.store(index, Ordering::Relaxed);
                break;
            }
        }
        outcome
    }

    /// Returns the names to ask for, in order (resolv.conf(5), `search` and `ndots`).
    fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut absolute = name.clone();
        absolute.set_fqdn(true);
        if name.is_fqdn() {
            return vec![absolute];
        }
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        // A name that is too long with a domain appended cannot exist in that domain.
        let mut candidates: Vec<_> =
            self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).collect();
        let place = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(place, absolute);
        candidates
    }
}

/// Returns the addresses of the first of `names` that has any, never a mixture of several names'.
///
/// As in glibc, an error that concerns one name does not end the search. If no name has an address, returns the most
/// informative error.
async fn first_found(server: &NameServer, names: &[Name]) -> Result<Addresses, NetError> {
    let mut outcome: Option<NetError> = None;
    for name in names {
        match both_kinds(server, name).await {
            Err(error) if concerns_name(&error) => {
                outcome = Some(match outcome {
                    Some(before) => more_telling(before, error),
                    None => error,
                });
            }
            ended => return ended,
        }
    }
    Err(outcome.unwrap_or(NetError::Timeout))
}

/// Asks for IPv6 and IPv4 at once. A server that never answers for IPv6 delays the IPv4 addresses by
/// [`RESOLUTION_DELAY`] only.
async fn both_kinds(server: &NameServer, name: &Name) -> Result<Addresses, NetError> {
    let mut v6 = pin!(server.lookup(name, RecordType::AAAA));
    let mut v4 = pin!(server.lookup(name, RecordType::A));
    let (v6, v4) = tokio::select! {
        first = &mut v6 => {
            let patience = first.is_ok().then_some(RESOLUTION_DELAY);
            let second = within(patience, v4).await;
            (first, second)
        }
        first = &mut v4 => {
            let patience = match &first {
                Ok(_) => Some(RESOLUTION_DELAY),
                Err(error) => error.is_nx_domain().then_some(MAX_V6_DELAY_AFTER_NXDOMAIN),
            };
            let second = within(patience, v6).await;
            (second, first)
        }
    };
    let records = [&v6, &v4].into_iter().flatten().flat_map(Lookup::answers);
    let (list, ttls): (Vec<_>, Vec<_>) =
        records.filter_map(|record| Some((record.data.ip_addr()?, record.ttl))).unzip();
    if let Some(ttl) = ttls.into_iter().min() {
        return Ok(Addresses::new(list, Duration::from_secs(ttl.into()).min(LONGEST_KEPT)));
    }
    match (v6, v4) {
        (Err(v6), Err(v4)) if v6.is_no_records_found() && v4.is_no_records_found() => Err(more_telling(v6, v4)),
        // Without an answer for IPv4, the name may have an address.
        (_, Err(v4)) => Err(v4),
        (Err(v6), Ok(_)) => Err(v6),
        (Ok(lookup), Ok(_)) => Err(NoRecords::new(lookup.query().clone(), ResponseCode::NoError).into()),
    }
}

/// Returns the outcome of a look-up, or a time-out after `patience`. `None` waits as long as the look-up takes.
async fn within(
    patience: Option<Duration>,
    lookup: impl Future<Output = Result<Lookup, NetError>>,
) -> Result<Lookup, NetError> {
    match patience {
        Some(patience) => tokio::time::timeout(patience, lookup).await.unwrap_or(Err(NetError::Timeout)),
        None => lookup.await,
    }
}

/// Returns whether the error is an answer of the server, so that it concerns this name only.
fn concerns_name(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(_) | DnsError::ResponseCode(_)))
}

/// Returns the more informative error. A failure ranks above "no address", which ranks above "no such name": a failure
/// leaves it open whether the name exists.
fn more_telling(one: NetError, other: NetError) -> NetError {
    let rank = |error: &NetError| match error {
        error if error.is_nx_domain() => 0,
        error if error.is_no_records_found() => 1,
        _ => 2,
    };
    if rank(&other) > rank(&one) { other } else { one }
}
