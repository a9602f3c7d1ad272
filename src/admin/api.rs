//! `/api/v1`: changes by operators while andante runs. Every change needs the token, and is logged with its author.

mod changes;
mod plan;

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tracing::info;

pub(super) use self::plan::Planner;
use super::{
    access::Access,
    answer::{JSON, PageAnswer, json, page, problem},
    explanation::Question,
    source::{LaneChoice, StatusSource, Steering},
};
use crate::limit::{Limits, Unit};

/// Description of the API, for programs and people.
const DESCRIPTION: &str = include_str!("api/openapi.json");
/// The paths that answer a question and change nothing.
const QUESTIONS: [&str; 2] = ["/api/v1/explain", "/api/v1/plan"];
/// Title of the refusal to read where no token is configured.
const READ_NEEDS_TOKEN: &str = "reading /api/v1 needs a token while the admin address is beyond loopback";
/// Longest body: more than any change needs.
const MOST_BYTES: usize = 16 * 1024;

/// Sender of a request.
pub(super) struct Caller<'a> {
    pub(super) fields: &'a HeaderMap,
    pub(super) peer: Option<SocketAddr>,
    /// The pages are on loopback.
    pub(super) near: bool,
}

/// The answer to a request to `path`, which begins with `/api/v1/`.
pub(super) async fn answer(
    source: &dyn StatusSource,
    (access, planner): (&Access, &Planner),
    caller: Caller<'_>,
    (method, path): (&Method, &str),
    body: Incoming,
) -> PageAnswer {
    let reads = *method == Method::GET || *method == Method::HEAD;
    // Questions use POST so that no credential is in a URL, and change nothing.
    let asks = *method == Method::POST && QUESTIONS.contains(&path);
    let changes_nothing = reads || asks;
    let without_token = if changes_nothing { READ_NEEDS_TOKEN } else { "changes are off" };
    if !(changes_nothing && caller.near)
        && let Some(refusal) = access.refusal(caller.fields, caller.peer.map(|peer| peer.ip()), without_token).await
    {
        return refusal;
    }
    match (reads, path) {
        (true, "/api/v1/openapi.json") => page(StatusCode::OK, JSON, DESCRIPTION),
        (true, "/api/v1/status") => json(StatusCode::OK, &source.status()),
        (false, "/api/v1/plan") if asks => match read(caller.fields, body).await {
            Ok(question) => planner.answer(question).await,
            Err(refusal) => refusal,
        },
        (false, "/api/v1/explain") if asks => match question(caller.fields, body).await {
            Ok((request, client)) => json(StatusCode::OK, &source.explain(&request, client)),
            Err(refusal) => refusal,
        },
        (false, path) if *method == Method::POST && changes::PATHS.contains(&path) => {
            match changes::asked(path, caller.fields, body).await {
                Ok((lanes, steering)) => steer(source, &lanes, &steering, &caller),
                Err(refusal) => refusal,
            }
        }
        (_, "/api/v1/openapi.json" | "/api/v1/status") => wrong_method("GET, HEAD"),
        (_, path) if QUESTIONS.contains(&path) || changes::PATHS.contains(&path) => wrong_method("POST"),
        _ => problem(StatusCode::NOT_FOUND, "unknown path", "see /api/v1/openapi.json".into()),
    }
}

/// The request to explain, and its client.
async fn question(fields: &HeaderMap, body: Incoming) -> Result<(Request<()>, IpAddr), PageAnswer> {
    let question: Question = read(fields, body).await?;
    let request = question.request().map_err(|error| bad(error.to_string()))?;
    Ok((request, question.client()))
}

/// The JSON in the request's body.
async fn read<T: DeserializeOwned>(fields: &HeaderMap, body: Incoming) -> Result<T, PageAnswer> {
    let kind = fields.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    // Forms of other sites cannot send this type.
    if !kind.to_ascii_lowercase().starts_with(b"application/json") {
        let detail = "send JSON, and say `Content-Type: application/json`".to_owned();
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "no JSON", detail));
    }
    let body = Limited::new(body, MOST_BYTES).collect().await;
    let body = body.map_err(|error| bad(format!("the body could not be read: {error}")))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))
}

fn steer(source: &dyn StatusSource, lanes: &LaneChoice, steering: &Steering, caller: &Caller<'_>) -> PageAnswer {
    if let Steering::Limit { rule, limits, .. } = steering
        && let Some(detail) = slip(rule, limits, &source.units(rule))
    {
        return bad(detail);
    }
    let Some(steered) = source.steer(lanes, steering) else {
        return match steering.rule() {
            Some(rule) => {
                let of_host = rules_of(source, rule);
                let detail = if of_host.is_empty() {
                    format!("no rule is called {rule:?}: /status names them")
                } else {
                    format!("no rule is called {rule:?}; the rules for that host are {}", of_host.join(", "))
                };
                problem(StatusCode::NOT_FOUND, "no such rule", detail)
            }
            None => {
                let detail = "no rule is for it, and no request has come for it: /status names lanes and rules".into();
                problem(StatusCode::NOT_FOUND, "no such lane", detail)
            }
        };
    };
    let agent = caller.fields.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let peer = caller.peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    let lane = steering.rule().map_or_else(|| lanes.to_string(), |rule| rule.to_string());
    info!(
        change = steering.as_str(),
        lane,
        lanes = steered.lanes,
        requests = steered.requests,
        detail = steering.detail(),
        for_s = steering.length().map(|length| length.as_secs_f64()),
        peer,
        agent = agent.as_deref(),
        "changed by an operator"
    );
    json(StatusCode::OK, &steered)
}

/// Names of the rules whose lanes have this `host`. Helps people who take a host for the name of its rule.
fn rules_of(source: &dyn StatusSource, host: &str) -> Vec<String> {
    let lanes = source.status().lanes.into_iter().filter(|lane| lane.host == host);
    let mut rules: Vec<String> = lanes.map(|lane| format!("{:?}", lane.rule)).collect();
    rules.sort();
    rules
}

/// Problem with new `limits` for `rule`, whose requests state costs in `units`. A limit in another unit would refuse
/// all requests.
fn slip(rule: &str, limits: &Limits, units: &[Unit]) -> Option<String> {
    let unknown = |unit: &Unit| *unit != Unit::REQUESTS && !units.contains(unit);
    let slip = limits.units().find(unknown).filter(|_| !units.is_empty())?;
    let counted = units.iter().map(Unit::to_string).collect::<Vec<_>>().join(", ");
    Some(format!("`limits`: the rule {rule:?} counts {counted}, and no {slip}"))
}

fn bad(detail: String) -> PageAnswer {
    problem(StatusCode::BAD_REQUEST, "not understood", detail)
}

fn wrong_method(allowed: &'static str) -> PageAnswer {
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, "wrong method", format!("use {allowed}"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}
