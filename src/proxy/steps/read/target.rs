//! The target of a request, in any form (RFC 9112 §3.2, RFC 9113 §8.3.1).

use std::borrow::Cow;

use http::{
    Method, Request, Uri, Version,
    header::{HOST, HeaderMap, UPGRADE},
};

use crate::{
    error::Error,
    policy::{self, Names, Origin, Scheme},
    proxy::{
        exchange::Exchange,
        message::{
            gateway::{self, Target},
            request_body::RequestBody,
        },
    },
};

/// Target that a request names.
pub(crate) enum RequestedTarget<'a> {
    /// Named in the request's target, or by the tunnel in which the request came.
    Plainly(Scheme, Cow<'a, str>),
    /// Named in the path of a gateway address.
    ByGateway(Target),
}

// === impl RequestedTarget ===

impl RequestedTarget<'_> {
    pub(crate) fn scheme(&self) -> Scheme {
        match self {
            Self::Plainly(scheme, _) => *scheme,
            Self::ByGateway(target) => target.scheme,
        }
    }

    /// The authority as the worker wrote it.
    pub(crate) fn authority(&self) -> &str {
        match self {
            Self::Plainly(_, authority) => authority,
            Self::ByGateway(target) => &target.authority,
        }
    }

    pub(crate) fn into_gateway(self) -> Option<Target> {
        match self {
            Self::Plainly(..) => None,
            Self::ByGateway(target) => Some(target),
        }
    }
}

/// Reads the target of `request`.
pub(crate) fn read<'a>(exchange: &Exchange, request: &'a Request<RequestBody>) -> Result<RequestedTarget<'a>, Error> {
    let uri = request.uri();
    let authority = uri.authority().map(http::uri::Authority::as_str);
    if request.method() == Method::CONNECT {
        return match authority {
            _ if request.version() == Version::HTTP_2 => Err(Error::NoTunnel),
            Some(authority) if uri.scheme().is_none() && exchange.session.inside.is_none() => {
                Ok(RequestedTarget::Plainly(Scheme::Https, authority.into()))
            }
            _ => Err(bad_target(request)),
        };
    }
    let scheme = scheme(uri, request.headers())?;
    check_path(request)?;
    if let Some(inside) = &exchange.session.inside {
        return by_tunnel(inside, scheme, authority, request);
    }
    match (scheme, authority) {
        (Some(scheme), Some(authority)) => match is_own(exchange, authority).then(|| by_gateway(exchange, request)) {
            Some(Ok(asked)) => Ok(asked),
            Some(Err(error @ Error::ForeignPage)) => Err(error),
            // An address of andante without a gateway: detected where connections are made.
            _ => Ok(RequestedTarget::Plainly(scheme, authority.into())),
        },
        (None, Some(_)) => Err(Error::NoTarget),
        _ => by_gateway(exchange, request),
    }
}

/// The scheme of a target in absolute form. `ws` and `wss` mean `http` and `https` in requests for an upgrade, as some
/// clients of WebSocket write them. (RFC 6455 §3 knows them in URIs only.)
pub(crate) fn scheme(uri: &Uri, fields: &HeaderMap) -> Result<Option<Scheme>, Error> {
    let upgrade = || fields.contains_key(UPGRADE);
    match uri.scheme_str() {
        None => Ok(None),
        Some("http") => Ok(Some(Scheme::Http)),
        Some("https") => Ok(Some(Scheme::Https)),
        Some(scheme) if scheme.eq_ignore_ascii_case("ws") && upgrade() => Ok(Some(Scheme::Http)),
        Some(scheme) if scheme.eq_ignore_ascii_case("wss") && upgrade() => Ok(Some(Scheme::Https)),
        Some(other) => Err(Error::Scheme { scheme: other.to_owned() }),
    }
}

/// The error for a target that cannot be read.
pub(crate) fn bad_target(request: &Request<RequestBody>) -> Error {
    Error::BadTarget { method: request.method().clone() }
}

/// Checks that there is a path. Only a target that names its host may omit it (RFC 9112 §3.2), and none in HTTP/2 (RFC
/// 9113 §8.3.1). The parser leaves an empty target if it was nothing but a fragment.
fn check_path(request: &Request<RequestBody>) -> Result<(), Error> {
    let uri = request.uri();
    let path = match uri.path_and_query() {
        Some(path) if path.as_str() != "/" => path.as_str(),
        // An empty path shows itself as "/", too, unless it is alone.
        Some(path) => {
            if Uri::from(path.clone()).path().is_empty() {
                ""
            } else {
                "/"
            }
        }
        None => "",
    };
    let names_host = uri.authority().is_some() && request.version() != Version::HTTP_2;
    let of_server = path == "*" && request.method() == Method::OPTIONS;
    match names_host || of_server || path.starts_with('/') {
        true => Ok(()),
        false => Err(Error::Invalid { found: "a target without a path" }),
    }
}

/// Inside a tunnel only the tunnel's host may be requested, in origin form.
fn by_tunnel<'a>(
    inside: &Origin,
    scheme: Option<Scheme>,
    authority: Option<&'a str>,
    request: &'a Request<RequestBody>,
) -> Result<RequestedTarget<'a>, Error> {
    if scheme.is_some_and(|scheme| scheme != inside.scheme) {
        return Err(Error::OtherHost);
    }
    let host = || request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let authority = match authority.or_else(host) {
        Some(authority) => authority.into(),
        // HTTP/1.0 may omit `Host`: the tunnel names the host.
        None if request.version() == Version::HTTP_10 => inside.authority().into(),
        None => return Err(Error::BadHost { found: "no Host field" }),
    };
    Ok(RequestedTarget::Plainly(inside.scheme, authority))
}

fn by_gateway<'a>(exchange: &Exchange, request: &Request<RequestBody>) -> Result<RequestedTarget<'a>, Error> {
    let path = request.uri().path_and_query().ok_or(Error::NoTarget)?;
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let gateways = exchange.proxy.settings.read().gateways.clone();
    let target = gateway::target(path, &gateways).ok_or(Error::NoTarget)??;
    let names = if exchange.proxy.access.exposed { Names::Any } else { Names::Loopback };
    if policy::is_page_of_others(request.headers(), authority, names) {
        return Err(Error::ForeignPage);
    }
    Ok(RequestedTarget::ByGateway(target))
}

/// Returns whether `authority` is the worker's address of andante: a gateway address that was requested through the
/// proxy itself.
fn is_own(exchange: &Exchange, authority: &str) -> bool {
    // The port is at the very end: found from there, byte by byte.
    let Some(colon) = authority.bytes().rposition(|byte| byte == b':') else { return false };
    let (host, port) = (&authority[..colon], authority[colon + 1..].parse());
    // Most requests name another port; the system is asked only about the rest.
    port.is_ok_and(|port: u16| exchange.proxy.access.ports.contains(&port))
        && exchange.session.client.stream.local_addr().is_ok_and(|local| {
            let here = host.trim_matches(['[', ']']).parse() == Ok(local.ip());
            here || (local.ip().is_loopback() && host.eq_ignore_ascii_case("localhost"))
        })
}
