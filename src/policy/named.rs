//! Rules for a tunnel whose client names different hosts in its TLS handshake and in its CONNECT.

use core::net::IpAddr;
use std::sync::Arc;

use super::{Https, HttpsReason, Origin, Policy, Rules};

/// Verdict about a tunnel with a server name in its ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTunnel {
    /// Handling of the tunnel.
    pub https: Https,
    /// The limits of the host of its CONNECT hold.
    pub by_target: bool,
    /// The limits of the server name hold.
    pub by_name: bool,
}

impl Rules {
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
        let policy = self.find(origin).unwrap_or(self.unruled());
        (self.https(origin, policy), policy)
    }

    /// Returns whether a rule, or the list of intercepted hosts, is for `name`.
    fn is_named(&self, name: &Origin) -> bool {
        let policy = self.find(name);
        let listed = || self.https_because(name, policy.unwrap_or(self.unruled())).1 == HttpsReason::Listed;
        policy.is_some() || self.added(name).next().is_some() || listed()
    }
}

/// The address in `origin`, if its host is one.
pub fn address(origin: &Origin) -> Option<IpAddr> {
    origin.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The stricter of two ways: the one that lets less pass unseen.
fn stricter(one: Https, other: Https) -> Https {
    let rank = |https| match https {
        Https::Tunnel => 0,
        Https::Turns => 1,
        Https::Intercept => 2,
        Https::Refuse => 3,
    };
    if rank(one) >= rank(other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheme;

    fn origin(host: &str) -> Origin {
        Origin::parse(Scheme::Https, host, Some(443)).unwrap()
    }

    fn rule(host: &str, limit: Option<&str>, https: Option<Https>) -> Policy {
        let limits = limit.map(|limit| limit.parse().unwrap()).into_iter().collect();
        Policy { limits, https, ..Policy::new(host, vec![host.parse().unwrap()]) }
    }

    fn named(rules: &[Policy], target: &str, name: &str) -> (Https, bool, bool) {
        let rules = Rules::new(rules.to_vec());
        let NamedTunnel { https, by_target, by_name } = rules.named(&origin(target), &origin(name));
        (https, by_target, by_name)
    }

    #[test]
    fn at_an_address_the_rule_of_the_name_holds() {
        for https in [Https::Refuse, Https::Intercept, Https::Turns, Https::Tunnel] {
            let rules = [rule("api.test", Some("1/s"), Some(https))];
            for address in ["10.0.0.5", "[fd00::5]"] {
                assert_eq!(named(&rules, address, "api.test"), (https, false, true), "{address}");
                assert_eq!(named(&rules, address, "other.test"), (Https::Tunnel, true, false), "{address}");
            }
        }
        assert_eq!(named(&[rule("*", Some("1/s"), None)], "10.0.0.5", "api.test"), (Https::Turns, false, true));
    }

    #[test]
    fn a_rule_for_an_address_holds_beside_that_of_the_name() {
        let rules = |https| [rule("10.0.0.5", Some("1/s"), https), rule("api.test", Some("9/s"), None)];
        assert_eq!(named(&rules(None), "10.0.0.5", "api.test"), (Https::Turns, true, true));
        assert_eq!(named(&rules(None), "10.0.0.5", "other.test"), (Https::Turns, true, false));
        assert_eq!(named(&rules(Some(Https::Refuse)), "10.0.0.5", "api.test").0, Https::Refuse);
    }

    #[test]
    fn of_two_names_the_stricter_rule_holds() {
        let rules = [
            rule("a.test", Some("1/s"), None),
            rule("b.test", None, Some(Https::Refuse)),
            rule("c.test", None, Some(Https::Intercept)),
        ];
        for (target, name, expected) in [
            ("front.test", "a.test", (Https::Turns, true, true)),
            ("a.test", "front.test", (Https::Turns, true, false)),
            ("a.test", "a.test", (Https::Turns, true, false)),
            ("front.test", "b.test", (Https::Refuse, true, true)),
            ("a.test", "b.test", (Https::Refuse, true, true)),
            ("b.test", "a.test", (Https::Refuse, true, true)),
            ("a.test", "c.test", (Https::Intercept, true, true)),
        ] {
            assert_eq!(named(&rules, target, name), expected, "{target} {name}");
        }
    }
}
