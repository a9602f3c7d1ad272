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

/// The levels at which requests of one urgency share the slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Levels {
    /// Clients share, and below them the flows of each client.
    #[default]
    ClientThenFlow,
    /// Flows of one name share, and below them the clients of each flow.
    FlowThenClient,
    /// Clients share; the requests of a client leave in order.
    Client,
    /// Flows of one name share; the requests of a flow leave in order.
    Flow,
    /// Nothing is shared: all requests leave in order.
    InOrder,
}

/// Place of a flow among the flows with which it does not share: the lowest rank is first, then the earliest due time,
/// then first come, first served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowRank(u64);

/// A member of the upper level: a client or a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sharer([u64; 2]);

/// Identity of a flow queue: the claim without its weights.
pub(super) type Claimed = (u8, u8, [u64; 2], u64, FlowRank);

/// Identity of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The request's urgency.
    pub urgency: Urgency,
    /// The levels at which the request's slots are shared.
    pub levels: Levels,
    /// The request's client.
    pub client: ClientId,
    /// The request's flow among the client's flows.
    pub flow: FlowId,
    /// The flow's rank.
    pub rank: FlowRank,
    /// The client's weight among the clients of its level.
    pub client_weight: Weight,
    /// The flow's weight among the flows of its level.
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

    /// The address in 64 bits: exact for IPv4 addresses and networks. Two IPv6 addresses are the same only if they are
    /// made so, and then share one place below their flow.
    fn folded(self) -> u64 {
        let Self([high, low]) = self;
        high.rotate_left(32) ^ low
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

// === impl Sharer ===

impl Sharer {
    /// First half of a flow: no address of a client begins with it, as these are multicast (RFC 4291 §2.7).
    const FLOW: u64 = u64::MAX;
    /// First half of the member that is alone in its level.
    const ALL: u64 = u64::MAX - 1;
}

// === impl FlowId ===

impl FlowId {
    /// The flow for display: a hash, as the client's name for it is not stored.
    pub fn shown(self) -> String {
        format!("{:08x}", self.0 as u32)
    }

    /// Maximum number of flows of a client that are distinguished by name while they wait. Further flows share the same
    /// number of places.
    pub(super) const MAX_EXACT: usize = 256;

    /// Returns whether several flows share this place.
    pub fn is_shared(self) -> bool {
        self.0 < Self::MAX_EXACT as u64
    }

    /// The place that the flow shares with others.
    pub(super) fn shared(self) -> Self {
        Self(self.0 % Self::MAX_EXACT as u64)
    }
}

// === impl FlowRank ===

impl FlowRank {
    /// Rank of a flow that states neither a rank nor a due time.
    pub const LAST: Self = Self(u64::MAX);
    /// Highest number of a rank.
    pub const MOST: u16 = u16::MAX - 1;

    /// The rank of a flow with this number, up to [`MOST`](Self::MOST), that is due at this time in seconds since 1970.
    /// A flow without a number comes after all numbers; one without a time comes after all times.
    pub fn new(number: Option<u16>, due: Option<u64>) -> Self {
        const TIME_BITS: u32 = 48;
        let number = number.map_or(u16::MAX, |number| number.min(Self::MOST));
        let last = (1 << TIME_BITS) - 1;
        Self(u64::from(number) << TIME_BITS | due.map_or(last, |due| due.min(last - 1)))
    }
}

// === impl Weight ===

impl Weight {
    /// The weight of a client or a flow without a configured one.
    pub const ONE: Self = Self(NonZeroU16::MIN);

    /// The weight as a number.
    pub fn get(self) -> u64 {
        self.0.get().into()
    }
}

// === impl Claim ===

impl Claim {
    /// The identity of a request that declares nothing.
    pub const USUAL: Self = Self {
        urgency: Urgency::USUAL,
        levels: Levels::ClientThenFlow,
        client: ClientId::NONE,
        flow: FlowId(0),
        rank: FlowRank::LAST,
        client_weight: Weight::ONE,
        flow_weight: Weight::ONE,
    };

    /// The member of the upper level that the request belongs to.
    pub fn upper(&self) -> Sharer {
        match self.levels {
            Levels::ClientThenFlow | Levels::Client => Sharer(self.client.0),
            Levels::FlowThenClient | Levels::Flow => Sharer([Sharer::FLOW, self.flow.0]),
            Levels::InOrder => Sharer([Sharer::ALL, 0]),
        }
    }

    /// The member of the lower level that the request belongs to. A level that does not share has one member.
    pub(super) fn lower(&self) -> u64 {
        match self.levels {
            Levels::ClientThenFlow => self.flow.0,
            Levels::FlowThenClient => self.client.folded(),
            Levels::Client | Levels::Flow | Levels::InOrder => 0,
        }
    }

    /// Returns whether requests of the same upper member leave in order, by the ranks of their flows.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self.levels, Levels::Client | Levels::Flow | Levels::InOrder)
    }

    /// Weights of the request's members in the upper and the lower level.
    pub fn weights(&self) -> (Weight, Weight) {
        match self.levels {
            Levels::ClientThenFlow => (self.client_weight, self.flow_weight),
            Levels::FlowThenClient => (self.flow_weight, self.client_weight),
            Levels::Client => (self.client_weight, Weight::ONE),
            Levels::Flow => (self.flow_weight, Weight::ONE),
            Levels::InOrder => (Weight::ONE, Weight::ONE),
        }
    }

    /// The claim with these weights in the upper and the lower level.
    pub(super) fn with_weights(self, upper: Weight, lower: Weight) -> Self {
        match self.levels {
            Levels::ClientThenFlow => Self { client_weight: upper, flow_weight: lower, ..self },
            Levels::FlowThenClient => Self { flow_weight: upper, client_weight: lower, ..self },
            Levels::Client => Self { client_weight: upper, ..self },
            Levels::Flow => Self { flow_weight: upper, ..self },
            Levels::InOrder => self,
        }
    }

    /// The claim without its weights.
    pub(super) fn claimed(&self) -> Claimed {
        (self.urgency.get(), self.levels as u8, self.client.0, self.flow.0, self.rank)
    }
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
    fn lower_rank_is_first_and_then_the_earlier_due_time() {
        let order = [
            FlowRank::new(Some(0), None),
            FlowRank::new(Some(1), Some(0)),
            FlowRank::new(Some(1), Some(1_764_400_000)),
            FlowRank::new(Some(1), Some(u64::MAX)),
            FlowRank::new(Some(1), None),
            FlowRank::new(Some(FlowRank::MOST), None),
            FlowRank::new(None, Some(1_764_400_000)),
            FlowRank::new(None, None),
        ];
        assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");
        assert_eq!(order[7], FlowRank::LAST);
    }

    #[test]
    fn urgencies_are_those_of_rfc_9218() {
        assert_eq!(Urgency::new(7), Some(Urgency::LEAST));
        assert_eq!(Urgency::new(8), None);
        assert_eq!(Urgency::USUAL.get(), 3);
    }
}
