//! Errors of requests. `facts` states the consequences of each.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::causes::BoxError;
use crate::{lane::Obstacle, limit::Amount};

/// Reason why a request could not be served. Texts state the failed action and its object, and never a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client takes the proxy for a web server.
    #[error("this is a forward proxy, and the request names no host to forward it to")]
    NoTarget,
    /// The bytes are not an HTTP request.
    #[error("the request is not valid HTTP/1.1")]
    Malformed,
    /// The client speaks TLS or SOCKS to the proxy itself.
    #[error("the client speaks {protocol} to this port, where the proxy speaks HTTP alone")]
    NotHttp {
        /// Protocol that the client speaks.
        protocol: &'static str,
    },
    /// The request has the form of HTTP, but a part that is not allowed.
    #[error("the request has {found}")]
    Invalid {
        /// Part that is not allowed, with its article.
        found: &'static str,
    },
    /// The request's head is too large.
    #[error("the request's head is larger than {bytes} bytes, or has more than {fields} fields")]
    TooLarge {
        /// Maximum size of the head, in bytes.
        bytes: usize,
        /// Maximum number of fields.
        fields: usize,
    },
    /// The request's target is too long.
    #[error("the request's target is longer than 65534 bytes")]
    UriTooLong,
    /// The target is not a host and port.
    #[error("the target of this {method} is not a valid host and port")]
    BadTarget {
        /// Method of the request.
        method: http::Method,
    },
    /// The target carries a user name or password.
    #[error("the target carries a user name, which RFC 9110 §4.2.4 forbids")]
    UserInfo,
    /// The scheme is neither `http` nor `https`.
    #[error("the scheme {scheme:?} is neither http nor https")]
    Scheme {
        /// Scheme of the request.
        scheme: String,
    },
    /// `Host` is missing, double or malformed.
    #[error("the request has {found}, where RFC 9112 §3.2 wants exactly one valid Host field")]
    BadHost {
        /// Description of the invalid `Host`.
        found: &'static str,
    },
    /// The transfer coding is not `chunked` alone.
    #[error("the request's transfer coding is not \"chunked\" alone")]
    TransferCoding,
    /// The expectation is not `100-continue`.
    #[error("the expectation is not \"100-continue\"")]
    Expectation,
    /// `Andante-Cost` is not a valid cost.
    #[error(
        "Andante-Cost is {found:?}, which is neither a whole number from 1 nor one for each unit, as in \"tokens=500\""
    )]
    BadCost {
        /// Value of the field.
        found: String,
    },
    /// The cost of the request exceeds a limit, so that the limit never has room for it.
    #[error("a request that costs {cost} fits no window of {limit}")]
    TooCostly {
        /// Cost of the request: `11`, or `5000 tokens`.
        cost: String,
        /// Limit that is smaller than the cost.
        limit: String,
    },
    /// `Andante-Cost` is more than a request may state.
    #[error("Andante-Cost states {stated}, and a request may state {most} at most: {bound}")]
    OverMaxCost {
        /// Stated amount: `11 requests`, or `5000 tokens`.
        stated: String,
        /// Largest amount that a request may state.
        most: Amount,
        /// Origin of the bound.
        bound: String,
    },
    /// Two requests with one `Idempotency-Key` differ.
    #[error("the Idempotency-Key was used for a request with another body")]
    KeyReused,
    /// An earlier request with this `Idempotency-Key` is in flight, and its answer is too large to share.
    #[error("another request with this Idempotency-Key is in flight, and its answer is too large to share")]
    KeyInUse,
    /// The request accepts only a stored answer, and none matches it.
    #[error("no stored answer matches this `only-if-cached` request")]
    NotStored,
    /// `Andante-Cost` names a unit that no limit counts, although limits count other units. A mistyped name must not
    /// bypass limits.
    #[error("Andante-Cost names {found:?}, but the limits here count {counted}")]
    UncountedUnit {
        /// Name of the uncounted unit.
        found: String,
        /// Units that the limits count.
        counted: String,
    },
    /// The address of the client may not use this proxy.
    #[error("{client} may not use this proxy")]
    ClientDenied {
        /// Address of the client.
        client: IpAddr,
    },
    /// The target's address may not be reached through this proxy.
    #[error("{origin} is at a {kind} address, which this proxy does not reach for others")]
    Forbidden {
        /// Target of the request.
        origin: String,
        /// Kind of address, as an adjective.
        kind: &'static str,
    },
    /// The port is not allowed for tunnels.
    #[error("{origin} is not a port that tunnels may go to")]
    TunnelPort {
        /// Target of the request.
        origin: String,
    },
    /// The rule of the host refuses tunnels.
    #[error("tunnels to {origin} are refused by its rule")]
    TunnelRefused {
        /// Target of the request.
        origin: String,
    },
    /// A tunnel was requested by CONNECT in HTTP/2.
    #[error("this proxy opens tunnels for HTTP/1.1 only")]
    NoTunnel,
    /// A request inside a tunnel names another host than the tunnel.
    #[error("the request is for another host than the tunnel that it came through")]
    OtherHost,
    /// A browser asks for a gateway path on behalf of a page of another site.
    #[error("a page of another site asked for this gateway address")]
    ForeignPage,
    /// The rule of this gateway path has credentials, and a web page could have sent the request from another machine.
    #[error("a web page could have asked for this gateway address, whose rule has credentials of its own")]
    LentCredentials,
    /// The request has come through this proxy before.
    #[error("the request has come back to where it was forwarded")]
    Loop,
    /// The proxy itself is the target.
    #[error("{origin} is this proxy itself")]
    SelfTarget {
        /// Target of the request.
        origin: String,
    },
    /// The lane has no slot for the request in time.
    #[error("{host}: {why}{}", obstacle.as_ref().map_or_else(String::new, |obstacle| format!("; {}", obstacle.what)))]
    Refused {
        /// Host of the lane.
        host: String,
        /// Reason that the lane states.
        why: String,
        /// Reason without numbers that differ from request to request.
        cause: &'static str,
        /// Name of the rule whose limits block the request, or else of the lane's rule.
        rule: Arc<str>,
        /// Block reason other than used-up limits.
        obstacle: Option<Box<Obstacle>>,
        /// Time until the lane would accept a request like this one.
        retry_after: Duration,
    },
    /// An operator dropped the request while it waited.
    #[error("an operator dropped this request while it waited for a slot")]
    DroppedByOperator,
    /// The process is shutting down.
    #[error("the proxy is shutting down, and this request would not have finished in time")]
    Draining {
        /// Time after which to try again.
        retry_after: Duration,
    },
    /// The process ends before the upstream has answered.
    #[error("the proxy is shutting down before {origin} has answered: the request may have been executed")]
    CutOff {
        /// The upstream.
        origin: String,
    },
    /// The name could not be resolved.
    #[error("could not resolve {host}")]
    Dns {
        /// Host name.
        host: String,
        /// The resolver's error.
        source: BoxError,
    },
    /// No name server answered.
    #[error("no name server answered for {host} in time")]
    DnsTimeout {
        /// Host name.
        host: String,
    },
    /// The parent proxy did not connect.
    #[error("the parent proxy {parent} did not connect to {origin}")]
    Parent {
        /// Address of the parent proxy, without its password.
        parent: String,
        /// The upstream.
        origin: String,
        /// The parent's answer, or the system's error.
        source: BoxError,
    },
    /// The upstream's certificate is not trusted.
    #[error("the certificate of {origin} {reason}")]
    Certificate {
        /// The upstream.
        origin: String,
        /// Description of the problem.
        reason: String,
        /// Advice on how to solve the problem.
        hint: &'static str,
    },
    /// TLS towards the upstream failed.
    #[error("could not speak TLS with {origin}")]
    Tls {
        /// The upstream.
        origin: String,
        /// Cause of the failure.
        source: BoxError,
    },
    /// The upstream ended the TLS handshake and gave a reason.
    #[error("{origin} ended the TLS handshake with the alert \"{alert}\"")]
    TlsAlert {
        /// The upstream.
        origin: String,
        /// Name of the alert (RFC 8446 §6).
        alert: String,
        /// Advice on how to solve the problem.
        hint: &'static str,
    },
    /// No connection was established in time.
    #[error("{origin} did not accept a connection within {after:?}")]
    ConnectTimeout {
        /// The upstream.
        origin: String,
        /// Time that andante waited.
        after: Duration,
    },
    /// The upstream accepted a connection, but the TLS handshake was not finished in time.
    #[error("{origin} accepted the connection, and did not finish the TLS handshake within {after:?}")]
    HandshakeTimeout {
        /// The upstream.
        origin: String,
        /// Time that andante waited.
        after: Duration,
    },
    /// The client holds its share of the memory that andante may use.
    #[error("no memory is left for another request or answer of {client}: andante takes {} MiB at most (max-memory)", .bytes >> 20)]
    MemoryFull {
        /// Bound on the memory, in bytes.
        bytes: u64,
        /// Address of the client, or its network.
        client: String,
        /// True if the request was sent: the upstream may have executed it.
        is_sent: bool,
    },
    /// The process, or the whole machine, has no file descriptor left. The upstream is not to blame.
    #[error("no file descriptor is left for a connection to {origin}")]
    NoDescriptor {
        /// The upstream.
        origin: String,
    },
    /// No connection was established.
    #[error("could not connect to {origin}")]
    Connect {
        /// The upstream.
        origin: String,
        /// The system's error.
        source: BoxError,
    },
    /// The connection broke before the answer was complete.
    #[error("{origin} closed the connection before its answer was complete")]
    Broken {
        /// The upstream.
        origin: String,
        /// The connection's error.
        source: BoxError,
    },
    /// A connection in plain HTTP ended without an answer, and the upstream has never answered.
    #[error("{origin} closed the connection without an answer in plain HTTP, and has never given one")]
    NoHttp {
        /// The upstream.
        origin: String,
        /// The connection's error.
        source: BoxError,
    },
    /// The upstream reports that it has not processed the request (RFC 9113 §8.7).
    #[error("{origin} did not take the request")]
    NotProcessed {
        /// The upstream.
        origin: String,
        /// The connection's error.
        source: BoxError,
    },
    /// The answer is not valid HTTP.
    #[error("{origin} gave an answer that is not valid HTTP")]
    BadAnswer {
        /// The upstream.
        origin: String,
        /// Description of the mistake.
        source: BoxError,
    },
    /// No answer arrived in time.
    #[error("{origin} did not answer within {after:?}")]
    AnswerTimeout {
        /// The upstream.
        origin: String,
        /// Time that andante waited.
        after: Duration,
    },
    /// The client stopped sending its request.
    #[error("the request's body stopped coming for {after:?}")]
    Stalled {
        /// Time that andante waited.
        after: Duration,
    },
    /// The client's body is malformed, or the client has gone.
    #[error("the request's body could not be read")]
    Body {
        /// The connection's error.
        source: BoxError,
    },
}
