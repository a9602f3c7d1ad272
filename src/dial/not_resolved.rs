//! Reasons why a look-up gives no addresses.

use std::net::{Ipv4Addr, UdpSocket};

use hickory_resolver::net::{DnsError, NetError};

use crate::error::{BoxError, is_exhaustion};

/// Reason why a look-up gives no addresses.
#[derive(Debug)]
pub(super) enum NotResolved {
    /// No server answered in time.
    Timeout,
    /// No file descriptor was left for the query.
    NoDescriptor,
    /// A server gave a negative answer, or the look-up failed in another way.
    Failed(BoxError),
}

// === impl NotResolved ===

impl From<NetError> for NotResolved {
    fn from(error: NetError) -> Self {
        let said = match &error {
            NetError::Timeout => return Self::Timeout,
            NetError::Io(error) if is_exhaustion(error.as_ref()) => return Self::NoDescriptor,
            NetError::NoConnections if is_out_of_descriptors() => return Self::NoDescriptor,
            error if error.is_nx_domain() => "there is no such name".to_owned(),
            error if error.is_no_records_found() => "the name has no address".to_owned(),
            NetError::Dns(DnsError::ResponseCode(code)) => format!("the name server answered {code:?}"),
            error => error.to_string(),
        };
        Self::Failed(said.into())
    }
}

/// Returns whether no descriptor is left to open a socket. hickory does not report why it has no socket.
fn is_out_of_descriptors() -> bool {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_err_and(|error| is_exhaustion(&error))
}
