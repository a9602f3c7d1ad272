//! Requests to the API: counted on arrival, answered after the latency.

use std::sync::atomic::Ordering;

use andante_limiter::{Facts, MockCaller};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::CONNECTION};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::{
    control::{Down, How},
    pages,
    shared::{ApiState, ConnectionState, LimiterBooks, respond},
};
use crate::clock::Instant;

/// Decision about a request, made on its arrival.
struct PlannedReply<'a> {
    /// Instant at which the answer is due.
    due: Instant,
    arrived: Instant,
    /// Facts for the dialect to report; `None` without a limit, and for a scripted answer or an outage.
    facts: Option<Facts>,
    outcome: MockReply,
    /// Slot of a request that a limit accepted, held until the answer is ready or the client disconnects.
    _under_way: Option<UnderWay<'a>>,
}

/// Accepted request in flight. Dropping it frees its slot in the limiter.
struct UnderWay<'a> {
    shared: &'a ApiState,
    caller: MockCaller,
    /// Generation of the limiter that accepted the request; a later limiter has no slot to free.
    limiter: u64,
}

enum MockReply {
    Answer { number: u64 },
    Fail,
    Refuse(Facts),
    Scripted { status: StatusCode, headers: HeaderMap, body: Bytes },
    Down(Down),
}

// === impl UnderWay ===

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut books = self.shared.books.lock();
        if books.limiters == self.limiter
            && let Some(limiter) = &mut books.limiter
        {
            limiter.done(&self.caller);
        }
    }
}

// === impl ApiState ===

impl ApiState {
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionState,
    ) -> Response<Full<Bytes>> {
        if request.uri().path().starts_with(pages::BELOW) {
            connection.controls.store(true, Ordering::Relaxed);
            return pages::answer(self, request).await;
        }
        if request.method() == Method::CONNECT {
            let body = r#"{"error":"this is an API, not a proxy","hint":"name it in the URL instead"}"#;
            // The bytes after a refused CONNECT may be meant for the tunnel's target (RFC 9931).
            let close = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
            return respond(StatusCode::METHOD_NOT_ALLOWED, close, body.to_owned());
        }
        let decision = self.decide(MockCaller::new(request.method().clone(), request.headers()));
        if let MockReply::Down(Down { how: How::Refuse | How::Reset | How::Hang, .. }) = decision.outcome {
            self.hang().await;
            connection.cut.notify_one();
            return std::future::pending().await;
        }
        let uploads = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        let Ok(received) = discard(request.into_body()).await else {
            return respond(StatusCode::BAD_REQUEST, HeaderMap::new(), r#"{"error":"the body broke off"}"#.to_owned());
        };
        if decision.due > decision.arrived {
            self.clock.sleep_until(decision.due).await;
        }
        let (mut headers, mut members) = (HeaderMap::new(), String::new());
        let dialect = self.options.dialect;
        if let Some(facts) = &decision.facts {
            dialect.describe(facts, &mut headers);
            members = dialect.members(facts);
        }
        match decision.outcome {
            MockReply::Answer { number } => {
                let received = if uploads { format!(r#","received":{received}"#) } else { String::new() };
                respond(StatusCode::OK, headers, format!(r#"{{"number":{number}{received}{members}}}"#))
            }
            MockReply::Scripted { status, headers, body } => {
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                response
            }
            MockReply::Down(down) => {
                let status =
                    if down.how == How::BadGateway { StatusCode::BAD_GATEWAY } else { StatusCode::SERVICE_UNAVAILABLE };
                respond(status, headers, r#"{"error":"down as asked"}"#.to_owned())
            }
            MockReply::Refuse(facts) => respond(dialect.refusal(), headers, dialect.complaint(&facts)),
            MockReply::Fail => {
                respond(StatusCode::INTERNAL_SERVER_ERROR, headers, r#"{"error":"failed as asked"}"#.to_owned())
            }
        }
    }

    /// Decides about a request that arrives now, and counts it.
    fn decide(&self, caller: MockCaller) -> PlannedReply<'_> {
        let mut books = self.books.lock();
        let arrived = self.clock.now();
        let due = arrived + self.options.latency + self.options.jitter.mul_f64(books.dice.f64());
        if let Some(outcome) = self.scripted(&mut books, arrived) {
            books.recorder.script(arrived);
            return PlannedReply { due, arrived, facts: None, outcome, _under_way: None };
        }
        let LimiterBooks { limiter, limiters, recorder, dice, .. } = &mut *books;
        let wall = self.wall_at_start + arrived.since(Instant::START);
        let facts = limiter.as_mut().map(|limiter| {
            let (decision, limit) = limiter.ask(&caller, arrived);
            Facts { decision, limit, wall }
        });
        let outcome = match facts {
            Some(facts) if facts.refused() => {
                recorder.refuse(arrived);
                MockReply::Refuse(facts)
            }
            _ => {
                recorder.accept(arrived);
                if dice.f64() < self.options.fail.fraction() {
                    recorder.fail();
                    MockReply::Fail
                } else {
                    MockReply::Answer { number: recorder.accepted() }
                }
            }
        };
        let accepted = facts.is_some_and(|facts| !facts.refused());
        let under_way = accepted.then(|| UnderWay { shared: self, caller, limiter: *limiters });
        PlannedReply { due, arrived, facts, outcome, _under_way: under_way }
    }

    /// Reply that the control pages asked for, if any. An outage takes precedence over a scripted answer.
    fn scripted(&self, books: &mut LimiterBooks, now: Instant) -> Option<MockReply> {
        if let Some(down) = self.down.borrow().filter(|down| down.holds(now)) {
            return Some(MockReply::Down(down));
        }
        let script = books.script.as_mut().filter(|script| script.count > 0)?;
        script.count -= 1;
        Some(MockReply::Scripted { status: script.status, headers: script.headers.clone(), body: script.body.clone() })
    }

    /// Waits until no outage of the kind [`How::Hang`] lasts; returns at once if there is none.
    async fn hang(&self) {
        let mut down = self.down.subscribe();
        loop {
            let now = self.clock.now();
            let Some(trouble) = { *down.borrow_and_update() }.filter(|down| down.how == How::Hang && down.holds(now))
            else {
                return;
            };
            tokio::select! {
                () = self.clock.sleep_until(trouble.until) => {}
                _ = down.changed() => {}
            }
        }
    }
}

/// Reads a body to its end and returns its length in bytes.
async fn discard(mut body: Incoming) -> Result<u64, hyper::Error> {
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        received += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(received)
}
