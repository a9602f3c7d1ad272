//! The span of a request as its worker sees it, by the semantic conventions for HTTP servers
//! (<https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server>).

use std::net::IpAddr;

use http::{HeaderMap, Method, Request, Version, header::USER_AGENT, uri::Authority};

use crate::{
    clock::Instant,
    policy::Origin,
    proxy::shown_url::{without_secrets, without_values},
    trace::{Span, SpanKind, TraceContext},
};

/// Origin of a request.
pub(crate) struct Asked<'a> {
    pub(crate) client: IpAddr,
    /// Target of the tunnel in which the request came.
    pub(crate) inside: Option<&'a Origin>,
}

/// Maximum bytes of a field that clients choose; longer values are cut.
const MAX_FIELD_BYTES: usize = 256;

/// The span of a request that came at `began`, without a parent.
pub(super) fn of<B>(context: TraceContext, began: Instant, request: &Request<B>, asked: Asked<'_>) -> Span {
    let method = method(request.method());
    let name = if method == OTHER { "HTTP" } else { method };
    let mut span = Span::begin(context, None, SpanKind::Server, name, began);
    note_method(&mut span, request.method());
    note_target(&mut span, request, asked.inside);
    span.note("client.address", asked.client.to_string());
    span.note("network.protocol.version", version(request.version()));
    if let Some(agent) = text(request.headers(), USER_AGENT) {
        span.note("user_agent.original", agent);
    }
    span
}

fn note_target<B>(span: &mut Span, request: &Request<B>, inside: Option<&Origin>) {
    let uri = request.uri();
    let scheme = inside.map_or_else(|| uri.scheme_str().unwrap_or("http"), |origin| origin.scheme.as_str());
    span.note("url.scheme", scheme.to_owned());
    if *request.method() != Method::CONNECT {
        span.note("url.path", without_secrets(uri.path()).into_owned());
    }
    if let Some(query) = uri.query() {
        span.note("url.query", without_values(query));
    }
    let host: Option<Authority> = text(request.headers(), http::header::HOST).and_then(|host| host.parse().ok());
    match (inside, uri.authority().or(host.as_ref())) {
        (Some(origin), _) => {
            span.note("server.address", origin.host.to_string());
            span.note("server.port", origin.port);
        }
        (None, Some(authority)) => {
            // Without a user name and password.
            span.note("server.address", authority.host().to_owned());
            authority.port_u16().into_iter().for_each(|port| span.note("server.port", port));
        }
        (None, None) => {}
    }
}

/// The value of `http.request.method` for a method that the conventions do not know.
pub(super) const OTHER: &str = "_OTHER";

/// The method's name if the conventions know it: clients choose other methods freely.
pub(super) fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 10] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "QUERY"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER)
}

pub(super) fn note_method(span: &mut Span, asked: &Method) {
    span.note("http.request.method", method(asked));
    if method(asked) == OTHER {
        span.note("http.request.method_original", asked.as_str().chars().take(MAX_FIELD_BYTES).collect::<String>());
    }
}

/// The value of `network.protocol.version`.
pub(super) fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

fn text(fields: &HeaderMap, name: http::HeaderName) -> Option<String> {
    let text = fields.get(name)?.to_str().ok()?;
    Some(text.chars().take(MAX_FIELD_BYTES).collect())
}
