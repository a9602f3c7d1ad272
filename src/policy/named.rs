//! Rules for a tunnel whose client names different hosts in its TLS handshake and in its CONNECT.

use core::net::IpAddr;

use super::{Https, Origin};

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

/// The address in `origin`, if its host is one.
pub fn address(origin: &Origin) -> Option<IpAddr> {
    origin.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The stricter of two ways: the one that lets less pass unseen.
pub(super) fn stricter(one: Https, other: Https) -> Https {
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
    use crate::{Policy, Rules, Scheme};

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
