//! The content of each page.

use std::sync::Arc;

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::body::Bytes;

use super::status::{Status, StatusSource};
use crate::{
    metrics::Metrics,
    policy::{self, Names},
};

/// An answer, whole.
pub(super) type PageAnswer = http::Response<Full<Bytes>>;

/// Everything that the pages are about.
pub(super) struct Pages {
    pub(super) state: Arc<dyn StatusSource>,
    pub(super) metrics: Metrics,
    /// The names by which browsers may address the pages.
    pub(super) names: Names,
}

/// How many lanes `/status` lists unless `?limit=` says otherwise.
const LANES: usize = 1000;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const EXPOSITION: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

const INDEX: &str = "\
andante keeps workers inside the rate limits of the APIs they call.

Pages:
  /metrics   numbers for Prometheus
  /status    every lane as JSON, those that wait first; ?limit=N lists N of them
  /readyz    200 while requests are welcome, 503 while andante drains
  /healthz   200 while the process lives

Workers use the proxy address, not this one:
  export HTTP_PROXY=http://HOST:PORT http_proxy=http://HOST:PORT
  export HTTPS_PROXY=http://HOST:PORT https_proxy=http://HOST:PORT
with the host and port that andante printed when it started; 127.0.0.1:3128 unless it was told otherwise.
";

const NOT_YOURS: &str = "\
asked for by a page of another site, or by a name that may lead here for one: ask by address or as localhost (on other
machines also by a name without a dot, or below .internal, .local or .svc)
";

// === impl Pages ===

impl Pages {
    pub(super) async fn answer(self: Arc<Self>, request: &Parts) -> PageAnswer {
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
            "/" => page(StatusCode::OK, TEXT, INDEX),
            "/healthz" => page(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" if self.state.ready() => page(StatusCode::OK, TEXT, "ready\n"),
            "/readyz" => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n"),
            "/metrics" => aside(move || page(StatusCode::OK, EXPOSITION, self.metrics.render())).await,
            "/status" => match limit(request.uri.query()) {
                Ok(limit) => aside(move || status(self.state.status(), limit)).await,
                Err(found) => {
                    let text = format!("expected a number of lanes, found {found:?}: write /status?limit=20\n");
                    page(StatusCode::BAD_REQUEST, TEXT, text)
                }
            },
            path => page(StatusCode::NOT_FOUND, TEXT, format!("there is no page {path:?}\n\n{INDEX}")),
        }
    }
}

/// Writes a long page on a thread of its own: the present thread may have slots to hand out.
async fn aside(write: impl FnOnce() -> PageAnswer + Send + 'static) -> PageAnswer {
    match tokio::task::spawn_blocking(write).await {
        Ok(answer) => answer,
        Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "this page could not be written\n"),
    }
}

fn status(status: Status, limit: usize) -> PageAnswer {
    match serde_json::to_vec(&status.waiting_first(limit)) {
        Ok(mut json) => {
            json.push(b'\n');
            page(StatusCode::OK, JSON, json)
        }
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

/// How many lanes the query asks for; what is wrong with it otherwise.
fn limit(query: Option<&str>) -> Result<usize, String> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs
        .filter(|(name, _)| name == "limit")
        .last()
        .map_or(Ok(LANES), |(_, value)| value.parse().map_err(|_| value.into_owned()))
}

/// A page that browsers must not cache, and whose type they must not guess.
fn page(status: StatusCode, kind: HeaderValue, text: impl Into<Bytes>) -> PageAnswer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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
