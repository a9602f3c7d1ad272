//! Values of a configuration in words: for `andante check`, and for differences between two configurations.

use std::path::{Path, PathBuf};

use super::wording;
use crate::{
    config::{AccessLog, Dns, FleetConfig, OtlpConfig, OtlpEndpoint, StatePlace},
    fleet::{Floor, StoreDown},
    limit::{LimitSpec, MarginSpec},
    memory,
    policy::{Added, Egress, FlowOrder, Gateway, Https, Parent, Policy, RetryPolicy, RuleTimeouts, ShareBy, Turns},
};

/// Retries: `off`; `on, with bodies up to 64 KiB`.
pub(super) fn again(retry: Option<RetryPolicy>) -> String {
    let Some(RetryPolicy { body, tries }) = retry else { return "off".to_owned() };
    let tries = tries.map(|tries| format!(", {tries} tries at most")).unwrap_or_default();
    match body {
        0 => format!("on, without bodies{tries}"),
        _ => format!("on, with bodies up to {}{tries}", wording::size(body)),
    }
}

/// Place of the state.
pub(super) fn state(state: &StatePlace) -> String {
    match state {
        StatePlace::Usual => "the user's own, one for each address".to_owned(),
        StatePlace::Off => "off".to_owned(),
        StatePlace::At(path) => shown(path),
    }
}

/// Store of shared budgets.
pub(super) fn store(fleet: &FleetConfig) -> String {
    fleet.store.as_ref().map_or_else(|| "off".to_owned(), ToString::to_string)
}

/// Behaviour without the store.
pub(super) fn store_down(down: StoreDown) -> String {
    match down {
        StoreDown::Wait => "wait".to_owned(),
        StoreDown::Floor(Floor { percent, members }) => format!("floor: {percent}% of each limit, among {members}"),
        StoreDown::Open => "open: the limits may be exceeded".to_owned(),
    }
}

/// Handling of a CONNECT.
pub(super) fn https(https: Https) -> &'static str {
    https.as_str()
}

/// Value of `patience`.
pub(super) fn patience(rule: &Policy) -> &'static str {
    if rule.learns_patience { "learn" } else { "stated" }
}

/// Body bytes that are read before a request's turn.
pub(super) fn read_body(rule: &Policy) -> String {
    rule.read_body.map_or_else(|| "off".to_owned(), |bytes| wording::size(bytes as u64))
}

/// Cost of requests that state none, unless it is simply one request: `tokens=300`; `hits=1, as nothing says it`.
pub(super) fn cost(rule: &Policy) -> Option<String> {
    let uncosted = rule.uncosted.iter().map(|unit| format!("{unit}=1, as nothing says it"));
    let parts: Vec<_> = rule.cost.iter().map(ToString::to_string).chain(uncosted).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Margin: `auto`; `20 ms`.
pub(super) fn margin(margin: MarginSpec) -> String {
    match margin {
        MarginSpec::Auto => "auto".to_owned(),
        MarginSpec::Fixed(width) => wording::duration(width),
    }
}

/// The settings for reaching upstreams that differ from a direct connection, by their keys.
pub(super) fn egress(egress: &Egress) -> Vec<(&'static str, String)> {
    let Egress { secure, via, unannounced, resolve, source, sni, identity, timeouts } = egress;
    let mut rows = Vec::new();
    if *secure {
        rows.push(("upstream", "https, also where http is asked for".to_owned()));
    }
    if let Some(parent) = via {
        rows.push(("via", between(parent)));
    }
    if *unannounced {
        rows.push(("via-field", "off".to_owned()));
    }
    if !resolve.is_empty() {
        rows.push(("resolve", listed(resolve, "none")));
    }
    if let Some(source) = source {
        rows.push(("source", source.to_string()));
    }
    if let Some(sni) = sni {
        rows.push(("sni", sni.clone()));
    }
    if let Some(identity) = identity {
        rows.push(("client-cert", shown(&identity.certificate)));
        rows.push(("client-key", shown(&identity.key)));
    }
    let RuleTimeouts { connect, answer, idle } = *timeouts;
    for (key, timeout) in [("timeouts.connect", connect), ("timeouts.answer", answer), ("timeouts.idle", idle)] {
        rows.extend(timeout.map(|timeout| (key, wording::duration(timeout))));
    }
    rows
}

/// Conditions of a rule for some of its hosts' requests, by their keys.
pub(super) fn added(added: Option<&Added>) -> Vec<(&'static str, String)> {
    let Some(Added { path, methods, headers, key, only, patient: _ }) = added else { return Vec::new() };
    let mut rows = Vec::new();
    rows.extend(path.as_ref().map(|path| ("path", path.to_string())));
    rows.extend((!methods.is_empty()).then(|| ("method", methods.join(", "))));
    rows.extend((!headers.is_empty()).then(|| ("header", headers.join(", "))));
    rows.extend((!key.is_empty()).then(|| ("key", listed(key, "host"))));
    let beside = if *only { "alone" } else { "beside later rules and the host's own" };
    rows.push(("holds", beside.to_owned()));
    rows
}

/// The settings for the order of requests, as far as a rule has them, by their keys.
pub(super) fn turns(turns: &Turns) -> Vec<(&'static str, String)> {
    let urgent = turns.urgent.as_ref().map(|networks| ("urgent", listed(networks, "none")));
    let urgency = turns.urgency.map(|urgency| ("urgency", format!("{urgency} for requests that do not say")));
    let share_by = (turns.share_by != ShareBy::default()).then(|| ("share-by", listed(turns.share_by.levels(), "")));
    let flow_order = Some(turns.flow_order).filter(|order| *order != FlowOrder::Fair);
    let flow_order = flow_order.map(|order| ("flow-order", order.as_str().to_owned()));
    let weights = (!turns.weights.is_empty()).then(|| ("weights", listed(&turns.weights, "none")));
    let reserve = turns.reserve.map(|reserve| ("reserve", format!("{reserve} of each limit for urgency 0 and 1")));
    urgent.into_iter().chain(urgency).chain(share_by).chain(flow_order).chain(weights).chain(reserve).collect()
}

/// The settings for sharing between requests, as far as a rule has them, by their keys.
pub(super) fn sharing(policy: &Policy) -> Vec<(&'static str, String)> {
    let cache = policy.cache.map(|cache| {
        let always = if cache.always_revalidates { ", each use validated" } else { "" };
        ("cache", format!("{} of answers are kept for their credentials{always}", wording::size(cache.bytes as u64)))
    });
    let free = policy.free_not_modified.then(|| ("not-modified", "a 304 gives its slot back".to_owned()));
    let coalesce =
        policy.coalesce.then(|| ("coalesce", "identical GET, HEAD and QUERY requests share one call".to_owned()));
    let keep = policy.idempotency_keys;
    let keep = keep.map(|keep| ("idempotency-keys", format!("answers are kept for {}", wording::duration(keep))));
    let equal = policy.deduplicate.map(|keep| match keep.is_zero() {
        true => ("deduplicate", "off".to_owned()),
        false => ("deduplicate", format!("equal requests are one call for {}", wording::duration(keep))),
    });
    cache.into_iter().chain(free).chain(coalesce).chain(keep).chain(equal).collect()
}

/// Parent proxy: `http://corp:3128, with user name and password`, which are never shown.
fn between(parent: &Parent) -> String {
    let credentials = if parent.credentials.is_some() { ", with user name and password" } else { "" };
    format!("{parent}{credentials}")
}

/// Gateway: `/openai is https://api.openai.com:443/v1`.
pub(super) fn route(gateway: &Gateway) -> String {
    let Gateway { path, to, base } = gateway;
    format!("{path} is {}://{to}{base}", to.scheme.as_str())
}

pub(super) fn access_log(to: Option<&AccessLog>) -> String {
    match to {
        None => "off".to_owned(),
        Some(AccessLog::Stdout) => "standard output".to_owned(),
        Some(AccessLog::Stderr) => "standard error".to_owned(),
        Some(AccessLog::File(path)) => shown(path),
    }
}

/// Endpoints for traces and metrics: the collector's URL alone if both use its default paths.
pub(super) fn otlp(config: Option<&OtlpConfig>) -> String {
    let Some(config) = config else { return "off".to_owned() };
    let place = |what, endpoint: &Option<OtlpEndpoint>| Some(format!("{what} to {}", endpoint.as_ref()?));
    let places = [place("traces", &config.traces), place("metrics", &config.metrics)];
    places.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(super) fn resolver(dns: &Dns) -> String {
    match dns {
        Dns::Cached => "as /etc/resolv.conf says, cached".to_owned(),
        Dns::System => "the system's resolver".to_owned(),
        Dns::Servers(servers) => format!("{}, cached", listed(servers, "none")),
    }
}

pub(super) fn max_memory(bytes: Option<u64>) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    bytes.map_or_else(|| format!("auto, {} here", mib(memory::default_bytes())), mib)
}

pub(super) fn authorities(paths: &[PathBuf]) -> String {
    if paths.is_empty() { "the system's".to_owned() } else { format!("the system's, {}", files(paths)) }
}

pub(super) fn files(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ")
}

pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn listed(items: &[impl ToString], none: &str) -> String {
    if items.is_empty() {
        return none.to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Limit with its spacing: `500/min (one every 120 ms)`.
pub(super) fn pace(limit: &LimitSpec) -> String {
    let (written, burst) =
        (LimitSpec { burst: limit.burst.filter(|burst| *burst < limit.rate.count), ..*limit }, limit.burst().get());
    let apart = wording::duration(limit.rate.interval());
    match burst {
        1 => format!("{} (one every {apart})", LimitSpec { burst: None, ..written }),
        burst if burst == limit.rate.count.get() => {
            format!("{written} (all of them at once, if nothing else forbids it)")
        }
        burst => format!("{written} ({burst} at once after a pause, else one every {apart})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_said_with_what_its_burst_means() {
        let said = |text: &str| {
            let mut limits: crate::limit::Limits = text.parse().unwrap();
            crate::limit::settle(&mut limits.limits);
            limits.limits.iter().map(pace).collect::<Vec<_>>()
        };
        assert_eq!(
            said("500/min, 100000/month"),
            ["500/min (one every 120 ms)", "100000/month (all of them at once, if nothing else forbids it)"]
        );
        // 10/s with 3 at once: 100 ms apart from then on.
        assert_eq!(said("10/s burst 3"), ["10/s burst 3 (3 at once after a pause, else one every 100 ms)"]);
    }
}
