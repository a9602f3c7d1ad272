//! Errors of the CA, with a remedy for each that has one.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Reason why there is no CA, or no certificate for a host.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// Folder without a CA.
    #[error("there is no CA in {}", dir.display())]
    Missing {
        /// Folder that was searched.
        dir: PathBuf,
    },
    /// Existing CA in the way of a new one; andante does not overwrite it.
    #[error("there is a CA already, {}", path.display())]
    Exists {
        /// Key file of the existing CA.
        path: PathBuf,
    },
    /// Existing file that cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// File or folder that cannot be created or written.
    #[error("could not write {}", path.display())]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Key file that users other than its owner can access.
    #[error("the CA's key {} is open to others: its mode is {mode:04o}", path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// File that does not hold a CA.
    #[error("{} does not hold a CA: {what}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Defect of the content.
        what: String,
    },
    /// Expired certificate of the CA.
    #[error("the CA has expired on {until}")]
    Expired {
        /// End of the validity, as an HTTP date.
        until: String,
    },
    /// Host pattern `*`, which is no constraint.
    #[error("a CA cannot be bound to {pattern}")]
    Unbounded {
        /// Pattern as it was written.
        pattern: String,
    },
    /// Host that is neither an IP address nor a DNS name without a final dot.
    #[error("no certificate can name the host {host:?}")]
    Host {
        /// Requested host.
        host: String,
    },
    /// Host outside the CA's name constraints: workers would refuse a certificate for it.
    #[error("the CA may not speak for {host}, only for {only}")]
    Outside {
        /// Requested host.
        host: String,
        /// Hosts that the CA may sign for.
        only: String,
    },
    /// Failure of `rcgen`, which creates keys and certificates.
    #[error("could not make a certificate")]
    Making(#[source] rcgen::Error),
    /// Failure of `rustls`, or of its source of randomness.
    #[error("could not make the keys for TLS")]
    Tls(#[source] rustls::Error),
    /// Absence of root certificates. With a bundle of our CA alone, clients would refuse all other hosts.
    #[error("this machine has no root certificates")]
    NoRoots,
}

// === impl CaError ===

impl CaError {
    /// Returns the error for a file of the CA in `dir` that could not be read. An absent file means an absent CA.
    pub(super) fn reading(dir: &Path, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { dir: dir.to_owned() },
            _ => Self::Read { path: path.to_owned(), source },
        }
    }

    /// Returns the error for a certificate that was valid until `until`.
    pub(super) fn expired(until: SystemTime) -> Self {
        Self::Expired { until: httpdate::fmt_http_date(until) }
    }

    /// Returns a remedy, or `None` if the user has none.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { .. } => "make one with `andante ca init`, or say where it is with --data DIR".to_owned(),
            Self::Exists { .. } => "use that one, or move it away first".to_owned(),
            Self::Read { .. } => {
                "run andante as the owner of the file, or choose another folder: --data DIR".to_owned()
            }
            Self::Write { .. } => "choose a folder that andante can write to: --data DIR".to_owned(),
            Self::Exposed { path, .. } => format!("chmod 600 {}", path.display()),
            Self::Malformed { path, .. } => {
                format!("move {} away and make another CA with `andante ca init`", path.display())
            }
            Self::Expired { .. } => {
                "move its files away, make another with `andante ca init`, and let workers trust that".to_owned()
            }
            Self::Unbounded { .. } => "write a name, *.example.com, or an address".to_owned(),
            Self::Outside { .. } => "make another CA with that host among `andante ca init --only`".to_owned(),
            Self::NoRoots => "install them (ca-certificates), or name a file with SSL_CERT_FILE".to_owned(),
            Self::Host { .. } | Self::Making(_) | Self::Tls(_) => return None,
        })
    }
}
