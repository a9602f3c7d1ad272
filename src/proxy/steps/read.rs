//! Reads a request, and finds its target and its lane, or the reason why it cannot be forwarded.

pub(crate) mod rewrite;
pub(crate) mod target;

use std::{ops::ControlFlow, sync::Arc};

use http::{
    HeaderValue, Method, Request, Response, Version,
    header::{EXPECT, HOST, MAX_FORWARDS, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body as _;
use tower::service_fn;

use self::target::{RequestedTarget, bad_target};
use crate::{
    clock::Instant,
    error::Error,
    lane::order::{Claim, Turn},
    limit::Cost,
    metrics::CallOutcome,
    policy::{self, Https, Names, Origin, Rules, Scheme},
    proxy::{
        call::{Answered, Arrival, BoxedCall, Call, Step},
        exchange::Exchange,
        message::{
            connection_auth,
            fields::{self, FoundFields},
            gateway::{LocationRewriter, Target},
            request_body::{BoxedRequest, RequestBody},
        },
        outbound::{
            response_body::ResponseBody,
            route::{Destination, Route},
        },
        protocol::{MAX_FIELDS, MAX_HEAD},
        steps::{
            access_log,
            ask::{self, RequestTerms},
            count, respond,
        },
        takeover::Takeover,
    },
};

/// Finds each request's lane; a malformed or denied request ends here.
pub(crate) fn find_lane<S>(inner: S) -> impl Step<Arrival, Response<ResponseBody>>
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    service_fn(move |arrival: Arrival| {
        let mut inner = inner.clone();
        async move {
            let call = match call_of(arrival) {
                ControlFlow::Continue(call) => call,
                ControlFlow::Break(answered) => return answered,
            };
            inner.call(call).await
        }
    })
}

/// Kinds of requests.
enum ReadRequest {
    /// A request to be forwarded.
    Forward(ForwardTerms),
    /// A CONNECT whose tunnel andante serves itself. The tunnel needs no lane: the requests inside it do.
    Inside(Arc<Route>),
    /// A request that is answered here: `Max-Forwards` has run out.
    ForUs(Box<Response<ResponseBody>>),
}

/// Terms of a request to be forwarded; [`Call`] has the meaning of each.
struct ForwardTerms {
    route: Arc<Route>,
    claim: Claim,
    cost: Option<Cost>,
    deadline: Instant,
    now: Option<Instant>,
    anonymous: bool,
    bound: bool,
    upgrades: bool,
    location: Option<Arc<LocationRewriter>>,
}

/// Makes a call of a request that is to be forwarded; other requests end here.
fn call_of(arrival: Arrival) -> ControlFlow<Answered, BoxedCall> {
    let Arrival { exchange, mut request } = arrival;
    match read(&exchange, &mut request) {
        Ok(ReadRequest::Forward(terms)) => ControlFlow::Continue(Box::new(terms.into_call(exchange, request))),
        Ok(ReadRequest::ForUs(answer)) => ControlFlow::Break(Ok(*answer)),
        Ok(ReadRequest::Inside(route)) => {
            exchange.trace().iter().for_each(|trace| trace.forget());
            exchange.hand_over(Takeover::Intercept { request, route });
            ControlFlow::Break(Ok(Response::new(ResponseBody::Own(None))))
        }
        Err(error) => {
            let outcome = count::of_error(&error);
            exchange.proxy.nowhere.count(outcome);
            access_log::without_lane(&exchange, &request, outcome, error.status());
            ControlFlow::Break(Err(error))
        }
    }
}

/// Reads `request`, and rewrites it for its upstream.
fn read(exchange: &Arc<Exchange>, request: &mut BoxedRequest) -> Result<ReadRequest, Error> {
    let found = FoundFields::of(request.headers());
    if exchange.is_out_of_memory() {
        return Err(respond::memory_full(exchange));
    }
    let (route, gateway) = check(exchange, request, found)?;
    if let Some(answer) = count_down(request) {
        exchange.progress.rest();
        exchange.proxy.nowhere.count(CallOutcome::Answered);
        access_log::without_lane(exchange, request, CallOutcome::Answered, answer.status());
        return Ok(ReadRequest::ForUs(Box::new(answer)));
    }
    exchange.progress.set_rule(&route.lane.policy().egress.timeouts);
    let sender = exchange.session.requester();
    let terms = ask::terms(request.headers(), found, sender, &route.lane, &route.added);
    if request.method() == Method::CONNECT {
        return read_tunnel(exchange, request, route, terms);
    }
    let RequestTerms { claim, cost, patience } = terms;
    let cost = cost?;
    let begun = exchange.stats.begun();
    if found.credential && connection_auth::has_credentials(request.headers()) {
        route.bind();
    }
    let bound = route.is_bound();
    let (path, location) = gateway.map(|found| (found.path, found.location)).unzip();
    // A stream of HTTP/2 has a task of its own, which waits for its turn.
    let now = (request.version() != Version::HTTP_2).then_some(begun);
    let via = Some(&exchange.proxy.via).filter(|_| !route.lane.policy().egress.unannounced);
    rewrite::rewrite(via, route.host(), request, found, path);
    let claim = ask::with_urgency(claim, request, sender, &route.lane, &route.added);
    let cost = ask::stated_cost(cost, request, &route.lane, &route.added, &claim)?;
    let (anonymous, upgrades) = (!found.credential, found.upgrade && request.headers().contains_key(UPGRADE));
    let deadline = begun + patience;
    Ok(ReadRequest::Forward(ForwardTerms { route, claim, cost, deadline, now, anonymous, bound, upgrades, location }))
}

/// Reads a CONNECT.
fn read_tunnel(
    exchange: &Exchange,
    request: &BoxedRequest,
    route: Arc<Route>,
    terms: RequestTerms,
) -> Result<ReadRequest, Error> {
    let deadline = exchange.stats.begun() + terms.patience;
    let cost = terms.cost?;
    let claim = ask::with_urgency(terms.claim, request, exchange.session.requester(), &route.lane, &route.added);
    let cost = ask::stated_cost(cost, request, &route.lane, &route.added, &claim)?;
    let rules = exchange.proxy.lanes.rules();
    let https = match rules.https(&route.origin, route.lane.policy()) {
        Https::Refuse => Https::Refuse,
        // The tunnel's own step looks for plain HTTP in it, which needs no permission of its own.
        _ if exchange.proxy.access.exposed && check_tunnel(&route.origin, &rules).is_err() => Https::Tunnel,
        https => https,
    };
    match https {
        Https::Tunnel | Https::Turns => Ok(ReadRequest::Forward(ForwardTerms {
            route,
            claim,
            cost,
            deadline,
            now: None,
            anonymous: false,
            bound: false,
            upgrades: false,
            location: None,
        })),
        Https::Intercept => Ok(ReadRequest::Inside(route)),
        Https::Refuse => Err(Error::TunnelRefused { origin: route.origin.to_string() }),
    }
}

/// Checks everything that can be wrong with a request, and returns its route.
fn check(
    exchange: &Arc<Exchange>,
    request: &Request<RequestBody>,
    found: FoundFields,
) -> Result<(Arc<Route>, Option<Target>), Error> {
    if let Some(client) = exchange.session.denied {
        return Err(Error::ClientDenied { client });
    }
    let connect = request.method() == Method::CONNECT;
    if connect && !request.body().is_end_stream() {
        // The following bytes could be meant for andante or for the tunnel (RFC 9110 §9.3.6).
        return Err(Error::Malformed);
    }
    // hyper counts the fields of HTTP/1 as it reads them.
    if request.version() == Version::HTTP_2 && request.headers().len() > MAX_FIELDS {
        return Err(Error::TooLarge { bytes: MAX_HEAD, fields: MAX_FIELDS });
    }
    if request.version() == Version::HTTP_2
        && let Some(found) = fields::malformed(request.headers())
    {
        return Err(Error::Invalid { found });
    }
    check_framing(request, found)?;
    let asked = target::read(exchange, request)?;
    check_host(request, asked.authority())?;
    if found.via && fields::is_loop(request.headers(), &exchange.proxy.via) {
        return Err(Error::Loop);
    }
    // Not for CONNECT, which allows other ports, and has no default port.
    let route = match known_route(exchange, &asked).filter(|_| !connect) {
        Some(route) => route,
        None => find_route(exchange, request, &asked)?,
    };
    let lent = exchange.proxy.access.exposed && route.lane.policy().egress.lends_credentials();
    let gateway = asked.into_gateway();
    if lent && gateway.is_some() && may_be_a_page(request) {
        return Err(Error::LentCredentials);
    }
    Ok((route, gateway))
}

/// Returns whether a web page could have made a browser send this request to an andante whose host names are not
/// configured. A page may request any URL. To send fields of its own it needs a CORS preflight (Fetch §4.8), unless a
/// name of its own points to andante.
fn may_be_a_page(request: &Request<RequestBody>) -> bool {
    let (fields, authority) = (request.headers(), request.uri().authority().map(http::uri::Authority::as_str));
    let vouched = fields.keys().any(|name| name.as_str().starts_with("andante-"));
    !vouched || policy::is_page_of_others(fields, authority, Names::Private)
}

/// The route of an earlier request on this connection that named its target in the same words.
fn known_route(exchange: &Exchange, asked: &RequestedTarget<'_>) -> Option<Arc<Route>> {
    let (scheme, authority) = (asked.scheme(), asked.authority());
    let generation = exchange.proxy.settings.generation();
    exchange.session.routes.lock().find(|route| route.is_named(scheme, authority, generation))
}

#[cold]
fn find_route(
    exchange: &Arc<Exchange>,
    request: &Request<RequestBody>,
    asked: &RequestedTarget<'_>,
) -> Result<Arc<Route>, Error> {
    let (proxy, scheme, authority) = (&exchange.proxy, asked.scheme(), asked.authority());
    if authority.contains('@') {
        return Err(Error::UserInfo);
    }
    let connect = request.method() == Method::CONNECT;
    let default_port = match &exchange.session.inside {
        // Without a port, `Host` means the tunnel's own port, and a URL means the scheme's.
        Some(inside) if request.version() == Version::HTTP_2 || request.uri().authority().is_none() => inside.port,
        _ => scheme.default_port(),
    };
    let default_port = (!connect).then_some(default_port);
    let mut origin = Origin::parse(scheme, authority, default_port).map_err(|_| bad_target(request))?;
    if exchange.session.inside.as_ref().is_some_and(|inside| *inside != origin) {
        return Err(Error::OtherHost);
    }
    let settings = proxy.settings.read();
    let (lane, added) = exchange.session.ruling(&origin);
    let mut seen = authority.to_owned();
    if scheme == Scheme::Http && lane.policy().egress.secure {
        origin = origin.secured();
        seen = origin.authority();
    }
    let seen = seen.parse().map_err(|_| bad_target(request))?;
    let destination = Destination { scheme, named: authority, origin, authority: seen, lane, added };
    let route = Arc::new(exchange.session.route(destination, &settings).ok_or_else(|| bad_target(request))?);
    // A connection asks for a tunnel once, and a CONNECT has no default port.
    if !connect {
        exchange.session.routes.lock().add(route.clone());
    }
    Ok(route)
}

/// If workers on other machines are let in, tunnels are allowed to port 443 and to ports that a rule names. Tunnels for
/// plain HTTP are allowed to any port.
pub(crate) fn check_tunnel(origin: &Origin, rules: &Rules) -> Result<(), Error> {
    let named = |rules: &Rules| {
        let mut hosts = rules.iter().flat_map(|rule| &rule.hosts);
        hosts.any(|host| host.port() == Some(origin.port) && host.matches(origin))
    };
    match origin.port == 443 || named(rules) {
        true => Ok(()),
        false => Err(Error::TunnelPort { origin: origin.to_string() }),
    }
}

/// Rejects framing that hyper accepts although the next hop might read it differently (RFC 9112 §6.1, §6.3).
fn check_framing(request: &Request<RequestBody>, found: FoundFields) -> Result<(), Error> {
    let fields = request.headers();
    if found.coding
        && let Some(coding) = fields.get(TRANSFER_ENCODING)
    {
        let alone = fields.get_all(TRANSFER_ENCODING).iter().nth(1).is_none();
        let chunked = coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        if !(alone && chunked) || request.version() == Version::HTTP_10 {
            return Err(Error::TransferCoding);
        }
    }
    if found.expect
        && let Some(expected) = fields.get(EXPECT)
        && !expected.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Error::Expectation);
    }
    Ok(())
}

/// RFC 9112 §3.2: exactly one `Host`, and a valid one, even though the target's authority counts. In HTTP/2 there may
/// be none, and it may not contradict `:authority` (RFC 9113 §8.3.1).
fn check_host(request: &Request<RequestBody>, authority: &str) -> Result<(), Error> {
    let newer = request.version() == Version::HTTP_2;
    // Some clients omit `Host` from a CONNECT, whose target is unambiguous: see docs/decisions/http-deviations.md.
    let spared = newer || request.version() == Version::HTTP_10 || request.method() == Method::CONNECT;
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if spared => Ok(()),
        (None, _) => Err(Error::BadHost { found: "no Host field" }),
        (Some(_), Some(_)) => Err(Error::BadHost { found: "more than one Host field" }),
        (Some(host), None) if host.as_bytes() == authority.as_bytes() => Ok(()),
        (Some(host), None) => {
            let read = |text: &str| Origin::parse(Scheme::Http, text, Some(80)).ok();
            let host = host.to_str().ok().and_then(read).ok_or(Error::BadHost { found: "an invalid Host field" })?;
            let target = request.uri().authority().filter(|_| newer).and_then(|target| read(target.as_str()));
            let agrees = target.is_none_or(|target| target == host);
            if agrees { Ok(()) } else { Err(Error::BadHost { found: "a Host field that contradicts :authority" }) }
        }
    }
}

/// Counts down `Max-Forwards` of TRACE and OPTIONS (RFC 9110 §7.6.2); at zero, the request is answered here.
fn count_down(request: &mut Request<RequestBody>) -> Option<Response<ResponseBody>> {
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

// === impl ForwardTerms ===

impl ForwardTerms {
    /// The first attempt of `request`.
    fn into_call(self, exchange: Arc<Exchange>, request: BoxedRequest) -> Call {
        let Self { route, claim, cost, deadline, now, anonymous, bound, upgrades, location } = self;
        let (turn, retry) = (Turn::New, None);
        Call { exchange, request, route, claim, cost, turn, deadline, now, anonymous, bound, upgrades, location, retry }
    }
}
