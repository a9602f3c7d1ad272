//! Every way in which a request fails. What follows from each stands in `facts`.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::causes::BoxError;
use crate::{lane::Obstacle, limit::Amount};

/// Why a request could not be served. Says what was tried, and on what; never quotes a credential.
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
        /// What it speaks.
        protocol: &'static str,
    },
    /// The form is HTTP, but no request may contain this.
    #[error("the request has {found}")]
    Invalid {
        /// The part that is not allowed, with its article.
        found: &'static str,
    },
    /// The request's head is too large.
    #[error("the request's head is larger than {bytes} bytes, or has more than {fields} fields")]
    TooLarge {
        /// How many bytes it may have.
        bytes: usize,
        /// How many fields it may have.
        fields: usize,
    },
    /// The request's target is too long.
    #[error("the request's target is longer than 65534 bytes")]
    UriTooLong,
    /// The target is no host and port.
    #[error("the target of this {method} is not a valid host and port")]
    BadTarget {
        /// The request's method.
        method: http::Method,
    },
    /// The target carries a user name or password.
    #[error("the target carries a user name, which RFC 9110 §4.2.4 forbids")]
    UserInfo,
    /// Something other than `http://` and `https://`.
    #[error("the scheme {scheme:?} is neither http nor https")]
    Scheme {
        /// The scheme of the request.
        scheme: String,
    },
    /// `Host` is missing, double or malformed.
    #[error("the request has {found}, where RFC 9112 §3.2 wants exactly one valid Host field")]
    BadHost {
        /// What was found instead.
        found: &'static str,
    },
    /// A transfer coding other than `chunked`.
    #[error("the request's transfer coding is not \"chunked\" alone")]
    TransferCoding,
    /// An expectation other than `100-continue`.
    #[error("the expectation is not \"100-continue\"")]
    Expectation,
    /// `Andante-Cost` is no cost.
    #[error(
        "Andante-Cost is {found:?}, which is neither a whole number from 1 nor one for each unit, as in \"tokens=500\""
    )]
    BadCost {
        /// What it is.
        found: String,
    },
    /// A limit never has room for what the request costs.
    #[error("a request that costs {cost} fits no window of {limit}")]
    TooCostly {
        /// What it costs: `11`, or `5000 tokens`.
        cost: String,
        /// The limit.
        limit: String,
    },
    /// `Andante-Cost` is more than a request may state.
    #[error("Andante-Cost states {stated}, and a request may state {most} at most: {bound}")]
    OverMaxCost {
        /// The stated amount: `11 requests`, or `5000 tokens`.
        stated: String,
        /// The largest amount that a request may state.
        most: Amount,
        /// The origin of the bound.
        bound: String,
    },
    /// Two requests with one `Idempotency-Key` differ.
    #[error("the Idempotency-Key was used for a request with another body")]
    KeyReused,
    /// An earlier request with this `Idempotency-Key` is in flight, and its answer is too large to share.
    #[error("another request with this Idempotency-Key is in flight, and its answer is too large to share")]
    KeyInUse,
    /// The request wants a stored answer, and there is none for it.
    #[error("no stored answer matches this `only-if-cached` request")]
    NotStored,
    /// `Andante-Cost` names a unit that no limit counts, while others are counted: a mistyped name must not set limits aside.
    #[error("Andante-Cost names {found:?}, but the limits here count {counted}")]
    UncountedUnit {
        /// The name.
        found: String,
        /// What is counted.
        counted: String,
    },
    /// The client's address is not allowed in.
    #[error("{client} may not use this proxy")]
    ClientDenied {
        /// The client's address.
        client: IpAddr,
    },
    /// The target's address may not be reached through this proxy.
    #[error("{origin} is at a {kind} address, which this proxy does not reach for others")]
    Forbidden {
        /// The target of the request.
        origin: String,
        /// The kind of address, as an adjective.
        kind: &'static str,
    },
    /// A tunnel to a port that is not for tunnels.
    #[error("{origin} is not a port that tunnels may go to")]
    TunnelPort {
        /// The target of the request.
        origin: String,
    },
    /// A tunnel to a host that is not for tunnels.
    #[error("tunnels to {origin} are refused by its rule")]
    TunnelRefused {
        /// The target of the request.
        origin: String,
    },
    /// CONNECT in HTTP/2.
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
        /// The target of the request.
        origin: String,
    },
    /// The lane has no slot in time.
    #[error("{host}: {why}{}", obstacle.as_ref().map_or_else(String::new, |obstacle| format!("; {}", obstacle.what)))]
    Refused {
        /// The host of the lane.
        host: String,
        /// The reason that the lane gives.
        why: String,
        /// The reason without numbers that differ from request to request.
        cause: &'static str,
        /// The name of the rule whose limits hold it up.
        rule: Arc<str>,
        /// What holds it up beside its limits.
        obstacle: Option<Box<Obstacle>>,
        /// How long until the lane would accept a request like this one.
        retry_after: Duration,
    },
    /// An operator has dropped it while it waited.
    #[error("an operator dropped this request while it waited for a slot")]
    DroppedByOperator,
    /// The process is about to end.
    #[error("the proxy is shutting down, and this request would not have finished in time")]
    Draining {
        /// How long until this process has ended.
        retry_after: Duration,
    },
    /// The name could not be resolved.
    #[error("could not resolve {host}")]
    Dns {
        /// The name.
        host: String,
        /// The resolver's error.
        source: BoxError,
    },
    /// No name server answered.
    #[error("no name server answered for {host} in time")]
    DnsTimeout {
        /// The name.
        host: String,
    },
    /// The parent proxy did not connect.
    #[error("the parent proxy {parent} did not connect to {origin}")]
    Parent {
        /// The parent proxy, without its password.
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
        /// What is wrong with it.
        reason: String,
        /// What to do about that.
        hint: &'static str,
    },
    /// TLS towards the upstream failed.
    #[error("could not speak TLS with {origin}")]
    Tls {
        /// The upstream.
        origin: String,
        /// What went wrong.
        source: BoxError,
    },
    /// The upstream ended the TLS handshake and gave a reason.
    #[error("{origin} ended the TLS handshake with the alert \"{alert}\"")]
    TlsAlert {
        /// The upstream.
        origin: String,
        /// The alert, as RFC 8446 §6 names it.
        alert: String,
        /// What to do about that.
        hint: &'static str,
    },
    /// No connection in time.
    #[error("{origin} did not accept a connection within {after:?}")]
    ConnectTimeout {
        /// The upstream.
        origin: String,
        /// How long andante waited.
        after: Duration,
    },
    /// A connection was accepted, and TLS did not come about in time.
    #[error("{origin} accepted the connection, and did not finish the TLS handshake within {after:?}")]
    HandshakeTimeout {
        /// The upstream.
        origin: String,
        /// How long andante waited.
        after: Duration,
    },
    /// The client holds its part of the memory that andante may take.
    #[error("no memory is left for another request or answer of {client}: andante takes {} MiB at most (max-memory)", .bytes >> 20)]
    MemoryFull {
        /// The bound, in bytes.
        bytes: u64,
        /// The client, or its network.
        client: String,
    },
    /// The process, or the whole machine, has no file descriptor left: that is not the upstream's fault.
    #[error("no file descriptor is left for a connection to {origin}")]
    NoDescriptor {
        /// The upstream.
        origin: String,
    },
    /// No connection at all.
    #[error("could not connect to {origin}")]
    Connect {
        /// The upstream.
        origin: String,
        /// The system's error.
        source: BoxError,
    },
    /// The connection broke before the answer was there.
    #[error("{origin} closed the connection before its answer was complete")]
    Broken {
        /// The upstream.
        origin: String,
        /// The connection's error.
        source: BoxError,
    },
    /// The connection of a request in plain HTTP ended without an answer, and no answer has ever come from there.
    #[error("{origin} closed the connection without an answer in plain HTTP, and has never given one")]
    NoHttp {
        /// The upstream.
        origin: String,
        /// The connection's error.
        source: BoxError,
    },
    /// The upstream says that it has not looked at the request (RFC 9113 §8.7).
    #[error("{origin} did not take the request")]
    NotProcessed {
        /// The upstream.
        origin: String,
        /// The connection's error.
        source: BoxError,
    },
    /// The answer is not HTTP.
    #[error("{origin} gave an answer that is not valid HTTP")]
    BadAnswer {
        /// The upstream.
        origin: String,
        /// What is wrong with it.
        source: BoxError,
    },
    /// No answer in time.
    #[error("{origin} did not answer within {after:?}")]
    AnswerTimeout {
        /// The upstream.
        origin: String,
        /// How long andante waited.
        after: Duration,
    },
    /// The client stopped sending its request.
    #[error("the request's body stopped coming for {after:?}")]
    Stalled {
        /// How long andante waited.
        after: Duration,
    },
    /// The client's body is malformed, or the client has gone.
    #[error("the request's body could not be read")]
    Body {
        /// The connection's error.
        source: BoxError,
    },
}
