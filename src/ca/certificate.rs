//! Public part of a CA, which workers may see. Reading it does not need the key.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::certificate::X509Certificate;

use super::{CaError, Constraints, digest::sha256};

/// Name of the file with the certificate that workers trust.
pub const CERTIFICATE: &str = "ca.pem";

/// A CA's certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: CertificateDer<'static>,
    pem: String,
    subject: String,
    not_before: SystemTime,
    not_after: SystemTime,
    constraints: Constraints,
    public_key: Vec<u8>,
}

// === impl Certificate ===

impl Certificate {
    /// Reads the certificate of the CA in `dir`. Does not read the key.
    ///
    /// # Errors
    /// If the file is missing ([`CaError::Missing`]), unreadable, or not a CA's certificate.
    pub fn open(dir: &Path) -> Result<Self, CaError> {
        let path = dir.join(CERTIFICATE);
        let bytes = fs::read(&path).map_err(|error| CaError::reading(dir, &path, error))?;
        Self::parse(&bytes).map_err(|what| CaError::Malformed { path, what })
    }

    /// Parses the first certificate of a PEM file. Fails if it is not a CA's.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        let der = CertificateDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
        Self::from_der(der)
    }

    pub(super) fn from_der(der: CertificateDer<'static>) -> Result<Self, String> {
        let (_, x509) = x509_parser::parse_x509_certificate(&der).map_err(|error| error.to_string())?;
        if !x509.is_ca() {
            return Err("its certificate is not that of a CA".to_owned());
        }
        let (subject, constraints, public_key) =
            (common_name(&x509), constraints(&x509)?, x509.public_key().raw.to_vec());
        let [not_before, not_after] =
            [x509.validity().not_before, x509.validity().not_after].map(|at| time(at.timestamp()));
        Ok(Self { pem: encode(&der), der, subject, not_before, not_after, constraints, public_key })
    }

    /// Certificate as PEM, the format of files.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Certificate as DER, the format of TLS.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Common name of the subject, such as `andante CA 1a2b3c4d`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// SHA-256 of the DER form, written as `AA:BB:…`.
    pub fn fingerprint(&self) -> String {
        sha256(&self.der).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    /// Start of the validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// End of the validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Hosts that the CA may sign for.
    pub fn constraints(&self) -> &Constraints {
        &self.constraints
    }

    /// Public key (SubjectPublicKeyInfo, DER).
    pub(super) fn public_key(&self) -> &[u8] {
        &self.public_key
    }
}

fn common_name(x509: &X509Certificate<'_>) -> String {
    let name = x509.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.map_or_else(|| x509.subject().to_string(), str::to_owned)
}

fn constraints(x509: &X509Certificate<'_>) -> Result<Constraints, String> {
    let extension = x509.name_constraints().map_err(|error| error.to_string())?;
    let permitted = extension.and_then(|extension| extension.value.permitted_subtrees.as_deref());
    Ok(Constraints::parsed(permitted.unwrap_or_default()))
}

/// Encodes a certificate as PEM.
pub(super) fn encode(der: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der), lines)
}

fn time(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
