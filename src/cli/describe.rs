//! Values of a configuration in words: for `andante check`, and for what is different between two configurations.

use std::path::{Path, PathBuf};

use super::wording;
use crate::{
    config::{AccessLog, Dns},
    limit::{LimitSpec, MarginSpec},
    policy::{Egress, Gateway, Https, Parent, Retry, Turns},
};

/// `off`; `on, with bodies up to 64 KiB`.
pub(super) fn again(retry: Option<Retry>) -> String {
    match retry {
        None => "off".to_owned(),
        Some(Retry { body: 0 }) => "on, without bodies".to_owned(),
        Some(Retry { body }) => format!("on, with bodies up to {}", wording::size(body)),
    }
}

/// What becomes of a CONNECT.
pub(super) fn https(https: Https) -> &'static str {
    match https {
        Https::Tunnel => "tunnel",
        Https::Intercept => "intercept",
        Https::Refuse => "refuse",
    }
}

/// `auto`; `20 ms`.
pub(super) fn margin(margin: MarginSpec) -> String {
    match margin {
        MarginSpec::Auto => "auto".to_owned(),
        MarginSpec::Fixed(width) => wording::duration(width),
    }
}

/// The settings on the way out that differ from a direct connection, by their keys.
pub(super) fn egress(egress: &Egress) -> Vec<(&'static str, String)> {
    let Egress { secure, via, resolve, source, sni, identity } = egress;
    let mut rows = Vec::new();
    if *secure {
        rows.push(("upstream", "https, also where http is asked for".to_owned()));
    }
    if let Some(parent) = via {
        rows.push(("via", between(parent)));
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
    rows
}

/// The settings on whose turn it is, as far as a rule has them, by their keys.
pub(super) fn turns(turns: &Turns) -> Vec<(&'static str, String)> {
    let urgent = turns.urgent.as_ref().map(|networks| ("urgent", listed(networks, "nobody")));
    let weights = (!turns.weights.is_empty()).then(|| ("weights", listed(&turns.weights, "none")));
    urgent.into_iter().chain(weights).collect()
}

/// `http://corp:3128, with user name and password`, and never these themselves.
fn between(parent: &Parent) -> String {
    let credentials = if parent.credentials.is_some() { ", with user name and password" } else { "" };
    format!("{parent}{credentials}")
}

/// `/openai is https://api.openai.com:443/v1`.
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

pub(super) fn resolver(dns: &Dns) -> String {
    match dns {
        Dns::Cached => "as /etc/resolv.conf says, cached".to_owned(),
        Dns::System => "the system's resolver".to_owned(),
        Dns::Servers(servers) => format!("{}, cached", listed(servers, "none")),
    }
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

/// `500/min (one every 120 ms)`.
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
