//! Reasons why andante could not start, with advice.

use std::{io, net::SocketAddr, path::PathBuf};

use super::handover::TakeOverError;
use crate::{
    ca::CaError,
    config::token_file::{self, TOKEN_FILE_HINT, TokenFileError},
    error::BoxError,
    store::{LedgerError, OpenError},
    tls::TlsError,
};

/// Reason why andante could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// andante cannot listen on an address.
    #[error("could not listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The files for TLS towards upstreams are unusable.
    #[error("could not prepare TLS towards upstreams")]
    Tls(#[from] TlsError),
    /// There is no usable certificate authority for interception.
    #[error("could not prepare the certificate authority that interception needs")]
    Ca(#[from] CaError),
    /// The file with the token for changes is unusable.
    #[error("could not use the token in {}", token_file::shown(file))]
    Token {
        /// The file.
        file: PathBuf,
        /// Reason why the file cannot be read, or why its content is invalid.
        source: BoxError,
    },
    /// No folder is configured for the certificate authority.
    #[error("there is no place for the certificate authority that interception needs")]
    NoData,
    /// andante cannot listen on a socket that it was started with.
    #[error("could not listen on a socket that andante was started with")]
    Given {
        /// Error of the system.
        source: io::Error,
    },
    /// The previous andante's state cannot be opened.
    #[error("could not take over what was sent so far")]
    State(#[from] OpenError),
    /// The running process does not give up its place.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    /// The store of the fleet is unusable.
    #[error("could not use the store {store}")]
    Store {
        /// Address of the store.
        store: String,
        /// The problem.
        source: LedgerError,
    },
    /// A thread or its runtime could not be created.
    #[error("could not start a worker thread")]
    Thread {
        /// Error of the system.
        source: io::Error,
    },
}

impl StartError {
    /// Advice, as far as there is any for this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Ca(error) => error.hint(),
            Self::Tls(error) => Some(error.hint().to_owned()),
            Self::Token { source, .. } if source.is::<TokenFileError>() => Some(TOKEN_FILE_HINT.to_owned()),
            Self::Token { .. } => Some(
                "write at least 16 characters into it, without spaces: `openssl rand -hex 32 > FILE; chmod 600 FILE`"
                    .to_owned(),
            ),
            Self::NoData => Some("name a folder with --data DIR, `data` or ANDANTE_DATA".to_owned()),
            Self::State(OpenError::InUse { pid, .. }) => {
                let how = pid.map(|pid| format!(" (`kill {pid}`; it drains first)")).unwrap_or_default();
                Some(format!(
                    "stop that process{how}, or take over from it with --take-over, or name another file with --state FILE"
                ))
            }
            Self::TakeOver(TakeOverError::NoState) => {
                Some("name a file with --state FILE, the same for both processes".to_owned())
            }
            Self::TakeOver(TakeOverError::Failed { .. }) => {
                Some("stop the other andante (SIGTERM lets requests finish first), and start again".to_owned())
            }
            Self::State(_) => Some("name another file with --state FILE, or say --state off".to_owned()),
            Self::Listen { .. } | Self::Given { .. } | Self::Store { .. } | Self::Thread { .. } => None,
        }
    }
}
