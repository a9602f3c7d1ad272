//! Control pages below `/__mock/`, through which a test reads the API's statistics and changes its behaviour.
//! Requests for them are not counted.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::ALLOW};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::json;

use super::{
    control::{Down, Script},
    shared::{ApiState, respond},
};
use crate::{
    clock::Instant,
    limit::{Rate, SpecError},
};

/// Path prefix of the control pages.
pub(super) const BELOW: &str = "/__mock/";
/// Largest request body in bytes that a page accepts: 1 MiB bounds the memory of a request.
const LONGEST: usize = 1 << 20;

/// Answers a request for a control page.
pub(super) async fn answer(shared: &ApiState, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let page = request.uri().path().strip_prefix(BELOW).unwrap_or_default().to_owned();
    let method = request.method().clone();
    let allowed = match page.as_str() {
        "stats" => "GET, HEAD",
        "limit" => "PUT",
        "next" | "down" => "PUT, DELETE",
        _ => {
            let error = "no such page: there are stats, limit, next and down";
            return respond(StatusCode::NOT_FOUND, HeaderMap::new(), json!({ "error": error }).to_string());
        }
    };
    if !allowed.split(", ").any(|allowed| allowed == method.as_str()) {
        let headers = HeaderMap::from_iter([(ALLOW, HeaderValue::from_static(allowed))]);
        let error = format!("{BELOW}{page} takes {allowed}");
        return respond(StatusCode::METHOD_NOT_ALLOWED, headers, json!({ "error": error }).to_string());
    }
    let Ok(body) = Limited::new(request.into_body(), LONGEST).collect().await.map(|body| body.to_bytes()) else {
        let error = format!("the body broke off, or is longer than {LONGEST} bytes");
        return respond(StatusCode::BAD_REQUEST, HeaderMap::new(), json!({ "error": error }).to_string());
    };
    let delete = method == Method::DELETE;
    let done = match page.as_str() {
        // Serialised directly, since a `Value` would sort the members.
        "stats" => serde_json::to_string(&shared.stats()).map_err(|error| error.to_string()),
        "limit" => limit(shared, &body),
        "next" if delete => Ok(next(shared, None)),
        "next" => Script::parse(&body).map(|script| next(shared, Some(script))),
        _ if delete => Ok(down(shared, None)),
        _ => Down::parse(&body, shared.clock.now()).map(|trouble| down(shared, Some(trouble))),
    };
    match done {
        Ok(said) => respond(StatusCode::OK, HeaderMap::new(), said),
        Err(error) => respond(StatusCode::BAD_REQUEST, HeaderMap::new(), json!({ "error": error }).to_string()),
    }
}

/// Sets or removes the limit. Counts are kept only from one rate to another.
fn limit(shared: &ApiState, body: &[u8]) -> Result<String, String> {
    let text = str::from_utf8(body).map_err(|error| format!("{error}; write 50/s, or none"))?.trim();
    let rate: Option<Rate> = match text {
        "" | "none" => None,
        text => Some(text.parse().map_err(|error: SpecError| format!("{error}; {}", error.hint()))?),
    };
    let mut books = shared.books.lock();
    let now = shared.clock.now();
    match (&mut books.limiter, rate) {
        (Some(limiter), Some(rate)) => limiter.retune(rate, now),
        (limiter, rate) => {
            *limiter = rate.map(|rate| shared.options.limiter(rate));
            books.limiters += 1;
        }
    }
    books.recorder.retune(rate, now);
    Ok(json!({ "limit": rate.map(|rate| rate.to_string()) }).to_string())
}

fn next(shared: &ApiState, script: Option<Script>) -> String {
    let count = script.as_ref().map_or(0, |script| script.count);
    shared.books.lock().script = script;
    json!({ "next": count }).to_string()
}

fn down(shared: &ApiState, trouble: Option<Down>) -> String {
    shared.down.send_replace(trouble);
    let seconds = |trouble: &Down| {
        (trouble.until != Instant::FAR)
            .then(|| (trouble.until.since(shared.clock.now()).as_secs_f64() * 1e3).round() / 1e3)
    };
    let for_seconds = trouble.as_ref().and_then(seconds);
    json!({ "down": trouble.map(|trouble| trouble.how.name()), "for_seconds": for_seconds }).to_string()
}
