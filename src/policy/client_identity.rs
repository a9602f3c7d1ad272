//! Addresses that count as one client.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that count as one client. With larger groups, a client's new address brings no new share of a queue, of
/// memory, or of a limit for each client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientIdentity {
    /// A machine is a client: all loopback addresses belong to this one, and an IPv6 host has a whole /64 (RFC 6177
    /// §2, RFC 8981).
    #[default]
    Machine,
    /// Every address is a client, for containers that share a /64 and programs that bind loopback addresses of their
    /// own.
    Address,
}

// === impl ClientIdentity ===

impl ClientIdentity {
    /// The address that stands for the client at `address`: its own, or the first one of its network.
    pub fn of(self, address: IpAddr) -> IpAddr {
        match (self, address.to_canonical()) {
            (Self::Machine, address) if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            (Self::Machine, IpAddr::V6(address)) => {
                let network = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(network).into()
            }
            (_, address) => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(identity: ClientIdentity, one: &str, other: &str) -> bool {
        identity.of(one.parse().unwrap()) == identity.of(other.parse().unwrap())
    }

    #[test]
    fn loopback_is_one_machine_and_a_64_is_one_host() {
        for (one, other, machine, address) in [
            ("127.0.0.1", "127.9.8.7", true, false),
            ("127.0.0.1", "::1", true, false),
            ("::ffff:127.0.0.2", "127.0.0.3", true, false),
            ("::ffff:10.1.2.3", "10.1.2.3", true, true),
            ("10.1.2.3", "10.1.2.4", false, false),
            ("2001:db8:1:2::3", "2001:db8:1:2:ffff::1", true, false),
            ("2001:db8:1:2::3", "2001:db8:1:3::3", false, false),
        ] {
            assert_eq!(same(ClientIdentity::Machine, one, other), machine, "{one} {other}");
            assert_eq!(same(ClientIdentity::Address, one, other), address, "{one} {other}");
        }
    }
}
