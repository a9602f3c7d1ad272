//! A rule's settings for the order of waiting requests.

use core::net::IpAddr;
use std::{fmt, num::NonZeroU16, str::FromStr};

use ipnet::IpNet;

use super::{
    network::{self, BadNetwork},
    reserve::Reserve,
};

/// Permissions for urgent requests, and the shares of clients and flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Networks that may use an urgency above the default; `None` for all.
    pub urgent: Option<Vec<IpNet>>,
    /// Urgency of requests that state none, from 0 to 7 (RFC 9218 §4.1).
    pub urgency: Option<u8>,
    /// The levels at which waiting requests of one urgency share the slots.
    pub share_by: ShareBy,
    /// The order of flows at their level.
    pub flow_order: FlowOrder,
    /// The weights of clients and of flows; all others have 1.
    pub weights: Vec<AssignedWeight>,
    /// Share that is reserved for urgent requests.
    pub reserve: Option<Reserve>,
}

/// Levels at which waiting requests of one urgency share the slots, the upper one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareBy {
    /// Clients share, and below them the flows of each client.
    #[default]
    ClientThenFlow,
    /// Flows of one name share, whichever clients they are from, and below them the clients of each flow.
    FlowThenClient,
    /// Clients share; the requests of a client leave in order.
    Client,
    /// Flows of one name share; the requests of a flow leave in order.
    Flow,
}

/// The order of flows at their level of [`ShareBy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowOrder {
    /// Flows share the slots by their weights.
    #[default]
    Fair,
    /// Requests of all flows leave as they come.
    FirstCome,
    /// The flow with the lowest rank is first, then the flow that is due first, then requests as they come.
    Rank,
}

/// A level of [`ShareBy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareLevel {
    /// Clients.
    Client,
    /// Flows.
    Flow,
}

/// The weight of a network or a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedWeight {
    /// Owner of the weight.
    pub of: ShareOf,
    /// Share relative to an owner of weight 1.
    pub weight: NonZeroU16,
}

/// Client network or flow with a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareOf {
    /// Each client in this network, among clients.
    Clients(IpNet),
    /// The flow of this name, among the flows of its client.
    Flow(String),
}

/// Reason why a text assigns no weight.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadShare {
    /// The text has another form, or no name.
    #[error("not of the form NAME=WEIGHT")]
    Form,
    /// The assigned weight is invalid.
    #[error("a weight is a whole number from 1 to 65535")]
    Weight,
    /// The name looks like a network, but is not a valid one.
    #[error("{0}: {hint}", hint = .0.hint())]
    Network(#[from] BadNetwork),
}

// === impl Turns ===

impl Turns {
    /// Returns whether the members of this level share the slots by their weights. Flows in order do not share, and
    /// neither do the clients below them.
    pub fn shares(&self, level: ShareLevel) -> bool {
        let levels = self.share_by.levels().iter();
        let mut sharing =
            levels.take_while(|level| **level == ShareLevel::Client || self.flow_order == FlowOrder::Fair);
        sharing.any(|sharing| *sharing == level)
    }

    /// Returns whether the client at `address` may use an urgency above the default.
    pub fn may_be_urgent(&self, address: IpAddr) -> bool {
        self.urgent.as_ref().is_none_or(|networks| networks.iter().any(|network| holds(network, address)))
    }

    /// Weight of the client at `address`: the weight of the smallest network that contains it.
    pub fn weight_of_client(&self, address: IpAddr) -> NonZeroU16 {
        let networks = self.weights.iter().filter_map(|share| match &share.of {
            ShareOf::Clients(network) => holds(network, address).then_some((network.prefix_len(), share.weight)),
            ShareOf::Flow(_) => None,
        });
        networks.max_by_key(|(length, _)| *length).map_or(NonZeroU16::MIN, |(_, weight)| weight)
    }

    /// The weight of the flow with this name.
    pub fn weight_of_flow(&self, name: &[u8]) -> NonZeroU16 {
        let found = self.weights.iter().find(|share| matches!(&share.of, ShareOf::Flow(of) if of.as_bytes() == name));
        found.map_or(NonZeroU16::MIN, |share| share.weight)
    }
}

fn holds(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address.to_canonical())
}

// === impl ShareBy ===

impl ShareBy {
    /// All orders of sharing.
    const ALL: [Self; 4] = [Self::ClientThenFlow, Self::FlowThenClient, Self::Client, Self::Flow];

    /// The order of sharing by these levels, the upper one first; `None` if there are none, or one is there twice.
    pub fn of(levels: &[ShareLevel]) -> Option<Self> {
        Self::ALL.into_iter().find(|share_by| share_by.levels() == levels)
    }

    /// The levels, the upper one first.
    pub fn levels(self) -> &'static [ShareLevel] {
        match self {
            Self::ClientThenFlow => &[ShareLevel::Client, ShareLevel::Flow],
            Self::FlowThenClient => &[ShareLevel::Flow, ShareLevel::Client],
            Self::Client => &[ShareLevel::Client],
            Self::Flow => &[ShareLevel::Flow],
        }
    }
}

// === impl FlowOrder ===

impl FlowOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Fair, Self::FirstCome, Self::Rank];

    /// The value in a rule.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::FirstCome => "first-come",
            Self::Rank => "rank",
        }
    }
}

impl fmt::Display for ShareLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Flow => "flow",
        })
    }
}

// === impl AssignedWeight ===

impl FromStr for AssignedWeight {
    type Err = BadShare;

    /// Parses `live=10` or `10.1.0.0/16=2`: a name that does not look like a network is a flow.
    fn from_str(text: &str) -> Result<Self, BadShare> {
        let (of, weight) = text.rsplit_once('=').ok_or(BadShare::Form)?;
        let (of, weight) = (of.trim(), weight.trim());
        if of.is_empty() || weight.is_empty() {
            return Err(BadShare::Form);
        }
        let weight = weight.parse().map_err(|_| BadShare::Weight)?;
        let of = match network::is_like_a_network(of) {
            true => ShareOf::Clients(network::network(of)?),
            false => ShareOf::Flow(of.to_owned()),
        };
        Ok(Self { of, weight })
    }
}

impl fmt::Display for AssignedWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            ShareOf::Clients(network) => write!(f, "{network}={}", self.weight),
            ShareOf::Flow(name) => write!(f, "{name}={}", self.weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_network_counts() {
        let weights = ["10.0.0.0/8=2", "10.1.2.3=9", "10.1.0.0/16=5", "live=7"].map(|text| text.parse().unwrap());
        let turns = Turns { weights: weights.to_vec(), ..Turns::default() };
        let client = |text: &str| turns.weight_of_client(text.parse().unwrap()).get();
        assert_eq!(["10.9.9.9", "10.1.9.9", "10.1.2.3", "11.0.0.1"].map(client), [2, 5, 9, 1]);
        assert_eq!(client("::ffff:10.1.2.3"), 9);
        assert_eq!(turns.weight_of_flow(b"live").get(), 7);
        assert_eq!(turns.weight_of_flow(b"batch").get(), 1);
    }

    #[test]
    fn what_is_no_weight_is_refused() {
        for (texts, why) in
            [(["live", "=3", "live="], BadShare::Form), (["live=0", "live=-1", "live=70000"], BadShare::Weight)]
        {
            for text in texts {
                assert_eq!(text.parse::<AssignedWeight>().as_ref(), Err(&why), "{text}");
            }
        }
    }

    #[test]
    fn a_wrong_network_is_not_the_name_of_a_flow() {
        for (text, words) in [
            ("10.0.0.0/33=2", "expected a network, found \"10.0.0.0/33\": write a prefix from 0 to 32"),
            ("10.0.0.256=2", "expected a network, found \"10.0.0.256\": write \"10.1.0.0/16\""),
            ("10.0.0.5/8=2", "bits set beyond its prefix: write \"10.0.0.0/8\" for the network"),
        ] {
            let error = text.parse::<AssignedWeight>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let flow = "jobs/7=2".parse::<AssignedWeight>().unwrap();
        assert_eq!(flow.of, ShareOf::Flow("jobs/7".into()));
    }
}
