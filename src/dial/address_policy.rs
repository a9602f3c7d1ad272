//! Addresses that a shared proxy must not reach on behalf of its clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the kind of an address that a shared proxy must not reach for its clients, or `None` for a public address.
///
/// The kinds follow IANA's special-purpose registries, without the networks for documentation.
pub(super) fn special_purpose(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = v4.octets();
    match (a, b, c) {
        (0, ..) => Some("\"this network\""),
        (127, ..) => Some("loopback"),
        (10, ..) | (192, 168, _) | (172, 16..=31, _) => Some("private"),
        (169, 254, _) => Some("link-local"),
        (100, 64..=127, _) => Some("carrier-grade NAT"),
        (192, 0, 0) => Some("protocol assignment"),
        (198, 18..=19, _) => Some("benchmarking"),
        (224..=239, ..) => Some("multicast"),
        (240.., ..) => Some("reserved"),
        _ => None,
    }
}

fn special_v6(v6: Ipv6Addr) -> Option<&'static str> {
    let [a, b, ..] = v6.segments();
    match (a, b) {
        _ if v6.is_unspecified() => Some("unspecified"),
        _ if v6.is_loopback() => Some("loopback"),
        (0, 0) => Some("IPv4-compatible"),
        (0xfc00..=0xfdff, _) => Some("unique local"),
        (0xfe80..=0xfebf, _) => Some("link-local"),
        (0xfec0..=0xfeff, _) => Some("site-local"),
        (0xff00.., _) => Some("multicast"),
        (0x2002, _) => Some("6to4"),
        (0x2001, 0) => Some("Teredo"),
        (0x64, 0xff9b) => Some("NAT64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r52_special_addresses_are_known_in_every_disguise() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "::1",
            "::ffff:7f00:1",
            "::ffff:a00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::7f00:1",
        ] {
            assert!(special_purpose(address.parse().unwrap()).is_some(), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:db8::1"] {
            assert_eq!(special_purpose(address.parse().unwrap()), None, "{address}");
        }
    }
}
