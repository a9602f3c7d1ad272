//! Addresses of a name, and how long they hold.

use std::{net::IpAddr, time::Duration};

/// Addresses of a name, in the order to try them in, and how long they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// At least one.
    pub list: Vec<IpAddr>,
    /// The time until the name is to be resolved again: the shortest TTL of the records.
    pub ttl: Duration,
}
