//! Lanes by the names that people give them.

use std::sync::Arc;

use super::Lanes;
use crate::{
    lane::{Lane, key::RequestKey},
    policy::{Origin, Policy, Rules, Scheme},
};

// === impl Lanes ===

impl Lanes {
    /// The lane of the rule called `rule` for `host`, if there is one.
    pub fn named(&self, rule: &str, host: &str) -> Option<Arc<Lane>> {
        self.all().into_iter().find(|lane| *lane.policy().name == *rule && **lane.host() == *host)
    }

    /// The lane of the rule called `rule` for `host`. It is opened if that rule would be for the host, though no request
    /// has come for it yet: people pause an API before they start. A rule that is called as the host stands for
    /// whichever is for it. `None` if there is nothing of this name.
    pub fn named_or_opened(&self, rule: &str, host: &str) -> Option<Arc<Lane>> {
        let of_host: Vec<_> = self.all().into_iter().filter(|lane| **lane.host() == *host).collect();
        if let Some(lane) = of_host.iter().find(|lane| *lane.policy().name == *rule) {
            return Some(lane.clone());
        }
        let rules = self.rules();
        if let Some(origin) = origins(&rules, host).find(|origin| *policy(&rules, origin).name == *rule) {
            return Some(self.find(&origin));
        }
        if rule != host {
            return None;
        }
        // What no rule is for may be a slip: it is there only if requests have come for it.
        let ruled = || origins(&rules, host).find(|origin| rules.find(origin).is_some());
        of_host.into_iter().next().or_else(|| ruled().map(|origin| self.find(&origin)))
    }
}

/// Where requests to `host` may go, as far as rules tell its ports apart.
fn origins<'a>(rules: &'a Rules, host: &'a str) -> impl Iterator<Item = Origin> + 'a {
    let usual = [Scheme::Http, Scheme::Https].map(|scheme| (scheme, scheme.default_port()));
    let named = rules.iter().flat_map(|rule| &rule.hosts).filter_map(|pattern| pattern.port());
    let ports = usual.into_iter().chain(named.map(|port| (Scheme::Http, port)));
    // IPv6 has its brackets in URLs alone.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    ports.filter_map(move |(scheme, port)| Origin::parse(scheme, &host, Some(port)).ok())
}

fn policy<'a>(rules: &'a Rules, origin: &Origin) -> &'a Arc<Policy> {
    RequestKey::new(rules, origin).rule.map_or(rules.unruled(), |rule| rules.get(rule))
}
