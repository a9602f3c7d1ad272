//! Reads certificates, keys and revocation lists from files. Reports every mistake in them at the start.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};

use crate::{error::BoxError, policy::Identity};

/// Reason why TLS cannot be set up as configured. Names the file, never its content.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file contains no item of the expected kind.
    #[error("{} holds no {what}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        what: &'static str,
    },
    /// A file contains an unusable item.
    #[error("{} holds a {what} that cannot be used", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        what: &'static str,
        /// The problem with the item.
        source: BoxError,
    },
    /// A client certificate and its key do not belong together.
    #[error("the key in {} is not the one of the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// A configured server name that no certificate could have.
    #[error("{name:?} is not a name that a certificate could have")]
    Name {
        /// The name as configured.
        name: String,
    },
}

/// Reads files.
pub(super) struct PemReader;

// === impl TlsError ===

impl TlsError {
    /// Advice on the next step.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path, and that this user may read the file",
            Self::Nothing { .. } => "name a PEM file: it has lines like \"-----BEGIN CERTIFICATE-----\"",
            Self::Unusable { .. } => "look at the file with `openssl x509`, `openssl crl` or `openssl pkey`",
            Self::OtherKey { .. } => {
                "name the key that belongs to the certificate by client-key; in a file with several certificates, the client's \
                 own comes first"
            }
            Self::Name { .. } => "write a host name, without scheme and port",
        }
    }
}

// === impl PemReader ===

impl PemReader {
    /// The certificates in a file.
    pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        Self::all(path, "certificate")
    }

    /// The lists of revoked certificates in a file.
    pub(super) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        Self::all(path, "revocation list")
    }

    /// A client certificate with its key.
    pub(super) fn identity(identity: &Identity, provider: &CryptoProvider) -> Result<SingleCertAndKey, TlsError> {
        const WHAT: &str = "private key";
        let certificates = Self::certificates(&identity.certificate)?;
        let path = || identity.key.clone();
        let key = match PrivateKeyDer::from_pem_slice(&read(&identity.key)?) {
            Ok(key) => key,
            Err(pem::Error::NoItemsFound) => return Err(TlsError::Nothing { path: path(), what: WHAT }),
            Err(error) => return Err(unusable(&identity.key, WHAT, error.into())),
        };
        match CertifiedKey::from_der(certificates, key, provider) {
            Ok(key) => Ok(key.into()),
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(TlsError::OtherKey { certificate: identity.certificate.clone(), key: path() })
            }
            Err(rustls::Error::InvalidCertificate(error)) => {
                Err(unusable(&identity.certificate, "certificate", rustls::Error::from(error).into()))
            }
            Err(error) => Err(unusable(&identity.key, WHAT, error.into())),
        }
    }

    fn all<T: PemObject + From<Vec<u8>>>(path: &Path, what: &'static str) -> Result<Vec<T>, TlsError> {
        let bytes = read(path)?;
        // DER, the usual form of published lists, begins a sequence; PEM is text.
        if bytes.first() == Some(&0x30) {
            return Ok(vec![bytes.into()]);
        }
        let found: Vec<T> =
            T::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|error| unusable(path, what, error.into()))?;
        if found.is_empty() { Err(TlsError::Nothing { path: path.to_owned(), what }) } else { Ok(found) }
    }
}

pub(super) fn unusable(path: &Path, what: &'static str, source: BoxError) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), what, source }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}
