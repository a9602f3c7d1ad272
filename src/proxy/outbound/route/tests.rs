//! Connections that are made before they are needed.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, header::RETRY_AFTER};

use super::*;
use crate::{
    hint,
    lane::{
        Admission, AdmitRequest,
        order::{Claim, Turn},
    },
    learn::{AnswerReport, RouteKey},
    limit::Cost,
    policy::Rules,
    proxy::{client_connection::ClientConnection, context::Proxy, session::Session},
};

/// A connection is made when the requester's slot matures, up to `max-wait` ahead.
#[tokio::test(start_paused = true)]
async fn a_connection_to_be_made_ready_keeps_no_lane_when_everybody_has_left() {
    let proxy = Arc::new(Proxy::with_rules(Rules::new(Vec::new())));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let client = Arc::new(ClientConnection::new(proxy.clone(), stream));
    let pool = Arc::new(Pool::new(proxy.clock, &proxy.timeouts()));
    let session = Session::new(proxy.clone(), pool, client, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let origin = Origin::parse(Scheme::Http, "closed.test", Some(80)).unwrap();
    let route = Arc::new(session.inside(origin, Protocol::Http1).route_inside().unwrap());
    let ask = AdmitRequest {
        cost: Cost::MIN,
        kind: RouteKey::NONE,
        claim: Claim::USUAL,
        deadline: Instant::FAR,
        turn: Turn::New,
        draws: None,
        port: 80,
    };
    let Admission::Send(mut permit) = route.lane.admit(ask.clone()) else { panic!("nothing is known") };
    permit.sent();
    let headers = HeaderMap::from_iter([(RETRY_AFTER, "3000".parse().unwrap())]);
    let status = http::StatusCode::TOO_MANY_REQUESTS;
    let hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived: Duration::ZERO });
    permit.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
    drop(permit);
    let Admission::Wait(waiting) = route.lane.admit(ask) else { panic!("the API asked for a pause") };
    route.warm(waiting.expected);
    let (lane, host_pool) = (Arc::downgrade(&route.lane), route.pools.shared().clone());
    drop((route, session));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(host_pool.warming.load(Ordering::Relaxed), "one waits for it");
    drop(waiting);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!host_pool.warming.load(Ordering::Relaxed), "whoever comes next may have one made ready");
    // Only the map holds the lane: otherwise the lane would never be dropped.
    assert_eq!(lane.strong_count(), 1);
}
