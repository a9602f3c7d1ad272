//! What can go wrong with a request, and whose fault it is. Becomes an answer in `proxy::respond`, and only there.

use std::{fmt::Write as _, io, net::IpAddr, time::Duration};

use http::StatusCode;

/// The source of an error that libraries hand over.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a request could not be served. Says what was tried, and on what; never quotes a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody took the proxy for a web server.
    #[error("this is a forward proxy, and the request names no host to forward it to")]
    NoTarget,
    /// What came is not a request.
    #[error("the request is not valid HTTP/1.1")]
    Malformed,
    /// It is HTTP by its form, and says what no request may say.
    #[error("the request has {found}")]
    Invalid {
        /// What it has.
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
        /// What was asked for.
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
    /// The client's address is not allowed in.
    #[error("{client} may not use this proxy")]
    Stranger {
        /// Who asked.
        client: IpAddr,
    },
    /// The target's address may not be reached through this proxy.
    #[error("{origin} is at a {kind} address, which this proxy does not reach for others")]
    Forbidden {
        /// What was asked for.
        origin: String,
        /// What is wrong with it.
        kind: &'static str,
    },
    /// A tunnel to a port that is not for tunnels.
    #[error("{origin} is not a port that tunnels may go to")]
    TunnelPort {
        /// What was asked for.
        origin: String,
    },
    /// A tunnel to a host that is not for tunnels.
    #[error("tunnels to {origin} are refused by its rule")]
    TunnelRefused {
        /// What was asked for.
        origin: String,
    },
    /// CONNECT in HTTP/2.
    #[error("this proxy opens tunnels for HTTP/1.1 only")]
    NoTunnel,
    /// A request inside of a tunnel that is for somebody else.
    #[error("the request is for another host than the tunnel that it came through")]
    OtherHost,
    /// A browser asked for a gateway path on behalf of some page.
    #[error("a page of another site asked for this gateway address")]
    ForeignPage,
    /// A gateway path whose rule has credentials, asked for from another machine in a way that a web page could.
    #[error("a web page could have asked for this gateway address, whose rule has credentials of its own")]
    LentCredentials,
    /// The request has been here before.
    #[error("the request has come back to where it was forwarded")]
    Loop,
    /// The proxy itself is the target.
    #[error("{origin} is this proxy itself")]
    Myself {
        /// What was asked for.
        origin: String,
    },
    /// The lane has no slot in time.
    #[error("{host}: {why}")]
    Refused {
        /// Whose lane it is.
        host: String,
        /// What the lane said.
        why: String,
        /// When a request like this one would be accepted.
        retry_after: Duration,
    },
    /// The process is about to end.
    #[error("the proxy is shutting down, and this request would not have finished in time")]
    Draining,
    /// The name could not be resolved.
    #[error("could not resolve {host}")]
    Dns {
        /// What was looked up.
        host: String,
        /// What the resolver said.
        source: Cause,
    },
    /// Nobody said where the name is.
    #[error("no name server answered for {host} in time")]
    DnsTimeout {
        /// What was looked up.
        host: String,
    },
    /// A parent proxy gave no connection.
    #[error("the parent proxy {parent} did not connect to {origin}")]
    Parent {
        /// Which one, without its password.
        parent: String,
        /// Where to.
        origin: String,
        /// What it said, or what the system said of it.
        source: Cause,
    },
    /// The upstream's certificate is not one to trust.
    #[error("the certificate of {origin} {reason}")]
    Certificate {
        /// Whose.
        origin: String,
        /// What is wrong with it.
        reason: String,
        /// What to do about that.
        hint: &'static str,
    },
    /// TLS towards the upstream failed.
    #[error("could not speak TLS with {origin}")]
    Tls {
        /// With whom.
        origin: String,
        /// What went wrong.
        source: Cause,
    },
    /// The upstream ended TLS with a reason of its own.
    #[error("{origin} ended the TLS handshake with the alert \"{alert}\"")]
    TlsAlert {
        /// Who.
        origin: String,
        /// The alert, as RFC 8446 §6 names it.
        alert: String,
        /// What to do about that.
        hint: &'static str,
    },
    /// No connection in time.
    #[error("{origin} did not accept a connection within {after:?}")]
    ConnectTimeout {
        /// Where to.
        origin: String,
        /// How long was waited.
        after: Duration,
    },
    /// The process, or the whole machine, has no file descriptor left: that is not the upstream's fault.
    #[error("no file descriptor is left for a connection to {origin}")]
    NoDescriptor {
        /// Where to.
        origin: String,
    },
    /// No connection at all.
    #[error("could not connect to {origin}")]
    Connect {
        /// Where to.
        origin: String,
        /// What the system said.
        source: Cause,
    },
    /// The connection broke before the answer was there.
    #[error("{origin} closed the connection before its answer was complete")]
    Broken {
        /// Where to.
        origin: String,
        /// What the connection said.
        source: Cause,
    },
    /// The upstream says that it has not looked at the request (RFC 9113 §8.7).
    #[error("{origin} did not take the request")]
    Unseen {
        /// Where to.
        origin: String,
        /// What it said.
        source: Cause,
    },
    /// The answer is not HTTP.
    #[error("{origin} gave an answer that is not valid HTTP")]
    BadAnswer {
        /// Where to.
        origin: String,
        /// What is wrong with it.
        source: Cause,
    },
    /// No answer in time.
    #[error("{origin} did not answer within {after:?}")]
    AnswerTimeout {
        /// Where to.
        origin: String,
        /// How long was waited.
        after: Duration,
    },
    /// The client stopped sending its request.
    #[error("the request's body stopped coming for {after:?}")]
    Stalled {
        /// How long was waited.
        after: Duration,
    },
    /// The client's body is malformed, or the client has gone.
    #[error("the request's body could not be read")]
    Body {
        /// What the connection said.
        source: Cause,
    },
}

/// Who has to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Whoever sent the request.
    Client,
    /// This proxy, or its configuration.
    Us,
    /// Whoever should have answered.
    Upstream,
}

// === impl Error ===

impl Error {
    /// The status that the worker sees.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoTarget
            | Self::Malformed
            | Self::Invalid { .. }
            | Self::BadTarget { .. }
            | Self::UserInfo
            | Self::BadHost { .. }
            | Self::OtherHost
            | Self::Body { .. } => StatusCode::BAD_REQUEST,
            Self::Scheme { .. } | Self::TransferCoding | Self::NoTunnel => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Stranger { .. }
            | Self::Forbidden { .. }
            | Self::TunnelPort { .. }
            | Self::TunnelRefused { .. }
            | Self::ForeignPage
            | Self::LentCredentials
            | Self::Myself { .. } => StatusCode::FORBIDDEN,
            Self::Loop
            | Self::Dns { .. }
            | Self::Parent { .. }
            | Self::Certificate { .. }
            | Self::Tls { .. }
            | Self::TlsAlert { .. }
            | Self::Connect { .. }
            | Self::Broken { .. }
            | Self::Unseen { .. }
            | Self::BadAnswer { .. } => StatusCode::BAD_GATEWAY,
            Self::Refused { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Draining | Self::NoDescriptor { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::DnsTimeout { .. } | Self::ConnectTimeout { .. } | Self::AnswerTimeout { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Stalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
        }
    }

    /// The error type of RFC 9209 §2.3.
    pub fn proxy_status(&self) -> &'static str {
        match self {
            Self::Dns { .. } => "dns_error",
            Self::DnsTimeout { .. } => "dns_timeout",
            Self::Certificate { .. } => "tls_certificate_error",
            Self::Tls { .. } => "tls_protocol_error",
            Self::TlsAlert { .. } => "tls_alert_received",
            Self::Forbidden { .. } => "destination_ip_prohibited",
            Self::ConnectTimeout { .. } => "connection_timeout",
            Self::Connect { source, .. } | Self::Parent { source, .. } => match io_error(source.as_ref())
                .map(io::Error::kind)
            {
                Some(io::ErrorKind::ConnectionRefused) => "connection_refused",
                Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => "destination_ip_unroutable",
                _ => "destination_unavailable",
            },
            Self::Broken { .. } | Self::Unseen { .. } => "connection_terminated",
            Self::BadAnswer { .. } => "http_protocol_error",
            Self::AnswerTimeout { .. } => "http_response_timeout",
            Self::Loop | Self::Myself { .. } => "proxy_loop_detected",
            Self::Refused { .. }
            | Self::Stranger { .. }
            | Self::TunnelPort { .. }
            | Self::TunnelRefused { .. }
            | Self::ForeignPage
            | Self::LentCredentials => "http_request_denied",
            Self::Draining => "proxy_internal_response",
            Self::NoDescriptor { .. } => "proxy_internal_error",
            _ => "http_request_error",
        }
    }

    /// Who has to do something about it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused { .. } | Self::Draining | Self::NoDescriptor { .. } => Blame::Us,
            Self::Dns { .. }
            | Self::DnsTimeout { .. }
            | Self::Parent { .. }
            | Self::Certificate { .. }
            | Self::Tls { .. }
            | Self::TlsAlert { .. }
            | Self::ConnectTimeout { .. }
            | Self::Connect { .. }
            | Self::Broken { .. }
            | Self::Unseen { .. }
            | Self::BadAnswer { .. }
            | Self::AnswerTimeout { .. } => Blame::Upstream,
            _ => Blame::Client,
        }
    }

    /// What to do next, for whoever reads the answer.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoTarget => {
                "set HTTP_PROXY and HTTPS_PROXY to this address in your worker, and call the API by its own URL"
            }
            Self::Malformed => {
                "send a request line, fields of the form \"name: value\" and one valid length (RFC 9112 §2 to §6)"
            }
            Self::Invalid { .. } => "send what RFC 9112 §3 and §5, or RFC 9113 §8, let a request say",
            Self::TooLarge { .. } => "send fewer or shorter fields, and large data in the body",
            Self::UriTooLong => "send large data in the body",
            Self::BadTarget { .. } => "write host:port, the port being 1 to 65535 (RFC 9110 §7.1, §9.3.6)",
            Self::UserInfo => "send credentials in the Authorization field",
            Self::Scheme { .. } => "ask for the host by http:// or https://, or open a tunnel to it by CONNECT",
            Self::BadHost { .. } => "send one Host field with the target's host and port",
            Self::TransferCoding => "send \"Transfer-Encoding: chunked\" or a Content-Length",
            Self::Expectation => "leave the Expect field out",
            Self::Stranger { .. } => "add the client's network to `clients` in the configuration",
            Self::Forbidden { .. } => {
                "set `allow-private = true` in a rule for this host, if it is meant to be reached"
            }
            Self::TunnelPort { .. } => {
                "name the port in a rule's host (\"example.com:8443\"), if it is meant to be reached"
            }
            Self::TunnelRefused { .. } => {
                "ask for the host by http:// or a gateway address, or change `https` in its rule"
            }
            Self::NoTunnel => "send CONNECT in HTTP/1.1",
            Self::OtherHost => "open a tunnel of its own for each host",
            Self::ForeignPage => "call gateway addresses from programs, by an IP address or localhost",
            Self::LentCredentials => "send `Andante-Gateway: 1` along, and call andante by an address or private name",
            Self::Loop | Self::Myself { .. } => {
                "leave this proxy out of its own HTTP_PROXY, or add the host to NO_PROXY"
            }
            Self::Refused { .. } => "try again after Retry-After, or raise `max-wait` or `max-waiting`",
            Self::Draining => "try again: another instance may be up",
            Self::Dns { .. } => "check the host's spelling and this machine's resolver",
            Self::DnsTimeout { .. } => "check that the name servers (`dns`, or /etc/resolv.conf) can be reached",
            Self::Parent { .. } => {
                "check that the parent proxy is up and lets this host through, and the user name and password in `via`"
            }
            Self::Tls { .. } => "check that the upstream speaks TLS 1.2 or 1.3 on this port",
            Self::Certificate { hint, .. } | Self::TlsAlert { hint, .. } => hint,
            Self::ConnectTimeout { .. } | Self::Connect { .. } => {
                "check that the upstream is up and reachable from this machine"
            }
            Self::NoDescriptor { .. } => {
                "allow andante more open files (LimitNOFILE in its systemd unit, ulimit -n, --ulimit nofile of containers), \
                 or send fewer requests at once"
            }
            Self::Unseen { .. } => "try again: the upstream says that it has not looked at the request",
            Self::Broken { .. } => "try again if the request may be repeated: the upstream may have processed it",
            Self::BadAnswer { .. } => "look at what the upstream sends: its answer breaks RFC 9112",
            Self::AnswerTimeout { .. } => "raise `timeouts.answer` if the upstream is meant to take this long",
            Self::Stalled { .. } => "send the body without long pauses, or raise `timeouts.idle`",
            Self::Body { .. } => "send a body that matches its Content-Length or its chunks",
        }
    }

    /// What happened, with its causes, in one line.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            let _ = write!(text, ": {cause}");
            next = cause.source();
        }
        text
    }

    /// When to try again, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => Some(*retry_after),
            Self::Draining | Self::NoDescriptor { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

/// Whether `error` comes from there being no file descriptor left.
pub fn is_exhaustion(error: &(dyn std::error::Error + 'static)) -> bool {
    // EMFILE and ENFILE, which the standard library has no kind for.
    matches!(io_error(error).and_then(io::Error::raw_os_error), Some(23 | 24))
}

/// The system's error somewhere below `error`.
pub fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}
