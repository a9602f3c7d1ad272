//! The identity of a request in the queue: its urgency, client, flow and weights.

use core::net::{IpAddr, Ipv6Addr};
use std::{fmt, num::NonZeroU16};

/// How urgent a request is: 0 is first, 7 is last (RFC 9218 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urgency(u8);

/// The client that sends a request: its address, or the first address of its network, as an IPv6 address in two halves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId([u64; 2]);

/// A flow of a client: a hash of the name that the client gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Relative share of a client or a flow: weight 2 gets twice as much as weight 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Weight(pub NonZeroU16);

/// Identity of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The request's urgency.
    pub urgency: Urgency,
    /// The request's client.
    pub client: ClientId,
    /// The request's flow among the client's flows.
    pub flow: FlowId,
    /// The client's weight among all clients.
    pub client_weight: Weight,
    /// The flow's weight among the client's flows.
    pub flow_weight: Weight,
}

/// A request's attempt: resent requests go in front of others of their flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// The request has been sent before.
    Resent,
    /// The request has never been sent.
    New,
}

/// How a flow queue or a member has come to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comes {
    /// The request has just begun to wait.
    New,
    /// Moved from another place.
    Moved,
    /// Moved from another place, where it missed its turns because it needs several budgets at once: it gets the next
    /// turn.
    Missed,
}

// === impl Urgency ===

impl Urgency {
    /// Number of urgencies.
    pub const COUNT: usize = 8;
    /// The first.
    pub const MOST: Self = Self(0);
    /// The urgency of a request that does not name one (RFC 9218 §4.1).
    pub const USUAL: Self = Self(3);
    /// The last.
    pub const LEAST: Self = Self(7);

    /// The urgency with this number; `None` above 7.
    pub fn new(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// The urgency's number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Urgency {
    fn default() -> Self {
        Self::USUAL
    }
}

// === impl ClientId ===

impl ClientId {
    /// No client in particular.
    pub const NONE: Self = Self([0; 2]);

    /// The client that `address` stands for: see `ClientIdentity` in `andante-policy`.
    pub fn of(address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        }
        .to_bits();
        Self([(bits >> 64) as u64, bits as u64])
    }

    /// The client's address, or the first address of its network.
    pub fn address(self) -> IpAddr {
        match self {
            Self::NONE => Ipv6Addr::LOCALHOST.into(),
            Self([high, low]) => {
                IpAddr::from(Ipv6Addr::from_bits((u128::from(high) << 64) | u128::from(low))).to_canonical()
            }
        }
    }

    /// The address as one number, for a hash.
    pub(super) fn get(self) -> [u64; 2] {
        self.0
    }

    fn is_network(self) -> bool {
        self.0[0] != 0 && self.0[1] == 0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)?;
        f.write_str(if self.is_network() { "/64" } else { "" })
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl FlowId ===

impl FlowId {
    /// The flow for display: a hash, as the client's name for it is not stored.
    pub fn shown(self) -> String {
        format!("{:08x}", self.0 as u32)
    }
}

// === impl Weight ===

impl Weight {
    /// The weight of a client or a flow without a configured one.
    pub const ONE: Self = Self(NonZeroU16::MIN);

    pub(super) fn get(self) -> u64 {
        self.0.get().into()
    }
}

// === impl Claim ===

impl Claim {
    /// The identity of a request that declares nothing.
    pub const USUAL: Self = Self {
        urgency: Urgency::USUAL,
        client: ClientId::NONE,
        flow: FlowId(0),
        client_weight: Weight::ONE,
        flow_weight: Weight::ONE,
    };
}

impl Default for Claim {
    fn default() -> Self {
        Self::USUAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_one_host() {
        let id = |text: &str| ClientId::of(text.parse().unwrap());
        assert_eq!(id("10.1.2.3").to_string(), "10.1.2.3");
        assert_eq!(id("::ffff:10.1.2.3"), id("10.1.2.3"));
        assert_ne!(id("2001:db8:1:2::3"), id("2001:db8:1:2::4"));
        assert_eq!(id("2001:db8:1:2::").to_string(), "2001:db8:1:2::/64");
        assert_eq!(id("2001:db8:1:2::3").to_string(), "2001:db8:1:2::3");
        assert_eq!(id("::1").to_string(), "::1");
    }

    #[test]
    fn urgencies_are_those_of_rfc_9218() {
        assert_eq!(Urgency::new(7), Some(Urgency::LEAST));
        assert_eq!(Urgency::new(8), None);
        assert_eq!(Urgency::USUAL.get(), 3);
    }
}
