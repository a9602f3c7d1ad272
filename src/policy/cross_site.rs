//! Requests from pages of other sites: any page in a browser on this machine can send requests to loopback.

use core::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{HOST, ORIGIN},
};

use super::{Origin, Scheme};

/// Field that browsers set and pages cannot (W3C Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Top-level domains in which outsiders cannot register names that point here (RFC 6761, RFC 6762, RFC 8375,
/// ICANN's `internal`; `svc` is Kubernetes').
const PRIVATE: &[&str] = &["localhost", "local", "internal", "test", "svc", "home.arpa"];

/// The names by which a browser may address andante.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Addresses, and names that always mean this machine. For listeners on loopback: any other name was pointed here
    /// from outside, so that a foreign page shares an origin with andante (DNS rebinding).
    Loopback,
    /// Also names that outsiders cannot register: without a dot, or below a private domain.
    Private,
    /// All names: andante cannot know the names that other machines use for it.
    Any,
}

/// Returns whether a browser sent this request for a page that is not ours. Any page can ask for a plain URL, and
/// the answer would seem to be its own.
///
/// `authority` is the target's own authority, as in HTTP/2; without one `Host` counts.
pub fn is_page_of_others(fields: &HeaderMap, authority: Option<&str>, names: Names) -> bool {
    let own = |site: &HeaderValue| matches!(site.as_bytes(), b"none" | b"same-origin");
    let other_site = !fields.get_all(SEC_FETCH_SITE).iter().all(own);
    let said = authority.map(str::as_bytes).or_else(|| fields.get(HOST).map(HeaderValue::as_bytes));
    let host = said.unwrap_or_default();
    let foreign = fields.get_all(ORIGIN).iter().any(|origin| !is_origin_of(origin.as_bytes(), host));
    let rebound = names != Names::Any && said.is_some() && !is_known(host, names);
    other_site || foreign || rebound
}

/// Returns whether a page of `origin` comes from `host`; a TLS proxy in front of andante may have made the scheme
/// `https`.
fn is_origin_of(origin: &[u8], host: &[u8]) -> bool {
    let authority = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Returns whether `host` is an address, or one of these `names`.
fn is_known(host: &[u8], names: Names) -> bool {
    let origin = str::from_utf8(host).ok().and_then(|host| Origin::parse(Scheme::Http, host, Some(80)).ok());
    origin.is_some_and(|Origin { host, .. }| {
        let below = |domain: &str| host.strip_suffix(domain).is_some_and(|name| name.is_empty() || name.ends_with('.'));
        let private = names != Names::Loopback && (!host.contains('.') || PRIVATE.iter().any(|domain| below(domain)));
        // RFC 6761 §6.3.
        below("localhost") || private || host.parse::<IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(fields: &[(&'static str, &'static str)], names: Names) -> bool {
        let fields: HeaderMap =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        is_page_of_others(&fields, None, names)
    }

    #[test]
    fn workers_send_neither_origin_nor_site() {
        for host in ["127.0.0.1:3128", "localhost:3128", "LOCALHOST", "api.localhost:1", "[::1]:3128", "10.0.0.7:3128"]
        {
            assert!(!others(&[("host", host)], Names::Loopback), "{host}");
        }
        assert!(!others(&[], Names::Loopback));
        assert!(!others(&[("host", "andante.default.svc:3128")], Names::Private));
    }

    #[test]
    fn a_name_that_somebody_pointed_here_is_refused_on_loopback() {
        for host in ["evil.example:3128", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "", "a b"]
        {
            assert!(others(&[("host", host)], Names::Loopback), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused_wherever_we_listen() {
        let host = ("host", "127.0.0.1:3128");
        for names in [Names::Loopback, Names::Private, Names::Any] {
            for site in ["cross-site", "same-site", "something new"] {
                assert!(others(&[host, ("sec-fetch-site", site)], names), "{site}");
            }
            assert!(others(&[host, ("origin", "https://evil.example")], names));
            assert!(others(&[host, ("origin", "http://127.0.0.1:8080")], names));
            assert!(others(&[host, ("origin", "null")], names));
            assert!(others(&[("origin", "http://")], names));
            for site in ["none", "same-origin"] {
                assert!(!others(&[host, ("sec-fetch-site", site)], names));
            }
            assert!(!others(&[host, ("origin", "http://127.0.0.1:3128")], names));
        }
    }

    #[test]
    fn a_name_that_anybody_may_register_is_not_private() {
        for host in ["andante", "andante:9128", "andante.lan.internal", "web.local:1", "a.b.svc", "x.svc.cluster.local"]
        {
            assert!(!others(&[("host", host)], Names::Private), "{host}");
            assert!(others(&[("host", host)], Names::Loopback), "{host}");
        }
        for host in ["evil.example", "local.evil.example:9128", "notlocal.example", "evil.notlocal", ""] {
            assert!(others(&[("host", host)], Names::Private), "{host}");
        }
        assert!(!others(&[("host", "proxy.example.com")], Names::Any));
    }
}
