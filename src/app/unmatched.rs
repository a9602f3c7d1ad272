//! Rules that no request has matched. Most likely their hosts are mistyped, and their limits do not hold.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tracing::{info, warn};

use crate::{
    clock::Instant,
    policy::{HostPattern, Origin, Policy, Rules},
    proxy::Proxy,
};

/// A rule that no request has matched.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmatched {
    /// The rule's name.
    pub rule: Arc<str>,
    /// The most similar of the requested hosts that have no rule of their own, if one is similar enough.
    pub nearest: Option<Arc<str>>,
    /// Likeness of the two, from 0 to 1.
    pub likeness: f64,
}

/// Logs unmatched rules once, a while after the first request that matched another rule.
#[derive(Debug, Default)]
pub(super) struct UnmatchedWatch {
    since: Option<Instant>,
    said: bool,
}

/// Time from the first request that matches another rule to the log line about unmatched rules.
const WHILE: Duration = Duration::from_secs(60);
/// Names at least this much alike may have been meant to be the same.
const ALIKE: f64 = 0.75;
/// Least likeness of a host that is named beside a rule: at most a third of it differs.
const SOMEWHAT_ALIKE: f64 = 2.0 / 3.0;
/// Most rules that are logged or compared with hosts, and most hosts that each rule is compared with.
const MOST_RULES: usize = 20;
const MOST_HOSTS: usize = 1000;

/// The rules that no request has matched so far.
pub(super) fn rules(proxy: &Proxy) -> Vec<Arc<Policy>> {
    let used: HashSet<_> = proxy.lanes.all().iter().map(|lane| Arc::as_ptr(lane.policy())).collect();
    // Lanes of used rules may have been forgotten.
    let unused = |rule: &&Arc<Policy>| !used.contains(&Arc::as_ptr(rule)) && proxy.metrics.rule(&rule.name).is_unused();
    proxy.lanes.rules().iter().filter(unused).cloned().collect()
}

/// The unmatched rules, each with the host that may have been meant.
pub(super) fn with_nearest(proxy: &Proxy) -> Vec<Unmatched> {
    let hosts = hosts_without_a_rule(proxy);
    let compared = |at| if at < MOST_RULES { &hosts[..] } else { &[] };
    rules(proxy).iter().enumerate().map(|(at, rule)| nearest(rule, compared(at))).collect()
}

/// Requested hosts that no rule names exactly.
fn hosts_without_a_rule(proxy: &Proxy) -> Vec<Arc<str>> {
    let rules = proxy.lanes.rules();
    let mut hosts: Vec<_> = proxy.lanes.all().iter().map(|lane| lane.host().clone()).collect();
    hosts.retain(|host| !is_named(&rules, host));
    hosts.sort_unstable();
    hosts.dedup();
    hosts.truncate(MOST_HOSTS);
    hosts
}

fn is_named(rules: &Rules, host: &str) -> bool {
    rules.iter().flat_map(|rule| &rule.hosts).any(|pattern| pattern.is_exactly(host))
}

fn nearest(rule: &Policy, hosts: &[Arc<str>]) -> Unmatched {
    let likeness =
        |host: &str| rule.hosts.iter().map(|pattern: &HostPattern| pattern.likeness(host)).fold(0.0, f64::max);
    let nearest = hosts.iter().map(|host| (likeness(host), host)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (likeness, nearest) = nearest.filter(|(likeness, _)| *likeness >= SOMEWHAT_ALIKE).unzip();
    Unmatched { rule: rule.name.clone(), nearest: nearest.cloned(), likeness: likeness.unwrap_or_default() }
}

// === impl UnmatchedWatch ===

impl UnmatchedWatch {
    /// The rules to log now, if it is time. To be called periodically.
    pub(super) fn look(&mut self, proxy: &Proxy, now: Instant) -> Vec<Unmatched> {
        if self.said || self.since.is_none() && hosts_without_a_rule(proxy).is_empty() {
            return Vec::new();
        }
        self.said = now.since(*self.since.get_or_insert(now)) >= WHILE;
        let mut rules = if self.said { with_nearest(proxy) } else { Vec::new() };
        rules.truncate(MOST_RULES);
        rules
    }
}

// === impl Unmatched ===

impl Unmatched {
    /// Rules that match none of `origins`, each with the most similar host among them.
    pub fn by(rules: &Rules, origins: &[&Origin]) -> Vec<Self> {
        let mut hosts: Vec<_> = origins.iter().map(|origin| origin.host.clone()).collect();
        hosts.retain(|host| !is_named(rules, host));
        hosts.sort_unstable();
        hosts.truncate(MOST_HOSTS);
        let is_asked = |rule: &Policy| rule.hosts.iter().any(|host| origins.iter().any(|origin| host.matches(origin)));
        let unasked = rules.iter().filter(|rule| !is_asked(rule)).take(MOST_RULES);
        unasked.map(|rule| nearest(rule, &hosts)).collect()
    }

    /// Logs the rule.
    pub(super) fn say(&self) {
        let (rule, nearest) = (&self.rule, self.nearest.as_deref().unwrap_or("none"));
        if self.likeness >= ALIKE {
            warn!(
                %rule, nearest,
                "no request has matched this rule, but one was for a similar host: is the rule's host mistyped?"
            );
        } else {
            info!(%rule, nearest, "no request has matched this rule so far");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Origin, Scheme};

    fn proxy(hosts: &[&str]) -> Proxy {
        let rule = |host: &&str| Policy::new(host, vec![host.parse().unwrap()]);
        let rules = Rules::new(hosts.iter().map(rule).collect());
        Proxy::with_rules(rules)
    }

    fn ask(proxy: &Proxy, host: &str) {
        proxy.lanes.find(&Origin::parse(Scheme::Http, host, Some(80)).unwrap());
    }

    /// Rules and nearest hosts that are logged at these seconds.
    fn said(
        watch: &mut UnmatchedWatch,
        proxy: &Proxy,
        seconds: impl IntoIterator<Item = u64>,
    ) -> Vec<(String, String)> {
        let at = |second| Instant::START + Duration::from_secs(second);
        let told = seconds.into_iter().flat_map(|second| watch.look(proxy, at(second)));
        told.map(|one| (one.rule.to_string(), one.nearest.unwrap_or_default().to_string())).collect()
    }

    #[test]
    fn a_rule_that_was_not_matched_is_told_of_once_a_minute_after_others_were() {
        let (proxy, mut watch) = (proxy(&["api.tset", "*.exmaple.com", "used.test"]), UnmatchedWatch::default());
        let nobody: [(String, String); 0] = [];
        assert_eq!(said(&mut watch, &proxy, (0..600).step_by(5)), nobody, "nobody has asked for anything");
        ["api.test", "used.test", "a.example.com", "unlike.org"].iter().for_each(|host| ask(&proxy, host));
        assert_eq!(said(&mut watch, &proxy, (600..660).step_by(5)), nobody);
        let expected = [("api.tset", "api.test"), ("*.exmaple.com", "a.example.com")];
        assert_eq!(said(&mut watch, &proxy, [660]), expected.map(|(rule, host)| (rule.into(), host.into())));
        assert_eq!(said(&mut watch, &proxy, (665..9000).step_by(5)), nobody);
    }

    #[test]
    fn a_host_that_has_a_rule_to_itself_was_not_mistyped() {
        let (proxy, mut watch) = (proxy(&["api.tset", "api.test", "*"]), UnmatchedWatch::default());
        ask(&proxy, "api.test");
        assert_eq!(said(&mut watch, &proxy, [0, 60, 120]), [], "whoever asked had a rule");
        ask(&proxy, "api.best");
        assert_eq!(with_nearest(&proxy)[0].nearest.as_deref(), Some("api.best"));
        assert_eq!(with_nearest(&proxy).len(), 1);
    }

    #[test]
    fn rules_without_any_of_these_hosts_are_named_with_the_most_similar_one() {
        let proxy = proxy(&["api.tset", "used.test", "localhost", "*.below.test"]);
        let origins = ["http://api.test/", "http://used.test:8080/", "http://a.below.test/", "http://127.0.0.1:99/"];
        let origins = origins.map(|url| Origin::parse(Scheme::Http, url.split('/').nth(2).unwrap(), Some(80)).unwrap());
        let unasked = Unmatched::by(&proxy.lanes.rules(), &origins.iter().collect::<Vec<_>>());
        let unasked: Vec<_> = unasked.iter().map(|one| (&*one.rule, one.nearest.as_deref())).collect();
        assert_eq!(unasked, [("api.tset", Some("api.test")), ("localhost", None)]);
    }

    #[test]
    fn a_host_that_is_not_like_it_is_not_named() {
        let proxy = proxy(&["api.exmaple.com"]);
        for host in ["127.0.0.1", "www.wikipedia.org", "[::1]"] {
            ask(&proxy, host);
        }
        assert_eq!((with_nearest(&proxy)[0].nearest.as_deref(), with_nearest(&proxy)[0].likeness), (None, 0.0));
        ask(&proxy, "api.example.com");
        assert_eq!(with_nearest(&proxy)[0].nearest.as_deref(), Some("api.example.com"));
    }

    #[test]
    fn a_rule_for_another_port_was_not_matched_either() {
        let proxy = proxy(&["api.test:8443"]);
        ask(&proxy, "api.test");
        let found = with_nearest(&proxy);
        assert_eq!((found[0].nearest.as_deref(), found[0].likeness), (Some("api.test"), 1.0));
    }
}
