//! Parses networks of clients, and recognizes texts that were meant as networks.

use core::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Reason why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// The text has another form.
    #[error("expected a network, found {0:?}")]
    Form(String),
    /// The text is ambiguous: it names a network and an address in it.
    #[error("\"{0}\" has bits set beyond its prefix")]
    Beyond(IpNet),
}

/// The network that `text` names: `10.1.0.0/16`, or the one address `10.1.2.3`.
pub fn network(text: &str) -> Result<IpNet, BadNetwork> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let network: IpNet = text.parse().map_err(|_| BadNetwork::Form(text.to_owned()))?;
    // Bits past the prefix are a mistake in the address or in the prefix. andante must not guess: one guess admits more
    // clients.
    if network == network.trunc() { Ok(network) } else { Err(BadNetwork::Beyond(network)) }
}

/// Returns whether `text` looks like an address or a network, right or wrong: the names `jobs/7`, `1/2` and `2026/11`
/// do not.
pub(super) fn is_like_a_network(text: &str) -> bool {
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok();
    // Two to four parts, each with up to three digits, as in an address.
    let is_part = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_parts = |text: &str, least: usize| text.split('.').all(is_part) && text.split('.').count() >= least;
    let is_groups = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:[]".contains(&byte));
    match text.split_once('/') {
        Some((address, prefix)) => {
            let address = address.trim_end();
            let may_be = is_parts(address, 2) || address.matches(':').count() >= 2 && is_groups(address);
            prefix.bytes().all(|byte| byte.is_ascii_digit()) && (may_be || is_address(address))
        }
        None => is_address(text) || is_parts(text, 4) || text.contains("::") && is_groups(text),
    }
}

// === impl BadNetwork ===

impl BadNetwork {
    /// Advice on the right form.
    pub fn hint(&self) -> String {
        match self {
            Self::Form(text) => {
                let address = text.split_once('/').and_then(|(address, _)| address.parse().ok());
                match address.map(|address: IpAddr| IpNet::from(address)) {
                    Some(host) => {
                        let longest = host.prefix_len();
                        format!(
                            "write a prefix from 0 to {longest} behind the slash, or \"{host}\" for the one address"
                        )
                    }
                    None => "write \"10.1.0.0/16\", or \"10.1.2.3\" for one address".to_owned(),
                }
            }
            Self::Beyond(network) => {
                let (whole, host) = (network.trunc(), IpNet::from(network.addr()));
                format!("write \"{whole}\" for the network, or \"{host}\" for the one address")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_network_is_told() {
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        for (text, hint) in [
            ("10.0.0.0/33", "write a prefix from 0 to 32 behind the slash, or \"10.0.0.0/32\" for the one address"),
            ("fd00::/129", "write a prefix from 0 to 128 behind the slash, or \"fd00::/128\" for the one address"),
            ("10.0.0.0/", "write a prefix from 0 to 32 behind the slash, or \"10.0.0.0/32\" for the one address"),
            ("10/8", "write \"10.1.0.0/16\", or \"10.1.2.3\" for one address"),
            ("10.0.0.5/8", "write \"10.0.0.0/8\" for the network, or \"10.0.0.5/32\" for the one address"),
        ] {
            assert_eq!(network(text).unwrap_err().hint(), hint, "{text}");
        }
    }

    #[test]
    fn a_name_with_a_slash_is_not_meant_as_a_network() {
        for text in [
            "10.0.0.0/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0 /8",
            "10.0.0/24",
            "10.0.0.256",
            "10.0.0.256/24",
            "10.0.0.1:80",
            "[::1]",
            "[::1]:80",
            "::1",
            "fd00::/129",
            "fd00::1::2",
        ] {
            assert!(is_like_a_network(text), "{text}");
        }
        for text in [
            "live",
            "jobs/7",
            "7",
            "a/b",
            "2026/",
            "2026/11",
            "1/2",
            "10/8",
            "/5",
            "1.2",
            "team:a",
            "a:b/3",
            "12:30/5",
            "12:30:00",
            "bed",
            "v1.2.3.4",
            "Job::Run",
            "1.2.3",
            "120.0.6099.109",
            "10.0.0.5/batch",
        ] {
            assert!(!is_like_a_network(text), "{text}");
        }
    }
}
