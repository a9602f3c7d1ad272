//! Pages of others: what runs in a browser on this machine reaches loopback, whosever page it is.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{HOST, ORIGIN},
};

use crate::policy::{Origin, Scheme};

/// Set by browsers, and by no page (W3C Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a browser has sent this for a page that is not ours. A gateway path is a plain URL: any page could have one
/// asked for, and the answer would seem to be its own.
///
/// `authority` is what the target itself names, as in HTTP/2; else `Host` does. `exposed` says whether other machines may
/// use the proxy: then it has names that nobody told us. On loopback a name other than `localhost` is one that somebody
/// pointed here, so that a page of theirs and we share an origin (DNS rebinding).
pub(in crate::proxy) fn is_page_of_others(fields: &HeaderMap, authority: Option<&str>, exposed: bool) -> bool {
    let cross_site = fields.get_all(SEC_FETCH_SITE).iter().any(|site| site.as_bytes() == b"cross-site");
    let said = authority.map(str::as_bytes).or_else(|| fields.get(HOST).map(HeaderValue::as_bytes));
    let host = said.unwrap_or_default();
    let foreign = fields.get_all(ORIGIN).iter().any(|origin| !is_origin_of(origin.as_bytes(), host));
    let rebound = !exposed && said.is_some() && !is_local(host);
    cross_site || foreign || rebound
}

/// Whether a page of `origin` comes from `host`; whoever speaks TLS in front of us has made `https` of it.
fn is_origin_of(origin: &[u8], host: &[u8]) -> bool {
    let authority = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Whether `host` is an address, or a name that always means this machine (RFC 6761 §6.3).
fn is_local(host: &[u8]) -> bool {
    let origin = str::from_utf8(host).ok().and_then(|host| Origin::parse(Scheme::Http, host, Some(80)).ok());
    origin.is_some_and(|Origin { host, .. }| {
        *host == *"localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(fields: &[(&'static str, &'static str)], exposed: bool) -> bool {
        let fields: HeaderMap =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        is_page_of_others(&fields, None, exposed)
    }

    #[test]
    fn workers_send_neither_origin_nor_site() {
        for host in ["127.0.0.1:3128", "localhost:3128", "LOCALHOST", "api.localhost:1", "[::1]:3128", "10.0.0.7:3128"]
        {
            assert!(!others(&[("host", host)], false), "{host}");
        }
        assert!(!others(&[], false));
        assert!(!others(&[("host", "andante.default.svc:3128")], true));
    }

    #[test]
    fn a_name_that_somebody_pointed_here_is_refused_on_loopback() {
        for host in ["evil.example:3128", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "", "a b"]
        {
            assert!(others(&[("host", host)], false), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused_wherever_we_listen() {
        let host = ("host", "127.0.0.1:3128");
        for exposed in [false, true] {
            assert!(others(&[host, ("sec-fetch-site", "cross-site")], exposed));
            assert!(others(&[host, ("origin", "https://evil.example")], exposed));
            assert!(others(&[host, ("origin", "http://127.0.0.1:8080")], exposed));
            assert!(others(&[host, ("origin", "null")], exposed));
            assert!(others(&[("origin", "http://")], exposed));
            for site in ["none", "same-origin"] {
                assert!(!others(&[host, ("sec-fetch-site", site)], exposed));
            }
            assert!(!others(&[host, ("origin", "http://127.0.0.1:3128")], exposed));
        }
    }
}
