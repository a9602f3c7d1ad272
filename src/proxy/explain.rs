//! Explains how andante would handle a request, with the code that requests go through. Explaining sends nothing, takes
//! nothing, and leaves no trace.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Uri,
    header::{CONTENT_LENGTH, HOST},
    uri::Authority,
};
use http_body_util::Empty;

use super::{
    context::Proxy,
    message::{fields::FoundFields, gateway},
    session::Requester,
    steps::{
        ask::{self, Asking, RequestTerms},
        costs::SeenBody,
        credential, draws, keyed_hash,
        read::{check_tunnel, rewrite, target as requested_target},
    },
};
use crate::{
    clock::Clock,
    config::Clients,
    error::Error,
    lane::{
        AddedRule, AdmitRequest, Lane, Lanes, LookedUp, Preview,
        order::{Claim, ClientId, Turn},
    },
    policy::{
        ClientIdentity, Gateway, Https, HttpsReason, KeyPart, Origin, Policy, RuleCost, Scheme,
        normal_form::PathReadings,
    },
};

/// Inputs that decide how a request is handled.
pub struct ExplainContext<'a> {
    /// The lanes, and with them the rules.
    pub lanes: &'a Lanes,
    /// The clock.
    pub clock: Clock,
    /// Clients that may use the proxy.
    pub clients: &'a Clients,
    /// Rule that maps addresses to clients.
    pub identity: ClientIdentity,
    /// Paths that stand for an API.
    pub gateways: &'a [Gateway],
    /// The ports that workers connect to.
    pub ports: &'a [u16],
    /// True if workers on other machines are let in.
    pub exposed: bool,
}

/// How andante would handle a request.
pub struct Explained {
    /// The method that andante sees: CONNECT, if the request is inside a tunnel.
    pub method: Method,
    /// The target that andante sees: a URL, or the host and port of a tunnel.
    pub target: String,
    /// Origin of the request.
    pub origin: Origin,
    /// Treatment of the tunnel that a client opens for the request, and its reason; `None` without a tunnel.
    pub https: Option<(Https, HttpsReason)>,
    /// Lane of the request.
    pub lane: Arc<Lane>,
    /// True if the lane has had requests before.
    pub open: bool,
    /// True if a rule is for the host.
    pub ruled: bool,
    /// Rules for some of the requests to the host, in their order.
    pub rules: Vec<ExplainedRule>,
    /// Claim of the request.
    pub claim: Claim,
    /// Maximum time that the request may wait.
    pub patience: Duration,
    /// Cost by the rule, if the cost depends on the request and the request does not state one.
    pub rule_cost: Option<RuleCost>,
    /// The request's demand on the lane, and the lane's decision; or the error that would stop it before the lane.
    pub asked: Result<(AdmitRequest, Preview), Error>,
}

/// A rule for some of the requests to a host.
pub struct ExplainedRule {
    /// The rule.
    pub policy: Arc<Policy>,
    /// Reason why the rule is not for this request; `None` if it is.
    pub mismatch: Option<String>,
    /// Values of the rule's key for the request, as hashes that have no meaning elsewhere.
    pub key: Vec<(KeyPart, Option<u64>)>,
}

/// Target of a request.
struct ExplainedTarget {
    scheme: Scheme,
    authority: String,
    /// Path of the request to the upstream.
    path: Uri,
    /// True if the request came by a gateway address, so that no client opens a tunnel for it.
    by_gateway: bool,
}

/// Explains how `request` would be handled if the client at `client` sent it to `proxy` now.
///
/// # Errors
/// The error with which andante would refuse it before it looks for a lane.
pub fn explain_running(proxy: &Proxy, request: &Request<()>, client: IpAddr) -> Result<Explained, Error> {
    if proxy.is_draining() {
        return Err(Error::Draining { retry_after: Duration::from_secs(1) });
    }
    let (clients, identity, gateways) = {
        let settings = proxy.settings.read();
        (settings.clients.clone(), settings.identity, settings.gateways.clone())
    };
    let context = ExplainContext {
        lanes: &proxy.lanes,
        clock: proxy.clock,
        clients: &clients,
        identity,
        gateways: &gateways,
        ports: &proxy.access.ports,
        exposed: proxy.access.exposed,
    };
    explain(&context, request, client)
}

/// Explains how `request` would be handled if the client at `client` sent it now.
///
/// # Errors
/// The error with which andante would refuse it before it looks for a lane.
pub fn explain(context: &ExplainContext<'_>, request: &Request<()>, client: IpAddr) -> Result<Explained, Error> {
    if !context.clients.allow(client) {
        return Err(Error::ClientDenied { client });
    }
    let target = target(context, request)?;
    let wrong = || Error::BadTarget { method: request.method().clone() };
    let mut origin = target.origin()?.ok_or_else(wrong)?;
    let tunnelled = target.scheme == Scheme::Https && !target.by_gateway;
    if tunnelled && context.exposed {
        check_tunnel(&origin, &context.lanes.rules())?;
    }
    let LookedUp { lane, open, rules } = context.lanes.look_up(&origin);
    let added: Vec<_> = rules.beside(&origin).map(AddedRule::uncounted).collect();
    let ruled = !Arc::ptr_eq(lane.policy(), rules.unruled());
    let https = tunnelled.then(|| rules.https_because(&origin, lane.policy()));
    if target.scheme == Scheme::Http && lane.policy().egress.secure {
        origin = origin.secured();
    }
    let seen = match https {
        Some((Https::Tunnel | Https::Turns | Https::Refuse, _)) => connect(&origin).ok_or_else(wrong)?,
        _ => inside(request, &origin, target.path).ok_or_else(wrong)?,
    };
    // Fields for andante alone are not sent on.
    let fields = if seen.method() == Method::CONNECT { seen.headers() } else { request.headers() };
    let sender = Requester { address: client, client: ClientId::of(context.identity.of(client)) };
    let RequestTerms { claim, cost, patience } = ask::terms(fields, FoundFields::of(fields), sender, &lane, &added);
    let claim = ask::with_urgency(claim, &seen, sender, &lane, &added);
    let cost = cost.and_then(|stated| ask::stated_cost(stated, &seen, &lane, &added, &claim));
    let silent = matches!(cost, Ok(None));
    let rule_cost = draws::cost(&added, &seen, lane.policy()).filter(|cost| silent && !cost.seen.is_empty()).cloned();
    let refused = https.is_some_and(|(https, _)| https == Https::Refuse);
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let asked = if refused { Err(Error::TunnelRefused { origin: origin.to_string() }) } else { cost };
    let asked = asked.and_then(|cost| {
        let deadline = context.clock.now() + patience;
        let body = SeenBody { length, ..SeenBody::default() };
        let (added, credential, port) = (&*added, credential::hash(seen.headers()), origin.port);
        let asking = Asking { lane: &lane, added, claim, cost, credential, body, turn: Turn::New, deadline, port };
        let ask = ask::of(&seen, asking)?;
        let preview = lane.preview(&ask);
        Ok((ask, preview))
    });
    // The least of the bounds that apply.
    let draws = asked.as_ref().ok().into_iter().flat_map(|(ask, _)| ask.draws.iter().flat_map(|draws| draws.iter()));
    let patience = draws.map(|draw| draw.rule.max_wait).fold(patience, Duration::min);
    Ok(Explained {
        method: seen.method().clone(),
        target: shown_target(&seen, &origin),
        rules: explained_rules(&added, &seen, &claim),
        origin,
        https,
        lane,
        open,
        ruled,
        claim,
        patience,
        rule_cost,
        asked,
    })
}

/// The target that andante sees: a URL, or the host and port of a tunnel.
fn shown_target(seen: &Request<Empty<Bytes>>, origin: &Origin) -> String {
    match *seen.method() {
        Method::CONNECT => origin.to_string(),
        _ => format!("{}://{}{}", origin.scheme.as_str(), origin.authority(), seen.uri().path()),
    }
}

/// The target of `request`: from its URL, or from the path of a gateway address.
fn target(context: &ExplainContext<'_>, request: &Request<()>) -> Result<ExplainedTarget, Error> {
    let uri = request.uri();
    let scheme = requested_target::scheme(uri, request.headers())?;
    let path = uri.path_and_query().ok_or(Error::NoTarget)?;
    let by_gateway = || gateway::target(path, context.gateways);
    let found = match (scheme, uri.authority()) {
        (Some(scheme), Some(authority)) => match is_own(context.ports, authority).then(by_gateway).flatten() {
            Some(found) => found?,
            None => {
                let authority = authority.to_string();
                return Ok(ExplainedTarget { scheme, authority, path: uri.clone(), by_gateway: false });
            }
        },
        (None, Some(_)) => return Err(Error::NoTarget),
        _ => by_gateway().ok_or(Error::NoTarget)??,
    };
    let gateway::Target { scheme, authority, path, .. } = found;
    Ok(ExplainedTarget { scheme, authority, path: path.into(), by_gateway: true })
}

/// Returns whether `authority` is an address of this proxy.
fn is_own(ports: &[u16], authority: &Authority) -> bool {
    let host = authority.host().trim_matches(['[', ']']);
    let here = host.parse::<IpAddr>().map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback());
    here && authority.port_u16().is_some_and(|port| ports.contains(&port))
}

/// The CONNECT that a client sends first; andante sees nothing else of a tunnel.
fn connect(origin: &Origin) -> Option<Request<Empty<Bytes>>> {
    let host = HeaderValue::try_from(origin.to_string()).ok()?;
    let request = Request::connect(origin.to_string()).header(HOST, host);
    request.body(Empty::new()).ok()
}

/// `request` in the form that the upstream at `origin` would get.
fn inside(request: &Request<()>, origin: &Origin, path: Uri) -> Option<Request<Empty<Bytes>>> {
    let mut seen = Request::new(Empty::new());
    (*seen.method_mut(), *seen.uri_mut()) = (request.method().clone(), path);
    *seen.headers_mut() = request.headers().clone();
    let (via, host) = ([const { HeaderValue::from_static("1.1 andante") }; 3], origin.authority());
    let found = FoundFields::of(seen.headers());
    rewrite::rewrite(Some(&via), &HeaderValue::try_from(host).ok()?, &mut seen, found, None);
    Some(seen)
}

fn explained_rules<B>(added: &[AddedRule], seen: &Request<B>, claim: &Claim) -> Vec<ExplainedRule> {
    let path = PathReadings::of(seen.uri().path());
    let drawn: Vec<_> = draws::matching(added, seen, &path, claim).map(|(rule, _)| Arc::as_ptr(&rule.policy)).collect();
    let explained = added.iter().filter_map(|AddedRule { policy, .. }| {
        let added = policy.added.as_ref()?;
        let mismatch = match draws::mismatch(added, seen, &path, claim) {
            Some(_) if *seen.method() == Method::CONNECT && !added.is_for_unseen() => {
                Some("paths, methods and fields are not seen inside the tunnel".to_owned())
            }
            Some(mismatch) => Some(mismatch.to_string()),
            None if drawn.contains(&Arc::as_ptr(policy)) => None,
            None => Some("a rule before it says `only`".to_owned()),
        };
        let reading = added.matching(&path).next().unwrap_or(path.strict());
        let hashed = draws::values(added, seen, reading, claim).into_iter();
        let hashed = hashed.map(|value| value.map(|value| keyed_hash::of((&*policy.name, &*value))));
        let key = added.key.iter().cloned().zip(hashed).collect();
        Some(ExplainedRule { policy: policy.clone(), mismatch, key })
    });
    explained.collect()
}

// === impl ExplainedTarget ===

impl ExplainedTarget {
    /// The origin of the target; `None` if its authority is none.
    fn origin(&self) -> Result<Option<Origin>, Error> {
        if self.authority.contains('@') {
            return Err(Error::UserInfo);
        }
        Ok(Origin::parse(self.scheme, &self.authority, Some(self.scheme.default_port())).ok())
    }
}
