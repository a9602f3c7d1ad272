//! Facts of each error: one row per variant, and no wildcard, so that a new variant has to state all of them.

use std::{io, time::Duration};

use http::StatusCode as S;

use self::{AfterAnswer::*, Blame::*, Retryable::*};
use super::{
    causes::{self, BoxError, io_error},
    kind::Error,
};

/// Consequences of an error for the worker, for the log, and for the steps that handle the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorFacts {
    /// Status that the worker sees.
    pub status: S,
    /// Error type (RFC 9209 §2.3).
    pub proxy_status: &'static str,
    /// Party that has to act.
    pub blame: Blame,
    /// Condition under which andante may send the request again.
    pub retryable: Retryable,
    /// State of the client's connection after the answer.
    pub after: AfterAnswer,
    /// Advice for the reader of the answer.
    pub hint: &'static str,
    /// Time after which to try again, if it is known.
    pub retry_after: Option<Duration>,
    /// True if the host's circuit breaker counts the error as a failure.
    pub trips_breaker: bool,
    /// Problem type of the answer's body.
    pub problem: ProblemType,
}

/// Member `type` of a problem document (RFC 9457 §3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemType {
    /// The status code is the whole description.
    Blank,
    /// The requests exceed a quota policy (draft-ietf-httpapi-ratelimit-headers-11).
    QuotaExceeded,
    /// The quota permits the request, but capacity is reduced for a time (draft-ietf-httpapi-ratelimit-headers-11).
    ReducedCapacity,
}

/// Party that has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The sender of the request.
    Client,
    /// This proxy, or its configuration.
    Us,
    /// The API, or a system on the way to it.
    Upstream,
}

/// Condition under which a failed request may be sent again. Answers that refuse a request are judged elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retryable {
    /// Never: the request would fail again, its time is up, or the API may have executed it.
    Never,
    /// Any request: no connection was established.
    Unreached,
    /// Any request: the upstream reports that it has not processed the request (RFC 9113 §8.7).
    NotProcessed,
    /// Only a request that may be executed twice (RFC 9110 §9.2.2).
    IfRepeatable,
}

/// State of the client's connection after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAnswer {
    /// The connection is ready for the next request.
    KeepAlive,
    /// The connection closes: the start of the next request is unknown, or andante accepts none.
    Close,
}

const OWN_PROXY: &str = "leave this proxy out of its own HTTP_PROXY, or add the host to NO_PROXY";
const PERHAPS_TLS: &str = "if TLS is spoken on this port, ask for the host by https://, or write `upstream = \"https\"` in its \
     rule; if not, look at what the upstream sends";
const UNREACHABLE: &str = "check that the upstream is up and reachable from this machine";
/// Advice for a lack of file descriptors.
pub const MORE_DESCRIPTORS: &str = "allow andante more open files (LimitNOFILE in its systemd unit, ulimit -n, --ulimit \
     nofile of containers), or send fewer requests at once";
/// Retry-After of errors whose end cannot be predicted.
const SOON: Duration = Duration::from_secs(1);

/// Returns the row of `error`: status, Proxy-Status, blame, retryability, state of the connection, and the hint.
#[rustfmt::skip]
#[deny(clippy::wildcard_enum_match_arm)]
fn facts(error: &Error) -> ErrorFacts {
    match error {
        Error::NoTarget => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "set HTTP_PROXY and HTTPS_PROXY to this address in your worker, and call the API by its own URL"),
        Error::Malformed => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "send a request line, fields of the form \"name: value\" and one valid length (RFC 9112 §2 to §6)"),
        Error::NotHttp { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, Close,
            "write http:// in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY: this is the protocol between client and proxy, and https:// URLs work through it"),
        Error::Invalid { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "send a request that is valid by RFC 9112 §3 and §5, or RFC 9113 §8"),
        Error::TooLarge { .. } => row(S::REQUEST_HEADER_FIELDS_TOO_LARGE, "http_request_error", Client, Never, KeepAlive,
            "send fewer or shorter fields, and large data in the body"),
        Error::UriTooLong => row(S::URI_TOO_LONG, "http_request_error", Client, Never, KeepAlive,
            "send large data in the body"),
        Error::BadTarget { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "write host:port, the port being 1 to 65535 (RFC 9110 §7.1, §9.3.6)"),
        Error::UserInfo => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "send credentials in the Authorization field"),
        Error::Scheme { .. } => row(S::NOT_IMPLEMENTED, "http_request_error", Client, Never, KeepAlive,
            "ask for the host by http:// or https://, or open a tunnel to it by CONNECT"),
        Error::BadHost { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, Close,
            "send one Host field with the target's host and port"),
        Error::TransferCoding => row(S::NOT_IMPLEMENTED, "http_request_error", Client, Never, Close,
            "send \"Transfer-Encoding: chunked\" or a Content-Length"),
        Error::Expectation => row(S::EXPECTATION_FAILED, "http_request_error", Client, Never, KeepAlive,
            "leave the Expect field out"),
        Error::BadCost { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "write a whole number for each unit, as in \"tokens=500\", or how many requests it counts as, from 1"),
        Error::TooCostly { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "split the request, or lower its cost: no limit gives more than its count at once"),
        Error::OverMaxCost { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "split the request, or have `max-cost` in the rule for this host raised: a number of requests, or \"UNIT=N\""),
        Error::KeyReused => row(S::UNPROCESSABLE_ENTITY, "http_request_error", Client, Never, KeepAlive,
            "make a key for each request, and use it again only to send the same request again"),
        Error::KeyInUse => row(S::CONFLICT, "http_request_denied", Us, Never, KeepAlive,
            "try again when the earlier request is over").wait(SOON),
        Error::NotStored => row(S::GATEWAY_TIMEOUT, "http_request_denied", Client, Never, KeepAlive,
            "leave `only-if-cached` out, and the API is asked (RFC 9111 §5.2.1.7)"),
        Error::UncountedUnit { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "use the names of units that the rule's limits have"),
        Error::ClientDenied { .. } => row(S::FORBIDDEN, "http_request_denied", Client, Never, Close,
            "add the client's network to `clients` in the configuration"),
        Error::Forbidden { .. } => row(S::FORBIDDEN, "destination_ip_prohibited", Client, Never, KeepAlive,
            "set `allow-private = true` in a rule for this host, if it is meant to be reached"),
        Error::TunnelPort { .. } => row(S::FORBIDDEN, "http_request_denied", Client, Never, KeepAlive,
            "name the port in a rule's host (\"example.com:8443\"), if it is meant to be reached"),
        Error::TunnelRefused { .. } => row(S::FORBIDDEN, "http_request_denied", Client, Never, KeepAlive,
            "ask for the host by http:// or a gateway address, or change `https` in its rule"),
        Error::NoTunnel => row(S::NOT_IMPLEMENTED, "http_request_error", Client, Never, KeepAlive,
            "send CONNECT in HTTP/1.1"),
        Error::OtherHost => row(S::BAD_REQUEST, "http_request_error", Client, Never, KeepAlive,
            "open a tunnel of its own for each host"),
        Error::ForeignPage => row(S::FORBIDDEN, "http_request_denied", Client, Never, KeepAlive,
            "call gateway addresses from programs, by an IP address or localhost"),
        Error::LentCredentials => row(S::FORBIDDEN, "http_request_denied", Client, Never, KeepAlive,
            "send `Andante-Gateway: 1` along, and call andante by an address or private name"),
        Error::Loop => row(S::BAD_GATEWAY, "proxy_loop_detected", Client, Never, KeepAlive,
            OWN_PROXY),
        Error::SelfTarget { .. } => row(S::FORBIDDEN, "proxy_loop_detected", Client, Never, KeepAlive,
            OWN_PROXY),
        Error::Refused { retry_after, obstacle, .. } => row(S::TOO_MANY_REQUESTS, "http_request_denied", Us, Never, KeepAlive,
            obstacle.as_ref().and_then(|obstacle| obstacle.hint)
                .unwrap_or("try again after Retry-After, or raise `max-wait`, `max-waiting`, or the worker's `Prefer: wait`"))
            .wait(*retry_after)
            .problem(if obstacle.as_ref().is_some_and(|obstacle| !obstacle.is_quota) {
                ProblemType::ReducedCapacity
            } else {
                ProblemType::QuotaExceeded
            }),
        Error::DroppedByOperator => row(S::SERVICE_UNAVAILABLE, "http_request_denied", Us, Never, KeepAlive,
            "ask the operator of this proxy before you send it again"),
        Error::Draining { retry_after } => row(S::SERVICE_UNAVAILABLE, "proxy_internal_response", Us, Never, Close,
            "try again: another instance may be up").wait(*retry_after).problem(ProblemType::ReducedCapacity),
        Error::CutOff { .. } => row(S::SERVICE_UNAVAILABLE, "connection_terminated", Us, Never, Close,
            "find out whether it was executed before you send it again, unless it may be executed twice")
            .wait(SOON).problem(ProblemType::ReducedCapacity),
        Error::Dns { .. } => row(S::BAD_GATEWAY, "dns_error", Upstream, Unreached, KeepAlive,
            "check the host's spelling and this machine's resolver").without_upstream(),
        Error::DnsTimeout { .. } => row(S::GATEWAY_TIMEOUT, "dns_timeout", Upstream, Unreached, KeepAlive,
            "check that the name servers (`dns`, or /etc/resolv.conf) can be reached").without_upstream(),
        Error::Parent { source, .. } => row(S::BAD_GATEWAY, unreachable(source), Upstream, Never, KeepAlive,
            "check that the parent proxy is up and lets this host through, and the user name and password in `via`"),
        Error::Certificate { hint, .. } => row(S::BAD_GATEWAY, "tls_certificate_error", Upstream, Never, KeepAlive,
            hint),
        Error::Tls { .. } => row(S::BAD_GATEWAY, "tls_protocol_error", Upstream, Never, KeepAlive,
            "check that the upstream speaks TLS 1.2 or 1.3 on this port; if it speaks plain HTTP, ask for the host by http://"),
        Error::TlsAlert { hint, .. } => row(S::BAD_GATEWAY, "tls_alert_received", Upstream, Never, KeepAlive,
            hint),
        Error::ConnectTimeout { .. } => row(S::GATEWAY_TIMEOUT, "connection_timeout", Upstream, Unreached, KeepAlive,
            UNREACHABLE),
        Error::HandshakeTimeout { .. } => row(S::GATEWAY_TIMEOUT, "connection_timeout", Upstream, Unreached, KeepAlive,
            "check that the upstream speaks TLS on this port, and that it is not overloaded"),
        Error::NoDescriptor { .. } => row(S::SERVICE_UNAVAILABLE, "proxy_internal_error", Us, Never, KeepAlive,
            MORE_DESCRIPTORS).wait(SOON).problem(ProblemType::ReducedCapacity),
        Error::MemoryFull { is_sent, .. } => row(S::SERVICE_UNAVAILABLE,
            if *is_sent { "connection_terminated" } else { "proxy_internal_error" }, Us, Never, KeepAlive,
            "let fewer requests wait at once, with shorter heads, read answers as they come, or raise `max-memory`").wait(SOON)
            .problem(ProblemType::ReducedCapacity),
        Error::Connect { source, .. } => row(S::BAD_GATEWAY, unreachable(source), Upstream, Unreached, KeepAlive,
            UNREACHABLE),
        Error::Broken { .. } => row(S::BAD_GATEWAY, "connection_terminated", Upstream, IfRepeatable, KeepAlive,
            "try again if the request may be repeated: the upstream may have processed it"),
        Error::NoHttp { .. } => row(S::BAD_GATEWAY, "connection_terminated", Upstream, IfRepeatable, KeepAlive,
            PERHAPS_TLS),
        Error::NotProcessed { .. } => row(S::BAD_GATEWAY, "connection_terminated", Upstream, NotProcessed, KeepAlive,
            "try again: the upstream says that it has not looked at the request"),
        Error::BadAnswer { source, .. } => row(S::BAD_GATEWAY, "http_protocol_error", Upstream, Never, KeepAlive,
            if begins_otherwise(source) { PERHAPS_TLS } else {
                "look at what the upstream sends: its answer breaks RFC 9112, or is larger than andante takes"
            }),
        Error::AnswerTimeout { .. } => row(S::GATEWAY_TIMEOUT, "http_response_timeout", Upstream, Never, KeepAlive,
            "raise `timeouts.answer` if the upstream is meant to take this long; andante does not send the request again, because the API may have carried it out"),
        Error::Stalled { .. } => row(S::REQUEST_TIMEOUT, "http_request_error", Client, Never, Close,
            "send the body without long pauses, or raise `timeouts.idle`"),
        Error::Body { .. } => row(S::BAD_REQUEST, "http_request_error", Client, Never, Close,
            "send a body that matches its Content-Length or its chunks"),
    }
}

fn row(
    status: S,
    proxy_status: &'static str,
    blame: Blame,
    retryable: Retryable,
    after: AfterAnswer,
    hint: &'static str,
) -> ErrorFacts {
    let (trips_breaker, problem) = (blame == Upstream, ProblemType::Blank);
    ErrorFacts { status, proxy_status, blame, retryable, after, hint, retry_after: None, trips_breaker, problem }
}

/// Returns whether an answer does not begin like HTTP/1, such as a TLS alert. hyper tells this only in the error's
/// text.
fn begins_otherwise(source: &BoxError) -> bool {
    source.downcast_ref::<hyper::Error>().is_some_and(|error| error.is_parse() && error.to_string().contains("version"))
}

/// Returns the Proxy-Status of a connection that was not established.
fn unreachable(source: &BoxError) -> &'static str {
    match io_error(source.as_ref()).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection_refused",
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => "destination_ip_unroutable",
        _ => "destination_unavailable",
    }
}

// === impl ProblemType ===

impl ProblemType {
    /// URI of the type.
    pub fn uri(self) -> &'static str {
        match self {
            Self::Blank => "about:blank",
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::ReducedCapacity => "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        }
    }

    /// Title of the type; `None` stands for the status code's phrase (RFC 9457 §4.2.1).
    pub fn title(self) -> Option<&'static str> {
        match self {
            Self::Blank => None,
            Self::QuotaExceeded => Some("Request cannot be satisfied as assigned quota has been exceeded"),
            Self::ReducedCapacity => Some("Request cannot be satisfied due to temporary server capacity constraints"),
        }
    }
}

// === impl ErrorFacts ===

impl ErrorFacts {
    /// Sets the time after which to try again.
    fn wait(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Sets the problem type.
    fn problem(self, problem: ProblemType) -> Self {
        Self { problem, ..self }
    }

    /// Excludes the error from the circuit breaker. A failed name resolution asks no upstream, and other names of a
    /// lane may resolve.
    fn without_upstream(self) -> Self {
        Self { trips_breaker: false, ..self }
    }
}

// === impl Error ===

impl Error {
    /// Facts of the error.
    pub fn facts(&self) -> ErrorFacts {
        facts(self)
    }

    /// Status that the worker sees.
    pub fn status(&self) -> S {
        self.facts().status
    }

    /// Error type (RFC 9209 §2.3).
    pub fn proxy_status(&self) -> &'static str {
        self.facts().proxy_status
    }

    /// Party that has to act.
    pub fn blame(&self) -> Blame {
        self.facts().blame
    }

    /// Condition under which andante may send the request again.
    pub fn retryable(&self) -> Retryable {
        self.facts().retryable
    }

    /// Returns whether the client's connection closes after the answer.
    pub fn closes(&self) -> bool {
        self.facts().after == Close
    }

    /// Advice for the reader of the answer.
    pub fn hint(&self) -> &'static str {
        self.facts().hint
    }

    /// Time after which to try again, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.facts().retry_after
    }

    /// Returns whether the host's circuit breaker counts the error as a failure.
    pub fn trips_breaker(&self) -> bool {
        self.facts().trips_breaker
    }

    /// Problem type of the answer's body.
    pub fn problem(&self) -> ProblemType {
        self.facts().problem
    }

    /// Name of the rule under which the request is refused; `None` for other errors.
    pub fn violated_policy(&self) -> Option<&str> {
        if let Error::Refused { rule, .. } = self { Some(rule) } else { None }
    }

    /// Text of the error with its causes, in one line.
    pub fn with_causes(&self) -> String {
        causes::in_one_line(self)
    }
}
