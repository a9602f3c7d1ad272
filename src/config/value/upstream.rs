//! Grammars for the way to an upstream: parent proxies, addresses, names, certificate files.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use rustls::pki_types::ServerName;

use super::grammar::{Grammar, ParseHint};
use crate::policy::{Https, Origin, Parent, ParentProtocol, Scheme};

/// An entry of `dns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Resolver {
    Cached,
    System,
    Server(SocketAddr),
}

pub(in crate::config) const HTTPS: Grammar<Https> = Grammar {
    expected: "a way to handle CONNECT",
    example: "\"turns\", \"tunnel\", \"intercept\" or \"refuse\"",
    read: https,
};
/// `true` sends everything as HTTPS.
pub(in crate::config) const UPSTREAM: Grammar<bool> =
    Grammar { expected: "a scheme", example: "\"https\" or \"http\"", read: upstream };
pub(in crate::config) const VIA: Grammar<Option<Parent>> = Grammar {
    expected: "a parent proxy or \"direct\"",
    example: "\"http://corp.example:3128\", \"socks5://corp.example:1080\" or \"direct\"",
    read: via,
};
/// `true` adds a `Via` field to messages.
pub(in crate::config) const VIA_FIELD: Grammar<bool> =
    Grammar { expected: "\"on\" or \"off\"", example: "\"on\" or \"off\"", read: via_field };
pub(in crate::config) const RESOLVE: Grammar<IpAddr> =
    Grammar { expected: "an address without a port", example: "\"10.0.0.5\"", read: target };
pub(in crate::config) const SOURCE: Grammar<IpAddr> =
    Grammar { expected: "an address of this machine, without a port", example: "\"10.0.0.9\"", read: source };
pub(in crate::config) const SNI: Grammar<String> =
    Grammar { expected: "a host name", example: "\"api.example.com\"", read: sni };
pub(in crate::config) const DNS: Grammar<Resolver> = Grammar {
    expected: "\"cached\", \"system\" or the address of a server",
    example: "\"cached\", \"system\" or [\"10.0.0.2:53\"]",
    read: resolver,
};
pub(in crate::config) const FILE: Grammar<PathBuf> =
    Grammar { expected: "the name of a file", example: "\"/etc/andante/ca.pem\"", read: path };
pub(in crate::config) const FOLDER: Grammar<PathBuf> =
    Grammar { expected: "the name of a folder", example: "\"/var/lib/andante\"", read: path };

fn https(text: &str) -> Result<Https, ParseHint> {
    match text {
        "turns" => Ok(Https::Turns),
        "tunnel" => Ok(Https::Tunnel),
        "intercept" => Ok(Https::Intercept),
        "refuse" => Ok(Https::Refuse),
        _ => Err(ParseHint::default()),
    }
}

fn upstream(text: &str) -> Result<bool, ParseHint> {
    match text {
        "https" => Ok(true),
        "http" => Ok(false),
        _ => Err(ParseHint::default()),
    }
}

fn via_field(text: &str) -> Result<bool, ParseHint> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ParseHint::default()),
    }
}

/// Parses a parent proxy. Quotes nothing of it, because a password may be anywhere in it.
fn via(text: &str) -> Result<Option<Parent>, ParseHint> {
    if text == "direct" {
        return Ok(None);
    }
    let expected = VIA.expected;
    let Some((scheme, rest)) = text.split_once("://") else {
        let what = format!("expected {expected}, found no URL");
        return Err(ParseHint { what: Some(what), hint: None });
    };
    let (protocol, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (ParentProtocol::Http, 80),
        "socks5" | "socks5h" => (ParentProtocol::Socks5, 1080),
        "https" => {
            let hint = "write http:// if it also listens without TLS; requests to HTTPS APIs are encrypted inside";
            return Err(ParseHint::said("andante does not speak TLS to a parent proxy itself", hint));
        }
        "socks" | "socks4" | "socks4a" => {
            return Err(ParseHint::said(
                "of SOCKS only version 5 is spoken",
                "write socks5:// if the parent speaks it",
            ));
        }
        _ => {
            let what = format!("expected {expected}, found a URL of another scheme");
            return Err(ParseHint { what: Some(what), hint: None });
        }
    };
    // A user name may hold no `@`, so the last `@` ends it.
    let (user, authority) = rest.rsplit_once('@').map_or((None, rest), |(user, authority)| (Some(user), authority));
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains(['/', '?', '#']) {
        return Err(ParseHint::said("a parent proxy has no path", "end it after the port"));
    }
    let parent = Origin::parse(Scheme::Http, authority, Some(port)).map_err(|_| {
        ParseHint::said(format!("expected {expected}, found a URL without a good host and port"), example_of(protocol))
    })?;
    let credentials = user.filter(|user| !user.is_empty()).map(|user| credentials(user, protocol)).transpose()?;
    Ok(Some(Parent { protocol, host: parent.host, port: parent.port, credentials }))
}

fn example_of(protocol: ParentProtocol) -> &'static str {
    match protocol {
        ParentProtocol::Http => "write \"http://corp.example:3128\"",
        ParentProtocol::Socks5 => "write \"socks5://corp.example:1080\"",
    }
}

/// Splits `user:password` into user name and password.
fn credentials(text: &str, protocol: ParentProtocol) -> Result<(String, String), ParseHint> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let (Some(user), Some(password)) = (decoded(user), decoded(password)) else {
        let hint = "write %2F for /, %3A for :, %40 for @, %25 for %, and the like";
        return Err(ParseHint::said("user name or password are not percent-encoded", hint));
    };
    match protocol {
        // RFC 7617 §2: the password is everything after the first colon.
        ParentProtocol::Http if user.contains(':') => {
            Err(ParseHint::said("the user name has a colon in it", "name a user without one: HTTP cannot say it"))
        }
        // RFC 1929 §2: the length of each is written in one byte, and is at least 1.
        ParentProtocol::Socks5 if ![&user, &password].iter().all(|text| (1..=255).contains(&text.len())) => {
            let hint = "write both, as in socks5://user:password@corp.example:1080, or none";
            Err(ParseHint::said("user name and password of a SOCKS proxy have 1 to 255 bytes each", hint))
        }
        _ => Ok((user, password)),
    }
}

/// Decodes percent-encoded `text` (RFC 3986 §2.1).
fn decoded(text: &str) -> Option<String> {
    if text.contains(['/', '?', '#', '[', ']', '@', ' ']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(if byte == b'%' { digit()? * 16 + digit()? } else { byte });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// An address to connect to.
fn target(text: &str) -> Result<IpAddr, ParseHint> {
    let address = address(text)?;
    if is_nobodys(address) {
        return Err(ParseHint::said(format!("{address} is no host's address"), "write the address of the API"));
    }
    Ok(address)
}

/// An address to connect from.
fn source(text: &str) -> Result<IpAddr, ParseHint> {
    let address = address(text)?;
    if is_nobodys(address) {
        let hint = "write one that `ip address` lists, or leave it out: then the system chooses";
        return Err(ParseHint::said(format!("{address} is no machine's own address"), hint));
    }
    Ok(address)
}

/// Returns whether no single machine can have the address.
fn is_nobodys(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn address(text: &str) -> Result<IpAddr, ParseHint> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical());
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).and_then(|bare| bare.parse().ok());
    let meant: Option<IpAddr> = bare.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    Err(meant.map_or_else(ParseHint::default, |meant| ParseHint::hint(format!("write \"{meant}\""))))
}

fn sni(text: &str) -> Result<String, ParseHint> {
    if text.parse::<IpAddr>().is_ok() {
        // RFC 6066 §3: literal addresses are not permitted.
        return Err(ParseHint::said("an IP address cannot be a TLS server name (RFC 6066 §3)", "write a host name"));
    }
    let host = Origin::parse(Scheme::Https, text, Some(443)).map_err(|_| ParseHint::default())?.host;
    match ServerName::try_from(&*host) {
        Ok(ServerName::DnsName(_)) if !text.contains(':') => Ok(host.to_string()),
        Ok(ServerName::DnsName(_)) => Err(ParseHint::hint(format!("write \"{host}\": the port is the request's"))),
        _ => Err(ParseHint::default()),
    }
}

fn resolver(text: &str) -> Result<Resolver, ParseHint> {
    match text {
        "cached" => return Ok(Resolver::Cached),
        "system" => return Ok(Resolver::System),
        _ => {}
    }
    if let Ok(server) = text.parse::<SocketAddr>()
        && server.port() != 0
    {
        return Ok(Resolver::Server(server));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(address) => Ok(Resolver::Server(SocketAddr::new(address, 53))),
        Err(_) => Err(ParseHint::default()),
    }
}

fn path(text: &str) -> Result<PathBuf, ParseHint> {
    if text.is_empty() || text.contains('\0') { Err(ParseHint::default()) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(text: &str) -> Parent {
        VIA.read(text).unwrap().unwrap()
    }

    #[test]
    fn a_parent_has_the_port_of_its_scheme_unless_it_names_one() {
        for (text, shown) in [
            ("http://Corp.Example:3128", "http://corp.example:3128"),
            ("HTTP://corp/", "http://corp:80"),
            ("socks5://10.0.0.1", "socks5://10.0.0.1:1080"),
            ("socks5h://[fd00::1]:9", "socks5://[fd00::1]:9"),
            ("http://@corp", "http://corp:80"),
        ] {
            assert_eq!(parent(text).to_string(), shown, "{text}");
            assert_eq!(parent(text).credentials, None);
        }
        assert_eq!(VIA.read("direct"), Ok(None));
    }

    #[test]
    fn what_a_parent_is_told_about_us_is_decoded() {
        let credentials = |text| parent(text).credentials.unwrap();
        assert_eq!(credentials("http://me:s%40c%2fr%3At:%25@corp"), ("me".into(), "s@c/r:t:%".into()));
        assert_eq!(credentials("http://me@corp"), ("me".into(), String::new()));
        assert_eq!(credentials("socks5://b%C3%BCro:x@corp"), ("büro".into(), "x".into()));
    }

    #[test]
    fn a_password_is_never_quoted_however_wrong_its_url() {
        for text in [
            "https://me:hunter2@corp:3128",
            "socks4://me:hunter2@corp",
            "ftp://me:hunter2@corp",
            "me:hunter2@corp:3128",
            "http://me:hunter2",
            "http://me:hunter2@",
            "http://me:hunter2@corp:port",
            "http://me:hunter2@corp/path",
            "http://me:hunter2/more@corp",
            "http://me:hunter2%zz@corp",
            "http://me:hunter2%0a@corp",
            "http://me:hunter2@more@corp",
            "http://m%3Ae:hunter2@corp",
            "socks5://:hunter2@corp",
            "socks5://hunter2@corp",
            "http://me:hunter2@corp hunter2",
            "direct hunter2",
        ] {
            let wrong = VIA.read(text).unwrap_err();
            assert!(!format!("{wrong:?}").contains("hunter2"), "{text}: {wrong:?}");
        }
        assert!(!format!("{:?}", parent("http://me:hunter2@corp")).contains("hunter2"));
    }

    #[test]
    fn what_is_wrong_with_a_parent_is_said() {
        let what = |text: &str| VIA.read(text).unwrap_err().what;
        assert_eq!(what("corp:3128"), "expected a parent proxy or \"direct\", found no URL");
        assert_eq!(what("https://corp"), "andante does not speak TLS to a parent proxy itself");
        assert_eq!(what("http://a:b/c@corp"), "user name or password are not percent-encoded");
        assert_eq!(what("http://corp/pac"), "a parent proxy has no path");
    }

    #[test]
    fn an_address_has_no_port_and_is_somebodys() {
        assert_eq!(RESOLVE.read("::ffff:10.0.0.5"), Ok("10.0.0.5".parse().unwrap()));
        let hint = |text: &str| RESOLVE.read(text).unwrap_err().hint;
        assert_eq!(hint("10.0.0.5:443"), "write \"10.0.0.5\"");
        assert_eq!(hint("[fd00::5]:443"), "write \"fd00::5\"");
        assert_eq!(hint("[fd00::5]"), "write \"fd00::5\"");
        assert_eq!(hint("api.example.com"), "write \"10.0.0.5\"");
        for text in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
            assert!(RESOLVE.read(text).is_err() && SOURCE.read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_to_ask_for_is_a_host_name() {
        assert_eq!(SNI.read("API.example.com."), Ok("api.example.com".into()));
        assert_eq!(SNI.read("bücher.example"), Ok("xn--bcher-kva.example".into()));
        assert_eq!(SNI.read("a.example:443").unwrap_err().hint, "write \"a.example\": the port is the request's");
        for text in ["", "10.0.0.1", "::1", "[::1]", "127.1", "*.example.com", "a b", "https://a/"] {
            assert!(SNI.read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_server_is_an_address_on_port_53_unless_it_says_otherwise() {
        let server = |text: &str| match DNS.read(text) {
            Ok(Resolver::Server(server)) => server.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            ["10.0.0.2", "10.0.0.2:5353", "::1", "[::1]", "[::1]:54"].map(server),
            ["10.0.0.2:53", "10.0.0.2:5353", "[::1]:53", "[::1]:53", "[::1]:54"]
        );
        for text in ["", "dns.example", "10.0.0.2:0", "tls://10.0.0.2", "Cached"] {
            assert!(DNS.read(text).is_err(), "{text}");
        }
    }
}
