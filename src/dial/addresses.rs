//! Addresses of a name, and their validity.

use std::{net::IpAddr, time::Duration};

/// Addresses of a name, in order of preference, and their validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Addresses, at least one.
    pub list: Vec<IpAddr>,
    /// Time after which the name must be resolved again: the shortest TTL of the records, or an assumed one.
    pub ttl: Duration,
}

// === impl Addresses ===

impl Addresses {
    /// Creates the result of a look-up from addresses that are valid for `ttl`.
    pub(super) fn new(list: Vec<IpAddr>, ttl: Duration) -> Self {
        Self { list, ttl }
    }

    /// Returns whether the list contains `address`. An IPv4-mapped address equals the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.list.iter().any(|one| one.to_canonical() == address.to_canonical())
    }

    /// Returns the addresses with alternating families, starting with the family of the first one (RFC 8305 §4).
    pub(super) fn interleaved(list: Vec<IpAddr>) -> Vec<IpAddr> {
        let first_is_v4 = list.first().is_some_and(IpAddr::is_ipv4);
        let (preferred, other): (Vec<_>, Vec<_>) = list.into_iter().partition(|one| one.is_ipv4() == first_is_v4);
        let (mut preferred, mut other) = (preferred.into_iter(), other.into_iter());
        let mut order = Vec::with_capacity(preferred.len() + other.len());
        while preferred.len() + other.len() > 0 {
            order.extend(preferred.next());
            order.extend(other.next());
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_the_first_one_begins() {
        let parse = |list: [&str; 5]| list.map(|one| one.parse::<IpAddr>().unwrap()).to_vec();
        let list = parse(["2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        let order = parse(["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(Addresses::interleaved(list), order);
    }

    #[test]
    fn a_mapped_address_is_found_as_its_ipv4_address() {
        let addresses = Addresses::new(vec!["192.0.2.1".parse().unwrap()], Duration::ZERO);
        assert!(addresses.contains("::ffff:192.0.2.1".parse().unwrap()));
        assert!(!addresses.contains("192.0.2.2".parse().unwrap()));
    }
}
