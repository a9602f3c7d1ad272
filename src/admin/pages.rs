//! The content of each page.

use std::{net::SocketAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header, request::Parts};
use http_body_util::Either;
use hyper::body::{Bytes, Incoming};

use super::{
    access::Access,
    answer::{JSON, PageAnswer, TEXT, page, respond},
    api::{self, Caller},
    assets,
    exposition::Exposition,
    live::{Live, StreamProgress},
    shared_page::{NoPage, SharedPage},
    source::StatusSource,
    status::Status,
};
use crate::{
    metrics::Metrics,
    policy::{self, Names},
};

/// Sources of the pages.
pub(super) struct Pages {
    pub(super) state: Arc<dyn StatusSource>,
    pub(super) metrics: Metrics,
    /// The names by which browsers may address the pages.
    pub(super) names: Names,
    pub(super) live: Arc<Live>,
    pub(super) access: Access,
    pub(super) planner: api::Planner,
    /// `/status`, by how many lanes it lists, and `/metrics`.
    pub(super) status: SharedPage<usize>,
    pub(super) exposition: SharedPage<Exposition>,
}

/// Default number of lanes in `/status`.
const LANES: usize = 1000;

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

const INDEX: &str = "\
andante keeps workers inside the rate limits of the APIs they call.

Pages:
  /          this text; in a browser every lane, live
  /metrics   numbers for Prometheus
  /status    every lane as JSON, those that wait first; ?limit=N lists N of them
  /events    what the live page shows, as Server-Sent Events
  /api/v1/   pausing and resuming, with a token: /api/v1/openapi.json
  /readyz    200 while requests are welcome, 503 while andante drains, or without its store
  /healthz   200 while the process lives

Workers use the proxy address, not this one. This sets HTTP_PROXY, HTTPS_PROXY and the like in their shell:
  eval \"$(andante env)\"
On other machines: eval \"$(andante env --proxy http://HOST:PORT)\", with the host and port of the proxy, 3128 by default.
";

const NOT_YOURS: &str = "\
asked for by a page of another site, or by a name that may lead here for one: ask by address or as localhost (on other
machines also by a name without a dot, or below .internal, .local or .svc)
";

// === impl Pages ===

impl Pages {
    /// The answer to `request`. A stream reports its progress to `progress`.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Option<SocketAddr>,
        progress: StreamProgress,
    ) -> PageAnswer {
        let (request, body) = request.into_parts();
        if request.uri.path().starts_with("/api/v1/") {
            return self.api(&request, peer, body).await;
        }
        self.page(&request, progress).await
    }

    /// Answers a request to the API, unless it comes from a foreign page.
    async fn api(&self, request: &Parts, peer: Option<SocketAddr>, body: Incoming) -> PageAnswer {
        let authority = request.uri.authority().map(http::uri::Authority::as_str);
        if policy::is_page_of_others(&request.headers, authority, self.names) {
            return page(StatusCode::FORBIDDEN, TEXT, NOT_YOURS);
        }
        let caller = Caller { fields: &request.headers, peer, near: self.names == Names::Loopback };
        api::answer(&*self.state, (&self.access, &self.planner), caller, (&request.method, request.uri.path()), body)
            .await
    }

    async fn page(self: Arc<Self>, request: &Parts, progress: StreamProgress) -> PageAnswer {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut answer = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "these pages are only for reading: use GET\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        let path = request.uri.path();
        // Health probes are always answered: some of them send another host name.
        let probe = matches!(path, "/healthz" | "/readyz");
        let authority = request.uri.authority().map(http::uri::Authority::as_str);
        if !probe && policy::is_page_of_others(&request.headers, authority, self.names) {
            return page(StatusCode::FORBIDDEN, TEXT, NOT_YOURS);
        }
        match path {
            "/" if !takes_html(&request.headers) => vary(page(StatusCode::OK, TEXT, INDEX)),
            "/events" => self.events(request.uri.query(), progress),
            "/healthz" => page(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" if self.state.ready() => page(
                StatusCode::OK,
                TEXT,
                match self.state.caveat() {
                    Some(caveat) => format!("ready, {caveat}\n"),
                    None => "ready\n".to_owned(),
                },
            ),
            "/readyz" => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{}\n", self.state.unready())),
            "/metrics" => {
                let (metrics, format) = (self.metrics.clone(), Exposition::accepted(&request.headers));
                let write = move || format.write(&metrics).into_bytes();
                vary(shared(format.kind(), self.exposition.read(format, self.state.memory(), write).await))
            }
            "/status" => match limit(request.uri.query()) {
                Ok(limit) => {
                    let state = self.state.clone();
                    let write = move || status(state.status(), limit);
                    shared(JSON, self.status.read(limit, self.state.memory(), write).await)
                }
                Err(found) => {
                    let text = format!("expected a number of lanes, found {found:?}: write /status?limit=20\n");
                    page(StatusCode::BAD_REQUEST, TEXT, text)
                }
            },
            path => match assets::at(path) {
                Some(asset) => {
                    let mut answer = vary(page(StatusCode::OK, HeaderValue::from_static(asset.kind), asset.text));
                    assets::confine(answer.headers_mut());
                    answer
                }
                None => page(StatusCode::NOT_FOUND, TEXT, format!("there is no page {path:?}\n\n{INDEX}")),
            },
        }
    }

    /// Updates of the live page from now on; with `?lane=NAME` also the data of this lane.
    fn events(&self, query: Option<&str>, progress: StreamProgress) -> PageAnswer {
        let lane = last(query, "lane").and_then(|name| name.parse().ok());
        match self.live.open(lane, progress) {
            Some(events) => respond(StatusCode::OK, EVENTS, Either::Right(events)),
            None => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "too many pages are open: close one\n"),
        }
    }
}

/// A page that readers share, or the reason why there is none.
fn shared(kind: HeaderValue, text: Result<Bytes, NoPage>) -> PageAnswer {
    match text {
        Ok(text) => page(StatusCode::OK, kind, text),
        Err(NoPage::Unwritten) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "this page could not be written\n"),
        Err(NoPage::Memory) => {
            let text = "no memory is left for another page (max-memory): readers hold those that they were sent\n";
            let mut answer = page(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            answer
        }
    }
}

fn status(status: Status, limit: usize) -> Vec<u8> {
    let mut json = serde_json::to_vec(&status.waiting_first(limit)).unwrap_or_default();
    json.push(b'\n');
    json
}

/// Returns whether the client is a browser, and not a script.
fn takes_html(fields: &HeaderMap) -> bool {
    let accepts = |value: &HeaderValue| value.as_bytes().windows(9).any(|part| part.eq_ignore_ascii_case(b"text/html"));
    fields.get_all(header::ACCEPT).iter().any(accepts)
}

/// Number of lanes that the query asks for, or the invalid value.
fn limit(query: Option<&str>) -> Result<usize, String> {
    last(query, "limit").map_or(Ok(LANES), |value| value.parse().map_err(|_| value))
}

/// Last value of `wanted` in the query.
fn last(query: Option<&str>, wanted: &str) -> Option<String> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.filter(|(name, _)| name == wanted).last().map(|(_, value)| value.into_owned())
}

/// Marks an answer whose content depends on the client.
fn vary(mut answer: PageAnswer) -> PageAnswer {
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_limit_counts_and_the_rest_of_the_query_does_not_matter() {
        assert_eq!(limit(None), Ok(LANES));
        assert_eq!(limit(Some("a=1&limit=5&limit=%37")), Ok(7));
        assert_eq!(limit(Some("limit=-1")), Err("-1".into()));
        assert_eq!(limit(Some("limit")), Err(String::new()));
    }
}
