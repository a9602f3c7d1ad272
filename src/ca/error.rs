//! What can go wrong with a CA, and what to do then.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Why there is no CA, or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// There is no CA in the folder.
    #[error("there is no CA in {}", dir.display())]
    Missing {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// There is a CA already; andante does not overwrite it.
    #[error("there is a CA already, {}", path.display())]
    Exists {
        /// Its key.
        path: PathBuf,
    },
    /// A file that is there cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder cannot be made.
    #[error("could not write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read, or change, the key.
    #[error("the CA's key {} is open to others: its mode is {mode:04o}", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file holds something else.
    #[error("{} does not hold a CA: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The certificate has expired.
    #[error("the CA has expired on {until}")]
    Expired {
        /// When.
        until: String,
    },
    /// Not a name or an address.
    #[error("a CA cannot be bound to {pattern}")]
    Unbounded {
        /// As it was written.
        pattern: String,
    },
    /// Not a DNS name either.
    #[error("no certificate can name the host {host:?}")]
    Host {
        /// As it was asked for.
        host: String,
    },
    /// Workers would refuse such a certificate.
    #[error("the CA may not speak for {host}, only for {only}")]
    Outside {
        /// As it was asked for.
        host: String,
        /// What it is bound to.
        only: String,
    },
    /// The library could not.
    #[error("could not make a certificate")]
    Making(#[source] rcgen::Error),
    /// The library could not.
    #[error("could not make the keys for TLS")]
    Tls(#[source] rustls::Error),
    /// A bundle of our CA alone would make clients refuse all other hosts.
    #[error("this machine has no root certificates")]
    NoRoots,
}

// === impl CaError ===

impl CaError {
    /// Why a file of the CA in `dir` could not be read.
    pub(super) fn reading(dir: &Path, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { dir: dir.to_owned() },
            _ => Self::Read { path: path.to_owned(), source },
        }
    }

    /// It was good `until` then.
    pub(super) fn expired(until: SystemTime) -> Self {
        Self::Expired { until: httpdate::fmt_http_date(until) }
    }

    /// What to do next.
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
