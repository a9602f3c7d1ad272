//! Certificates, keys and lists of the revoked, out of files. Every mistake in them is told at the start.

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

/// Why TLS cannot be set up as it is configured. Names the file, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has nothing of the kind in it that it is named for.
    #[error("{} holds no {what}", path.display())]
    Nothing {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// A file has something in it that cannot be used.
    #[error("{} holds a {what} that cannot be used", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What is wrong with it.
        source: BoxError,
    },
    /// A client certificate and its key do not belong together.
    #[error("the key in {} is not the one of the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// Where the certificate is.
        certificate: PathBuf,
        /// Where the key is.
        key: PathBuf,
    },
    /// A name to ask for that no certificate could have.
    #[error("{name:?} is not a name that a certificate could have")]
    Name {
        /// As it is configured.
        name: String,
    },
}

/// Reads files.
pub(super) struct PemReader;

// === impl TlsError ===

impl TlsError {
    /// What to do next.
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
        // DER, which is how lists are published: a sequence, where PEM is text.
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
