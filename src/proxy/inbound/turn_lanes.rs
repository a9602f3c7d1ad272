//! Lanes from which the turns of a tunnel take slots.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, Request};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    error::Error,
    lane::{AdmitRequest, Lane, order::Turn},
    policy::Origin,
    proxy::{
        exchange::Exchange,
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
#[derive(Clone)]
struct FoundLanes {
    lanes: Arc<[TurnLane]>,
    generation: u64,
}

// === impl TurnLanes ===

impl TurnLanes {
    /// Finds the lanes of `origins` that have limits. The CONNECT has `stated` its terms, which may ask for more than a
    /// limit ever has: that is an error.
    pub(crate) fn find(exchange: &Exchange, origins: Origins, stated: HeaderMap) -> Result<Self, Error> {
        let found = Mutex::new(find(exchange, &origins, &stated)?);
        Ok(Self { origins, stated, found })
    }

    /// The lanes of the next turn. After a reload they are found again, unless the terms of the CONNECT no longer fit:
    /// then the earlier ones stay.
    pub(crate) fn current(&self, exchange: &Exchange) -> Arc<[TurnLane]> {
        let mut found = self.found.lock();
        if found.generation != exchange.proxy.settings.generation()
            && let Ok(renewed) = find(exchange, &self.origins, &self.stated)
        {
            *found = renewed;
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

/// Sorts the lanes by their hosts: two tunnels that draw on the same lanes must not each hold a slot that the other one
/// waits for.
fn find(exchange: &Exchange, origins: &[Origin], stated: &HeaderMap) -> Result<FoundLanes, Error> {
    let generation = exchange.proxy.settings.generation();
    let mut lanes = Vec::new();
    for origin in origins {
        lanes.extend(lane_of(exchange, origin, stated)?);
    }
    lanes.sort_by(|one, other| one.lane.host().cmp(other.lane.host()));
    lanes.dedup_by(|one, other| Arc::ptr_eq(&one.lane, &other.lane));
    Ok(FoundLanes { lanes: lanes.into(), generation })
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
    let (requester, found) = (exchange.session.requester(), FoundFields::of(stated));
    let RequestTerms { claim, patience, .. } = ask::terms(stated, found, requester, &lane, &added);
    let asking = Asking {
        lane: &lane,
        added: &added,
        claim: ask::with_urgency(claim, &request, requester, &lane, &added),
        cost: None,
        credential: 0,
        body: SeenBody::default(),
        turn: Turn::New,
        deadline: exchange.proxy.clock.now() + patience,
        port: origin.port,
    };
    let ask = ask::of(&request, asking)?;
    Ok(Some(TurnLane { lane, ask, patience }))
}
