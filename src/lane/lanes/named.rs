//! Lanes by the names that people give them.

use std::sync::Arc;

use andante_policy::{Origin, Rules, Scheme};

use super::Lanes;
use crate::Lane;

// === impl Lanes ===

impl Lanes {
    /// The lane of the rule called `rule` for `host`, if there is one.
    pub fn named(&self, rule: &str, host: &str) -> Option<Arc<Lane>> {
        self.all().into_iter().find(|lane| *lane.policy().name == *rule && **lane.host() == *host)
    }

    /// The lane of the rule called `rule` for `host`. Opened if that rule would apply to the host, even before the
    /// first request: people pause an API before they start. `None` if neither exists.
    pub fn named_or_opened(&self, rule: &str, host: &str) -> Option<Arc<Lane>> {
        self.named(rule, host).or_else(|| {
            let rules = self.rules();
            let origin = origins(&rules, host).find(|origin| *rules.policy_for(origin).name == *rule)?;
            Some(self.find(&origin))
        })
    }

    /// All lanes of `host`: several, if rules distinguish its ports. Opens lanes that rules would apply to, even before
    /// the first request. A host without a rule may be a typing error: it has a lane only if requests have come for it.
    pub fn of_host_or_opened(&self, host: &str) -> Vec<Arc<Lane>> {
        let rules = self.rules();
        for origin in origins(&rules, host).filter(|origin| rules.find(origin).is_some()) {
            self.find(&origin);
        }
        self.all().into_iter().filter(|lane| **lane.host() == *host).collect()
    }
}

/// Origins of requests to `host`, as far as rules distinguish its ports.
fn origins<'a>(rules: &'a Rules, host: &'a str) -> impl Iterator<Item = Origin> + 'a {
    let usual = [Scheme::Http, Scheme::Https].map(|scheme| (scheme, scheme.default_port()));
    let named = rules.iter().flat_map(|rule| &rule.hosts).filter_map(|pattern| pattern.port());
    let ports = usual.into_iter().chain(named.map(|port| (Scheme::Http, port)));
    // IPv6 addresses have brackets only in URLs.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    ports.filter_map(move |(scheme, port)| Origin::parse(scheme, &host, Some(port)).ok())
}
