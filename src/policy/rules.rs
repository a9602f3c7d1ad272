//! Set of all rules, and the choice of the rule for a host.

use std::sync::Arc;

use andante_limit as limit;

use super::{
    Added, HostPattern, Https, NamedTunnel, Origin, Policy, Scheme,
    named::{address, stricter},
};

/// All rules, in the order in which they were written.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    rules: Vec<Arc<Policy>>,
    unruled: Arc<Policy>,
    interception: Interception,
}

/// Interception of CONNECT where rules do not mention it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interception {
    /// Hosts to intercept (`--intercept`).
    pub hosts: Vec<HostPattern>,
    /// Handling of all other hosts.
    pub others: Unlisted,
}

/// Handling of a CONNECT to a host that neither its rule nor `--intercept` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlisted {
    /// A blind tunnel, which is paced by turns if the host has limits (`andante serve`, and `--intercept none`).
    #[default]
    Tunnel,
    /// Intercepted if the host has limits (`andante run --intercept HOST`).
    InterceptLimited,
    /// Intercepted (`andante run`).
    Intercept,
}

/// Setting that decides how a CONNECT is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsReason {
    /// The list of intercepted hosts names it.
    Listed,
    /// The host's rule names it.
    Rule,
    /// The default for unlisted hosts decides, because neither names the host.
    Unlisted(Unlisted),
}

// === impl Rules ===

impl Rules {
    /// Rules in the order of writing. Fills in the bursts that they leave open. Hosts without one have no limits.
    pub fn new(mut rules: Vec<Policy>) -> Self {
        rules.iter_mut().for_each(|rule| limit::settle(&mut rule.limits));
        Self {
            rules: rules.into_iter().map(Arc::new).collect(),
            unruled: Policy::unruled().into(),
            interception: Interception::default(),
        }
    }

    /// Replaces the policy for hosts without a rule with `unruled`.
    pub fn otherwise(self, unruled: Policy) -> Self {
        Self { unruled: unruled.into(), ..self }
    }

    /// Takes equal rules from `others`, so that unchanged rules stay the same objects.
    pub fn reusing(self, others: &Self) -> Self {
        let same = |rule: Arc<Policy>| others.iter().find(|other| **other == rule).cloned().unwrap_or(rule);
        let unruled = if self.unruled == others.unruled { others.unruled.clone() } else { self.unruled };
        Self { rules: self.rules.into_iter().map(same).collect(), unruled, ..self }
    }

    /// Replaces the rule at `position` with `policy`.
    pub fn with(&self, position: usize, mut policy: Policy) -> Self {
        limit::settle(&mut policy.limits);
        let mut changed = self.clone();
        changed.rules[position] = policy.into();
        changed
    }

    /// Policy for hosts without a rule.
    pub fn unruled(&self) -> &Arc<Policy> {
        &self.unruled
    }

    /// Intercepts CONNECT according to `interception`.
    pub fn intercepting(self, interception: Interception) -> Self {
        Self { interception, ..self }
    }

    /// Interception of CONNECT where rules do not mention it.
    pub fn interception(&self) -> &Interception {
        &self.interception
    }

    /// Handling of a CONNECT to `origin`, whose rule is `policy`.
    pub fn https(&self, origin: &Origin, policy: &Policy) -> Https {
        self.https_because(origin, policy).0
    }

    /// Handling of HTTPS to each host of `rule`.
    pub fn https_of<'a>(&'a self, rule: &'a Policy) -> impl Iterator<Item = (&'a HostPattern, Https)> {
        rule.hosts.iter().map(|pattern| {
            let origin = pattern.example();
            (pattern, self.https(&origin, self.policy_for(&origin)))
        })
    }

    /// Handling of HTTPS to `host`, whose rule is `policy`.
    pub fn https_to(&self, host: &Arc<str>, policy: &Policy) -> Https {
        let port = policy.hosts.iter().find_map(HostPattern::port).unwrap_or(443);
        self.https(&Origin { scheme: Scheme::Https, host: host.clone(), port }, policy)
    }

    /// Handling of a CONNECT to `origin`, with the setting that decides it.
    ///
    /// The narrower pattern of the rule and the list of intercepted hosts decides: `*` does not include a host that a
    /// rule names as a tunnel. A refusal always holds.
    pub fn https_because(&self, origin: &Origin, policy: &Policy) -> (Https, HttpsReason) {
        let narrowest =
            |hosts: &[HostPattern]| hosts.iter().filter(|host| host.matches(origin)).map(HostPattern::weight).max();
        let listed = narrowest(&self.interception.hosts);
        let said = policy.https.and_then(|_| narrowest(&policy.hosts));
        if policy.https != Some(Https::Refuse) && listed.is_some() && listed >= said {
            return (Https::Intercept, HttpsReason::Listed);
        }
        // Paths, methods and header fields are seen by interception only.
        let limited = |unseen: bool| {
            policy.is_limited()
                || self.added(origin).any(|rule| !unseen || rule.added.as_ref().is_some_and(Added::is_for_unseen))
        };
        if let Some(said) = policy.https {
            // Without a limit, turns have no effect.
            let is_unpaced = said == Https::Turns && !limited(true);
            return (if is_unpaced { Https::Tunnel } else { said }, HttpsReason::Rule);
        }
        let https = match self.interception.others {
            Unlisted::Intercept => Https::Intercept,
            Unlisted::InterceptLimited if limited(false) => Https::Intercept,
            Unlisted::Tunnel if limited(true) => Https::Turns,
            Unlisted::InterceptLimited | Unlisted::Tunnel => Https::Tunnel,
        };
        (https, HttpsReason::Unlisted(self.interception.others))
    }

    /// Returns whether any CONNECT may be intercepted, so that a CA is needed.
    pub fn intercepts(&self) -> bool {
        let Interception { hosts, others } = &self.interception;
        let intercepted = |policy: &Arc<Policy>| match policy.https {
            Some(said) => said == Https::Intercept,
            None => others.includes(policy),
        };
        !hosts.is_empty() || *others == Unlisted::Intercept || self.rules.iter().any(intercepted)
    }

    /// The rule for `origin`: the one with the most specific pattern, the earlier one among equals.
    pub fn find(&self, origin: &Origin) -> Option<&Arc<Policy>> {
        self.position(origin).map(|position| self.get(position))
    }

    /// The number of the rule for `origin`, in the order of [`iter`](Self::iter).
    pub fn position(&self, origin: &Origin) -> Option<usize> {
        let mut best = None;
        for (position, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.added.is_none()) {
            for pattern in rule.hosts.iter().filter(|pattern| pattern.matches(origin)) {
                if best.is_none_or(|(weight, _)| pattern.weight() > weight) {
                    best = Some((pattern.weight(), position));
                }
            }
        }
        best.map(|(_, position)| position)
    }

    /// Returns whether at most one rule for whole hosts limits requests to `host`, whatever their ports.
    pub fn limits_alone(&self, host: &Arc<str>) -> bool {
        let limits = |rule: &Policy| !rule.limits.is_empty() || rule.shared_in_flight().is_some();
        let mut limiting = self.of_ports(host).flatten().filter(|rule| limits(&self.rules[*rule]));
        limiting.next().is_none_or(|first| limiting.all(|rule| rule == first))
    }

    /// Returns whether all requests to `host`, whatever their ports, have the same rule for whole hosts, or none.
    pub fn is_alone(&self, host: &Arc<str>) -> bool {
        let mut rules = self.of_ports(host);
        rules.next().is_none_or(|first| rules.all(|rule| rule == first))
    }

    /// The ports of `host` that rules for whole hosts name.
    pub fn ports(&self, host: &Arc<str>) -> impl Iterator<Item = u16> {
        let origin = |port| Origin { scheme: Scheme::Http, host: host.clone(), port };
        let patterns = self.rules.iter().filter(|rule| rule.added.is_none()).flat_map(|rule| &rule.hosts);
        patterns.filter_map(move |pattern| pattern.port().filter(|port| pattern.matches(&origin(*port))))
    }

    /// Rules for requests to `host`, one for each port that rules distinguish; `None` where a port has no rule.
    fn of_ports(&self, host: &Arc<str>) -> impl Iterator<Item = Option<usize>> {
        let origin = |port| Origin { scheme: Scheme::Http, host: host.clone(), port };
        // No pattern names port 0.
        self.ports(host).chain([0]).map(move |port| self.position(&origin(port)))
    }

    /// The rules for some of the requests to `origin`, in the order of writing. Added rules hold in addition to the
    /// origin's own rule.
    pub fn added(&self, origin: &Origin) -> impl Iterator<Item = &Arc<Policy>> {
        let added = self.rules.iter().filter(|rule| rule.added.is_some());
        added.filter(|rule| rule.hosts.iter().any(|host| host.matches(origin)))
    }

    /// Rules on which requests to `origin` may draw besides its own: first the added rules in order, then the
    /// unreserved rest.
    pub fn beside(&self, origin: &Origin) -> impl Iterator<Item = Arc<Policy>> {
        let rest = self.find(origin).and_then(|own| own.besides_reserve());
        self.added(origin).cloned().chain(rest)
    }

    /// The rule with this number.
    pub fn get(&self, position: usize) -> &Arc<Policy> {
        &self.rules[position]
    }

    /// The rule with this number, or the policy for hosts without one.
    pub fn policy(&self, position: Option<usize>) -> &Arc<Policy> {
        position.map_or(&self.unruled, |position| self.get(position))
    }

    /// The rule for `origin`, or the policy for hosts without one.
    pub fn policy_for(&self, origin: &Origin) -> &Arc<Policy> {
        self.find(origin).unwrap_or(&self.unruled)
    }

    /// All rules, in the order of writing.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.rules.iter()
    }

    /// Returns whether any rule may match a server name.
    pub fn may_name(&self) -> bool {
        self.iter().next().is_some() || !self.interception().hosts.is_empty()
    }

    /// Returns the verdict about a tunnel to `target` whose ClientHello names `name`.
    ///
    /// A client that connects to an address has looked up the name itself. So the name's rule holds, and a rule for
    /// that address alone holds too. Of two different names the stricter rule holds, and the limits of both: the API
    /// behind them may go by either.
    pub fn named(&self, target: &Origin, name: &Origin) -> NamedTunnel {
        let (own, own_policy) = self.handling(target);
        let unnamed = NamedTunnel { https: own, by_target: true, by_name: false };
        if target.host == name.host || !self.is_named(name) {
            return unnamed;
        }
        let (named, name_policy) = self.handling(name);
        let strict = NamedTunnel { https: stricter(own, named), by_target: true, by_name: true };
        if address(target).is_none() {
            return strict;
        }
        // A rule for all hosts has a lane for each host; only the name's lane counts.
        let own_rule = self.find(target).is_some() && !Arc::ptr_eq(own_policy, name_policy);
        let https = if own_rule && own_policy.https.is_some() { stricter(own, named) } else { named };
        NamedTunnel { https, by_target: own_rule, by_name: true }
    }

    /// The origin whose rule holds for requests to `name` in a tunnel to the address of `target`.
    pub fn ruling<'a>(&self, target: &'a Origin, name: &'a Origin) -> &'a Origin {
        if self.find(name).is_none() && self.find(target).is_some() { target } else { name }
    }

    fn handling(&self, origin: &Origin) -> (Https, &Arc<Policy>) {
        let policy = self.policy_for(origin);
        (self.https(origin, policy), policy)
    }

    /// Returns whether a rule, or the list of intercepted hosts, is for `name`.
    fn is_named(&self, name: &Origin) -> bool {
        let policy = self.find(name);
        let listed = || self.https_because(name, policy.unwrap_or(self.unruled())).1 == HttpsReason::Listed;
        policy.is_some() || self.added(name).next().is_some() || listed()
    }
}

// === impl Unlisted ===

impl Unlisted {
    /// Returns whether hosts with this `policy`, which does not mention HTTPS, are intercepted.
    fn includes(self, policy: &Policy) -> bool {
        match self {
            Self::Tunnel => false,
            Self::InterceptLimited => policy.is_limited(),
            Self::Intercept => true,
        }
    }

    /// The default for unlisted hosts once the user names hosts to intercept.
    pub fn besides_named(self) -> Self {
        match self {
            Self::Intercept => Self::InterceptLimited,
            Self::InterceptLimited | Self::Tunnel => self,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Scheme, *};

    #[test]
    fn the_rule_that_says_most_wins() {
        let rule = |name: &str, host: &str| Policy::new(name, vec![host.parse().unwrap()]);
        let rules = Rules::new(vec![
            rule("any", "*"),
            rule("below", "*.example.com"),
            rule("deeper", "*.eu.example.com"),
            rule("exact", "api.example.com"),
            rule("port", "api.example.com:8443"),
        ]);
        let found =
            |text: &str| rules.find(&Origin::parse(Scheme::Http, text, Some(80)).unwrap()).unwrap().name.to_string();
        assert_eq!(found("api.example.com"), "exact");
        assert_eq!(found("api.example.com:8443"), "port");
        assert_eq!(found("a.example.com"), "below");
        assert_eq!(found("a.eu.example.com"), "deeper");
        assert_eq!(found("example.com"), "any");
        assert!(Rules::default().find(&Origin::parse(Scheme::Http, "a", Some(1)).unwrap()).is_none());
    }
}
