//! Reads a request: is it one that can be forwarded, where to, and in whose lane?

use std::{sync::Arc, time::Duration};

use http::{
    HeaderValue, Method, Request, Response, Uri, Version,
    header::{CONTENT_LENGTH, EXPECT, HOST, HeaderMap, MAX_FORWARDS, TE, TRANSFER_ENCODING},
    uri::PathAndQuery,
};
use http_body::Body as _;
use tower::{Service, service_fn};

use super::{
    body::{Body, RequestBody},
    fields,
    link::Link,
    respond,
    stack::{Arrival, Call},
    upstream::Route,
};
use crate::{
    error::Error,
    policy::{Origin, Scheme},
};

/// Finds each request's lane; what is malformed or denied ends here.
pub(super) fn find_lane<S>(
    inner: S,
) -> impl Service<Arrival, Response = Response<Body>, Error = Error, Future: Send> + Clone + Send + 'static
where
    S: Service<Call, Response = Response<Body>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    service_fn(move |arrival: Arrival| {
        let mut inner = inner.clone();
        async move {
            let call = match read(arrival) {
                Ok(Read::Call(call)) => call,
                Ok(Read::ForUs(answer)) => return Ok(*answer),
                Err((link, error)) => {
                    link.proxy.nowhere.count(super::count::of_error(&error));
                    return Err(error);
                }
            };
            inner.call(call).await
        }
    })
}

/// What a request turns out to be.
enum Read {
    /// To be forwarded.
    Call(Call),
    /// To be answered here: `Max-Forwards` has run out.
    ForUs(Box<Response<Body>>),
}

fn read(arrival: Arrival) -> Result<Read, (Arc<Link>, Error)> {
    let Arrival { link, mut request } = arrival;
    let route = match check(&link, &request) {
        Ok(route) => route,
        Err(error) => return Err((link, error)),
    };
    if let Some(answer) = count_down(&mut request) {
        link.rest();
        return Ok(Read::ForUs(Box::new(answer)));
    }
    let patience = patience(request.headers());
    if request.method() != Method::CONNECT {
        rewrite(&link, &route, &mut request);
    }
    Ok(Read::Call(Call { link, request, route, patience }))
}

/// Everything that can be wrong with a request, and where it goes if nothing is.
fn check(link: &Arc<Link>, request: &Request<RequestBody>) -> Result<Arc<Route>, Error> {
    if let Some(client) = link.stranger {
        return Err(Error::Stranger { client });
    }
    let (uri, fields) = (request.uri(), request.headers());
    let authority = match (uri.authority(), uri.scheme_str()) {
        (Some(authority), None) if request.method() == Method::CONNECT => authority.as_str(),
        _ if request.method() == Method::CONNECT => return Err(bad_target(request)),
        (Some(authority), Some("http")) => authority.as_str(),
        (_, Some(scheme)) => return Err(Error::Scheme { scheme: scheme.to_owned() }),
        (_, None) => return Err(Error::NoTarget),
    };
    if request.method() == Method::CONNECT && !request.body().is_end_stream() {
        // What follows could be meant for us or for the tunnel (RFC 9110 §9.3.6).
        return Err(Error::Malformed);
    }
    check_framing(request)?;
    check_host(request, authority)?;
    if fields::is_loop(fields, &link.proxy.via) {
        return Err(Error::Loop);
    }
    // Not for CONNECT, to which other ports are allowed, and none means nothing.
    if request.method() != Method::CONNECT
        && let Some(last) = &*link.last.lock()
        && *last.authority == *authority
    {
        return Ok(last.clone());
    }
    find_route(link, request, authority)
}

#[cold]
fn find_route(link: &Arc<Link>, request: &Request<RequestBody>, authority: &str) -> Result<Arc<Route>, Error> {
    if authority.contains('@') {
        return Err(Error::UserInfo);
    }
    let default_port = (request.method() != Method::CONNECT).then_some(80);
    let origin = Origin::parse(Scheme::Http, authority, default_port).map_err(|_| bad_target(request))?;
    let proxy = &link.proxy;
    let named = || {
        proxy
            .lanes
            .rules()
            .iter()
            .flat_map(|rule| &rule.hosts)
            .any(|host| host.port() == Some(origin.port) && host.matches(&origin))
    };
    if request.method() == Method::CONNECT && proxy.exposed && origin.port != 443 && !named() {
        return Err(Error::TunnelPort { origin: origin.to_string() });
    }
    let host = HeaderValue::from_str(authority).map_err(|_| bad_target(request))?;
    let lane = proxy.lanes.find(&origin);
    let route = Arc::new(Route::new(authority, origin, host, lane, &link.pool));
    *link.last.lock() = Some(route.clone());
    Ok(route)
}

fn bad_target(request: &Request<RequestBody>) -> Error {
    Error::BadTarget { method: request.method().clone() }
}

/// What hyper lets through although the next hop might read it differently (RFC 9112 §6.1, §6.3).
fn check_framing(request: &Request<RequestBody>) -> Result<(), Error> {
    let fields = request.headers();
    if let Some(coding) = fields.get(TRANSFER_ENCODING) {
        let alone = fields.get_all(TRANSFER_ENCODING).iter().nth(1).is_none();
        let chunked = coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        if !(alone && chunked) || request.version() == Version::HTTP_10 {
            return Err(Error::TransferCoding);
        }
    }
    if let Some(expected) = fields.get(EXPECT)
        && !expected.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Error::Expectation);
    }
    Ok(())
}

/// RFC 9112 §3.2: exactly one `Host`, and a valid one, even though the target's authority is what counts (R4, R12).
fn check_host(request: &Request<RequestBody>, authority: &str) -> Result<(), Error> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_10 => Ok(()),
        (None, _) => Err(Error::BadHost { found: "no Host field" }),
        (Some(_), Some(_)) => Err(Error::BadHost { found: "more than one Host field" }),
        (Some(host), None) if host.as_bytes() == authority.as_bytes() => Ok(()),
        (Some(host), None) => {
            let valid = host.to_str().ok().and_then(|host| Origin::parse(Scheme::Http, host, Some(80)).ok());
            valid.map(|_| ()).ok_or(Error::BadHost { found: "an invalid Host field" })
        }
    }
}

/// `Max-Forwards` of TRACE and OPTIONS (RFC 9110 §7.6.2): counted down, and answered here at zero.
fn count_down(request: &mut Request<RequestBody>) -> Option<Response<Body>> {
    if !matches!(*request.method(), Method::TRACE | Method::OPTIONS) {
        return None;
    }
    let left: u64 = request.headers().get(MAX_FORWARDS)?.to_str().ok()?.trim().parse().ok()?;
    if left > 0 {
        request.headers_mut().insert(MAX_FORWARDS, HeaderValue::from(left - 1));
        return None;
    }
    Some(respond::last_hop(request))
}

/// How long the worker is willing to wait: `Prefer: wait=30`, in seconds (RFC 7240 §4.3).
fn patience(fields: &HeaderMap) -> Duration {
    if !fields.contains_key("prefer") {
        return Duration::MAX;
    }
    let preferences = fields.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
    let mut preferences = preferences.flat_map(|line| line.split([',', ';']));
    let wait = preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse::<u32>().ok())?
    });
    wait.map_or(Duration::MAX, |seconds| Duration::from_secs(u64::from(seconds)))
}

/// Makes of what the worker sent to a proxy what the upstream is to get.
fn rewrite(link: &Link, route: &Route, request: &mut Request<RequestBody>) {
    let received = request.version();
    let (sized, empty) = (request.headers().contains_key(CONTENT_LENGTH), request.body().is_end_stream());
    let unsized_body = request.body().size_hint().exact().is_none();
    let trailers = fields::remove_hop_by_hop(request.headers_mut());
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let fields = request.headers_mut();
    if sized && empty {
        // Not to be guessed from an empty body: for POST it makes a difference whether there was one.
        fields.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    } else if unsized_body && get {
        // hyper believes in a GET's body only if it is told of it (R9).
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if trailers {
        // TE concerns this hop only, and on this hop we can take trailers, too.
        fields.insert(TE, HeaderValue::from_static("trailers"));
        fields.insert(http::header::CONNECTION, HeaderValue::from_static("te"));
    }
    fields.insert(HOST, route.host.clone());
    fields::add_via(fields, &link.proxy.via, received);
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = origin_form(request.uri());
}

/// The target without scheme and authority, its bytes unchanged.
fn origin_form(uri: &Uri) -> Uri {
    Uri::from(match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('?') => with_slash(path),
        Some(path) => path.clone(),
        None => PathAndQuery::from_static("/"),
    })
}

#[cold]
fn with_slash(query: &PathAndQuery) -> PathAndQuery {
    query.to_string().parse().unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_origin_form() {
        let form = |uri: &str| origin_form(&uri.parse().unwrap()).to_string();
        assert_eq!(form("http://a.test/"), "/");
        assert_eq!(form("http://a.test/x?y"), "/x?y");
        assert_eq!(form("http://a.test"), "/");
        assert_eq!(form("http://a.test?q=1"), "/?q=1");
    }

    #[test]
    fn r21_path_and_query_keep_their_bytes() {
        let uri = "http://a.test/%7Ea/../b//c;d?x=%2F&y=a+b";
        assert_eq!(origin_form(&uri.parse().unwrap()).to_string(), "/%7Ea/../b//c;d?x=%2F&y=a+b");
    }

    #[test]
    fn patience_is_read_from_prefer() {
        let wait = |value: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert("prefer", HeaderValue::from_static(value));
            patience(&fields)
        };
        assert_eq!(wait("wait=30"), Duration::from_secs(30));
        assert_eq!(wait("respond-async, Wait=\"7\""), Duration::from_secs(7));
        assert_eq!(wait("wait=soon"), Duration::MAX);
        assert_eq!(wait("return=minimal"), Duration::MAX);
    }
}
