//! Hosts that a CA may sign for (name constraints, RFC 5280 §4.2.1.10).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use rcgen::{CidrSubnet, GeneralSubtree, NameConstraints};
use x509_parser::extensions::{GeneralName, GeneralSubtree as ParsedSubtree};

use super::CaError;
use crate::policy::HostPattern;

/// Hosts that a CA may sign for; empty means any host. A name permits itself and all names below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    names: Vec<String>,
    networks: Vec<IpNet>,
}

// === impl Constraints ===

impl Constraints {
    /// Builds the constraints that permit the hosts of `patterns`.
    ///
    /// Ports are ignored, because certificates have none. `*.example.com` also permits `example.com`, and a name also
    /// permits all names below it, because clients read constraints in this way.
    ///
    /// # Errors
    /// If a pattern is `*`.
    pub fn new(patterns: &[HostPattern]) -> Result<Self, CaError> {
        let mut bounds = Self::default();
        for pattern in patterns {
            let name = pattern.name().ok_or_else(|| CaError::Unbounded { pattern: pattern.to_string() })?;
            match name.parse::<IpAddr>() {
                Ok(address) => bounds.networks.push(address.into()),
                Err(_) => bounds.names.push(name.to_owned()),
            }
        }
        Ok(bounds.in_order())
    }

    /// Reads the permitted subtrees of a certificate. Ignores all but names and addresses.
    pub(super) fn parsed(permitted: &[ParsedSubtree<'_>]) -> Self {
        let mut bounds = Self::default();
        for subtree in permitted {
            match &subtree.base {
                GeneralName::DNSName(name) => {
                    bounds.names.push(name.trim_start_matches('.').to_ascii_lowercase());
                }
                GeneralName::IPAddress(bytes) => bounds.networks.extend(network(bytes)),
                _ => {}
            }
        }
        bounds.in_order()
    }

    fn in_order(mut self) -> Self {
        self.names.sort();
        self.names.dedup();
        self.networks.sort();
        self.networks.dedup();
        self
    }

    /// Returns whether every host is permitted.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.networks.is_empty()
    }

    /// Returns whether `host` is permitted. `host` has its canonical spelling.
    pub fn permit(&self, host: &str) -> bool {
        if self.is_empty() {
            return true;
        }
        match host.parse::<IpAddr>() {
            Ok(address) => self.networks.iter().any(|network| network.contains(&address)),
            Err(_) => self.names.iter().any(|name| {
                host.strip_suffix(name.as_str()).is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }),
        }
    }

    /// Returns whether none of the hosts that match `pattern` is permitted.
    pub fn exclude(&self, pattern: &HostPattern) -> bool {
        // `*` matches all hosts, including the permitted ones.
        let Some(name) = pattern.name() else { return false };
        let is_below = |permitted: &String| permitted.strip_suffix(name).is_some_and(|below| below.ends_with('.'));
        !self.permit(name) && (pattern.is_single() || !self.names.iter().any(is_below))
    }

    /// Returns the extension for a certificate, or `None` if every host is permitted.
    pub(super) fn to_extension(&self) -> Option<NameConstraints> {
        if self.is_empty() {
            return None;
        }
        let names = self.names.iter().cloned().map(GeneralSubtree::DnsName);
        let networks = self.networks.iter().map(|network| subnet(network.addr(), network.prefix_len()));
        // A constraint affects only the kinds of names that it mentions. So a kind without permitted names must be
        // excluded.
        let mut excluded_subtrees = Vec::new();
        if self.names.is_empty() {
            excluded_subtrees.push(GeneralSubtree::DnsName(String::new()));
        }
        if self.networks.is_empty() {
            excluded_subtrees.push(subnet(Ipv4Addr::UNSPECIFIED.into(), 0));
            excluded_subtrees.push(subnet(Ipv6Addr::UNSPECIFIED.into(), 0));
        }
        Some(NameConstraints { permitted_subtrees: names.chain(networks).collect(), excluded_subtrees })
    }
}

impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("any host");
        }
        let networks = self.networks.iter().map(|network| match network.prefix_len() == network.max_prefix_len() {
            true => network.addr().to_string(),
            false => network.to_string(),
        });
        let names = self.names.iter().map(|name| format!("{name} and below"));
        f.write_str(&names.chain(networks).collect::<Vec<_>>().join(", "))
    }
}

fn subnet(address: IpAddr, prefix: u8) -> GeneralSubtree {
    GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, prefix))
}

/// Parses an address that is followed by its mask.
fn network(bytes: &[u8]) -> Option<IpNet> {
    let (address, mask) = bytes.split_at(bytes.len() / 2);
    let ip = |bytes: &[u8]| -> Option<IpAddr> {
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    IpNet::with_netmask(ip(address)?, ip(mask)?).ok()
}
