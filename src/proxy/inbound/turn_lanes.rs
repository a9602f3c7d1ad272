//! Lanes from which the turns of a tunnel take slots.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, Request};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tracing::warn;

use crate::{
    error::Error,
    lane::{AddedRule, AdmitRequest, Lane, order::Turn},
    policy::Origin,
    proxy::{
        exchange::Exchange,
        log_throttle::LogTopic,
        message::fields::FoundFields,
        steps::{
            ask::{self, Asking, RequestTerms},
            costs::SeenBody,
        },
    },
};

/// Hosts whose limits hold for a tunnel: more than one if its TLS handshake names another host than its CONNECT.
pub(crate) type Origins = SmallVec<[Origin; 2]>;

/// A lane that gives a slot for each turn.
pub(crate) struct TurnLane {
    pub(crate) lane: Arc<Lane>,
    /// Demand of each turn.
    pub(crate) ask: AdmitRequest,
    /// Rules for some requests, at which turns are counted.
    pub(crate) added: Box<[AddedRule]>,
    /// Maximum time that a turn may wait by the rule of this lane.
    patience: Duration,
}

/// The lanes of a tunnel, by the rules in force.
pub(crate) struct TurnLanes {
    origins: Origins,
    /// Fields of the CONNECT that state terms.
    stated: HeaderMap,
    found: Mutex<FoundLanes>,
}

/// Lanes with limits, each once, and the generation of the settings that they were found under.
struct FoundLanes {
    lanes: Arc<[TurnLane]>,
    generation: u64,
}

// === impl TurnLanes ===

impl TurnLanes {
    /// Finds the lanes of `origins` that have limits. `stated` are the CONNECT's fields. Returns `None`, and logs that the
    /// tunnel is closed, if they ask for more than a limit can ever grant.
    pub(crate) fn find(exchange: &Exchange, origins: Origins, stated: HeaderMap) -> Option<Self> {
        // Read first: a reload meanwhile makes them be found again.
        let generation = exchange.proxy.settings.generation();
        let lanes = find(exchange, &origins, &stated);
        let lanes = lanes.inspect_err(|error| on_misfit(exchange, &origins, error, "it is closed")).ok()?;
        Some(Self { origins, stated, found: Mutex::new(FoundLanes { lanes, generation }) })
    }

    /// The lanes of the next turn. After a reload they are found again, unless the terms of the CONNECT no longer fit:
    /// then the earlier ones stay.
    pub(crate) fn current(&self, exchange: &Exchange) -> Arc<[TurnLane]> {
        let mut found = self.found.lock();
        let generation = exchange.proxy.settings.generation();
        if found.generation != generation {
            found.generation = generation;
            match find(exchange, &self.origins, &self.stated) {
                Ok(lanes) => found.lanes = lanes,
                Err(error) => on_misfit(exchange, &self.origins, &error, "its turns keep the earlier rules"),
            }
        }
        found.lanes.clone()
    }

    /// Host that logs name for the tunnel.
    pub(crate) fn host(&self) -> Option<&Arc<str>> {
        self.origins.first().map(|origin| &origin.host)
    }
}

/// Maximum time that a turn may wait for all of `lanes`.
pub(crate) fn patience(lanes: &[TurnLane]) -> Duration {
    lanes.iter().map(|lane| lane.patience).min().unwrap_or_default()
}

/// Finds the lanes of `origins` that have limits, sorted by host: two tunnels that draw on the same lanes must not each
/// hold a slot that the other one waits for.
fn find(exchange: &Exchange, origins: &[Origin], stated: &HeaderMap) -> Result<Arc<[TurnLane]>, Error> {
    let mut lanes = Vec::new();
    for origin in origins {
        lanes.extend(lane_of(exchange, origin, stated)?);
    }
    lanes.sort_by(|one, other| one.lane.host().cmp(other.lane.host()));
    lanes.dedup_by(|one, other| Arc::ptr_eq(&one.lane, &other.lane));
    Ok(lanes.into())
}

/// Reports that the terms of a CONNECT do not fit the rules of `origins`, and the `consequence` for its tunnel.
fn on_misfit(exchange: &Exchange, origins: &[Origin], error: &Error, consequence: &'static str) {
    let (proxy, Some(host)) = (&exchange.proxy, origins.first().map(|origin| &origin.host)) else { return };
    if proxy.reports.throttle.is_due(LogTopic::MisfitTerms, host, proxy.clock.now()) {
        warn!(
            %host,
            client = %exchange.session.address,
            %error,
            consequence,
            hint = error.hint(),
            "the terms of a CONNECT do not fit the rules"
        );
    }
}

/// The lane of `origin`, if it limits unseen requests, with the terms of each turn: those that the CONNECT has `stated`,
/// by the lane's own rule.
fn lane_of(exchange: &Exchange, origin: &Origin, stated: &HeaderMap) -> Result<Option<TurnLane>, Error> {
    let lanes = &exchange.proxy.lanes;
    let (lane, added) = (lanes.find(origin), lanes.added(origin));
    if !lane.policy().is_limited() && added.is_empty() {
        return Ok(None);
    }
    let mut request = Request::new(());
    (*request.method_mut(), *request.headers_mut()) = (Method::CONNECT, stated.clone());
    *request.uri_mut() = origin.authority().parse().unwrap_or_default();
    let (requester, found) = (exchange.session.requester(), FoundFields::of(stated));
    let RequestTerms { claim, cost, patience } = ask::terms(stated, found, requester, &lane, &added);
    let claim = ask::with_urgency(claim, &request, requester, &lane, &added);
    let asking = Asking {
        lane: &lane,
        added: &added,
        claim,
        cost: ask::stated_cost(cost?, &request, &lane, &added, &claim)?,
        credential: 0,
        body: SeenBody::default(),
        turn: Turn::New,
        deadline: exchange.proxy.clock.now() + patience,
        port: origin.port,
    };
    let ask = ask::of(&request, asking)?;
    Ok(Some(TurnLane { lane, ask, added, patience }))
}
