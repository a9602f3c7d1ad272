//! Guesses the meaning of a text that is no host pattern: a URL, a path behind the host, a range of ports, several
//! hosts.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::policy::HostPattern;

/// Advice for `text`, if its meaning is clear.
pub(super) fn meant(text: &str) -> Option<String> {
    let text = text.trim();
    if text.contains('@') {
        return Some("write the host alone, without user name and password, as in \"api.example.com\"".to_owned());
    }
    if let Some(hint) = several(text).or_else(|| network(text)).or_else(|| below(text)).or_else(|| address(text)) {
        return Some(hint);
    }
    let (authority, path) = match HostPattern::in_url(text) {
        Some(authority) => (authority, text.split_once("://")?.1.get(authority.len()..).unwrap_or_default()),
        None => text.split_at(text.find('/').unwrap_or(text.len())),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    if let Ok(host) = authority.parse::<HostPattern>() {
        return match path {
            "" => Some(format!("write \"{host}\"")),
            path => Some(format!("write \"{host}\"; a path is a key of its own: path = \"{path}/*\"")),
        };
    }
    if authority.is_empty() && path.starts_with('/') || text.contains(['^', '$', '(', '\\']) {
        return Some("hosts are no regular expressions: write \"api.example.com\" or \"*.example.com\"".to_owned());
    }
    port(authority).or_else(|| wildcard(authority))
}

fn several(text: &str) -> Option<String> {
    let hosts: Vec<&str> = text.split([',', ';', ' ']).map(str::trim).filter(|host| !host.is_empty()).collect();
    if hosts.len() < 2 {
        return None;
    }
    let hosts: Vec<HostPattern> = hosts.into_iter().map(|host| host.parse().ok()).collect::<Option<_>>()?;
    let one_is_dotted = hosts.iter().any(|host| host.to_string().contains('.'));
    let list = hosts.iter().map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ");
    one_is_dotted.then(|| format!("write a list: [{list}]"))
}

/// Advice about a network.
fn network(text: &str) -> Option<String> {
    let network: IpNet = text.replace(['[', ']'], "").parse().ok()?;
    let hosts: Vec<String> = network.hosts().take(2).filter_map(pattern_of).collect();
    match &hosts[..] {
        [host] => Some(format!("write \"{host}\"")),
        hosts => {
            Some(format!("a network is no host: list the addresses, as in {hosts:?}, or write \"*\" for all hosts"))
        }
    }
}

/// Advice about a domain with a dot before it, as NO_PROXY has them.
fn below(text: &str) -> Option<String> {
    let domain: HostPattern = text.strip_prefix('.').filter(|domain| !domain.contains('*'))?.parse().ok()?;
    Some(format!("write \"*.{domain}\" for the names below it; \"{domain}\" itself is another host"))
}

/// Advice about an IPv6 address without brackets.
fn address(text: &str) -> Option<String> {
    Some(format!("write \"{}\"", pattern_of(text.parse::<Ipv6Addr>().ok()?.into())?))
}

/// Pattern for an address, with IPv6 in brackets and mapped IPv4 as IPv4.
fn pattern_of(address: IpAddr) -> Option<String> {
    let text = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    Some(text.parse::<HostPattern>().ok()?.to_string())
}

fn port(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let pattern = host.parse::<HostPattern>().ok()?;
    match port {
        "*" | "any" => Some(format!("write \"{pattern}\": without a port it is for all ports")),
        _ if port.contains(['-', ',']) => Some(format!(
            "a port, and not a range: write \"{pattern}\" for all ports, or a list with one \"{pattern}:PORT\" for each"
        )),
        _ => Some(format!(
            "a port is a number from 1 to 65535: write \"{pattern}\" for all ports, or \"{pattern}:8443\""
        )),
    }
}

fn wildcard(text: &str) -> Option<String> {
    let (_, after) = text.rsplit_once('*')?;
    let below = after.trim_start_matches(['.', '-']);
    let pattern = format!("*.{below}").parse::<HostPattern>().ok().filter(|_| below.contains('.'));
    Some(match pattern {
        Some(pattern) => format!("a * stands for whole labels at the beginning: write \"{pattern}\""),
        None => "a * stands for whole labels at the beginning: write \"*.example.com\", or list the hosts".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slip_is_told_what_to_write() {
        for (text, expected) in [
            ("https://API.example.com:8443/?x", "write \"api.example.com:8443\""),
            ("https://api.example.com/v1", "write \"api.example.com\"; a path is a key of its own: path = \"/v1/*\""),
            ("api.example.com/v1/", "path = \"/v1/*\""),
            ("api.example.com:8000-8010", "a port, and not a range: write \"api.example.com\""),
            ("api.example.com:99999", "from 1 to 65535"),
            ("api.example.com:*", "write \"api.example.com\": without a port"),
            ("api.*.com", "write \"*.example.com\", or list"),
            ("api-*.example.com", "write \"*.example.com\""),
            ("^api\\.example$", "no regular expressions"),
            ("/^api/", "no regular expressions"),
            ("a.test, b.test", "write a list: [\"a.test\", \"b.test\"]"),
            ("10.0.0.0/8", "a network is no host: list the addresses, as in [\"10.0.0.1\", \"10.0.0.2\"]"),
            ("[fd00::]/8", "a network is no host"),
            ("10.0.0.7/32", "write \"10.0.0.7\""),
            (".*", "write \"*.example.com\""),
            (".*.example.com", "write \"*.example.com\""),
            (".example.com", "write \"*.example.com\" for the names below it; \"example.com\" itself"),
            ("::1", "write \"[::1]\""),
            ("::ffff:10.0.0.7", "write \"10.0.0.7\""),
            ("http://me:hunter2@a/", "without user name and password"),
        ] {
            let hint = meant(text).unwrap_or_default();
            assert!(hint.contains(expected) && !hint.contains("hunter2"), "{text}: {hint}");
        }
        assert_eq!(meant("a b"), None);
    }
}
