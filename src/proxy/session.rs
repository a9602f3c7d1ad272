//! The sender of the requests on a worker's connection.

use std::{net::IpAddr, sync::Arc};

use parking_lot::Mutex;

use crate::{
    lane::{AddedRule, Lane, order::ClientId},
    memory::Holder,
    policy::{Origin, Scheme},
    proxy::{
        client_connection::ClientConnection,
        context::Proxy,
        outbound::{
            pool::Pool,
            route::{Destination, FoundUnder, Route},
            way::{Pin, Way},
        },
        recent::Recent,
        settings::ProxySettings,
    },
    tls::Protocol,
};

/// The party that requests come from.
#[derive(Clone, Copy)]
pub(crate) struct Requester {
    /// Address of the party.
    pub(crate) address: IpAddr,
    /// The client that the address stands for.
    pub(crate) client: ClientId,
}

/// The sender of requests: the worker at the end of a connection, or inside its tunnel.
pub(crate) struct Session {
    pub(crate) proxy: Arc<Proxy>,
    /// The pool of the thread that serves this connection.
    pub(crate) pool: Arc<Pool>,
    pub(crate) client: Arc<ClientConnection>,
    /// The client's address.
    pub(crate) address: IpAddr,
    /// The client that the address stands for.
    identity: ClientId,
    /// The address, if it may not use the proxy.
    pub(crate) denied: Option<IpAddr>,
    /// Origin of the tunnel in which the requests come. No other origin may be requested in it: a tunnel to one host is
    /// no permission for another.
    pub(crate) inside: Option<Origin>,
    /// The address of the tunnel's target, if its client names the host only inside TLS.
    pub(crate) pin: Option<Arc<Pin>>,
    /// True if the client inside the tunnel speaks HTTP/2 in the clear, so that the upstream has to speak it, too.
    pub(crate) h2c: bool,
    /// Recent routes: the next request most likely takes one of them.
    pub(crate) routes: Mutex<Recent<Arc<Route>>>,
}

// === impl Session ===

impl Session {
    pub(crate) fn new(proxy: Arc<Proxy>, pool: Arc<Pool>, client: Arc<ClientConnection>, address: IpAddr) -> Self {
        let settings = proxy.settings.read();
        let denied = (!settings.clients.allow(address)).then_some(address);
        let identity = ClientId::of(settings.identity.of(address));
        drop(settings);
        Self {
            proxy,
            pool,
            client,
            address,
            identity,
            denied,
            inside: None,
            pin: None,
            h2c: false,
            routes: Mutex::default(),
        }
    }

    /// The sender inside a tunnel to `origin`, which speaks `protocol`, in the clear if the origin's scheme says so.
    /// The sender may use the proxy: the tunnel was allowed.
    pub(crate) fn inside(&self, origin: Origin, protocol: Protocol) -> Self {
        Self {
            proxy: self.proxy.clone(),
            pool: self.pool.clone(),
            client: self.client.clone(),
            address: self.address,
            identity: self.identity,
            denied: None,
            h2c: origin.scheme == Scheme::Http && protocol == Protocol::Http2,
            inside: Some(origin),
            pin: None,
            routes: Mutex::default(),
        }
    }

    /// The party that the session's requests come from.
    pub(crate) fn requester(&self) -> Requester {
        Requester { address: self.address, client: self.identity }
    }

    /// The account that the memory of its requests is charged to.
    pub(crate) fn holder(&self) -> Holder {
        Holder::Client(self.requester().client.address())
    }

    /// Returns the session with its requests sent to the address of `pin`.
    pub(crate) fn pinned(self, pin: Pin) -> Self {
        Self { pin: Some(pin.into()), ..self }
    }

    /// The lane of `origin` and the rules for some of its requests. In a tunnel to an address, the address's rule
    /// applies if the name has none.
    pub(crate) fn ruling(&self, origin: &Origin) -> (Arc<Lane>, Box<[AddedRule]>) {
        let lanes = &self.proxy.lanes;
        let ruling = match &self.pin {
            Some(pin) => lanes.rules().ruling(&pin.target, origin).clone(),
            None => origin.clone(),
        };
        (lanes.find(&ruling), lanes.added(&ruling))
    }

    /// The route to the tunnel's target.
    pub(crate) fn route_inside(&self) -> Option<Route> {
        let origin = self.inside.as_ref()?;
        let authority = origin.authority();
        let settings = self.proxy.settings.read();
        let (lane, added) = self.ruling(origin);
        let destination = Destination {
            scheme: origin.scheme,
            named: &authority,
            origin: origin.clone(),
            authority: authority.parse().ok()?,
            lane,
            added,
        };
        self.route(destination, &settings)
    }

    /// The route to `destination`, which was found under `settings`.
    pub(crate) fn route(&self, destination: Destination<'_>, settings: &ProxySettings) -> Option<Route> {
        let found = FoundUnder { outbound: &settings.outbound, generation: settings.generation };
        Route::new(destination, found, &self.pool, Way { h2c: self.h2c, pin: self.pin.clone() })
    }
}
