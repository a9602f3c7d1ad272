//! The certificate authority (CA) that lets andante speak for the hosts it intercepts.
//!
//! A holder of its key can impersonate any host towards every client that trusts the CA. So the key stays in this
//! process and in one file of mode 0600, and is never logged. Hosts' certificates have a key of their own. Knows
//! nothing of connections.

mod bundle;
mod certificate;
mod constraints;
mod digest;
mod error;
mod files;
mod leaf_cache;
mod params;
mod pkcs12;

use std::{fmt, path::Path, sync::Arc, time::SystemTime};

use rustls::ServerConfig;

pub(crate) use self::digest::sha256;
pub use self::{
    bundle::{Bundle, bundle_name, sources},
    certificate::{CERTIFICATE, Certificate},
    constraints::Constraints,
    error::CaError,
    files::{KEY, default_dir, replace},
    leaf_cache::Alpn,
};
use self::{files::StoredCa, leaf_cache::LeafCache};
use crate::policy::HostPattern;

/// A CA with its key, and the certificates that it has signed lately.
pub struct Ca {
    certificate: Certificate,
    leaf_cache: LeafCache,
}

// === impl Ca ===

impl Ca {
    /// A CA that lives in memory only, for hosts that match `constraints` (any host, if there are none).
    ///
    /// # Errors
    /// If a pattern cannot be a constraint, or there is no randomness.
    pub fn generate(constraints: &[HostPattern], now: SystemTime) -> Result<Self, CaError> {
        Self::assemble(StoredCa::generate(&Constraints::new(constraints)?, now)?)
    }

    /// The CA in `dir`.
    ///
    /// # Errors
    /// If there is none ([`CaError::Missing`]), others can read its key, it has expired, or its files are not in order.
    pub fn open(dir: &Path, now: SystemTime) -> Result<Self, CaError> {
        Self::assemble(StoredCa::read(dir, now)?)
    }

    /// The CA in `dir`; a missing one is created, for any host. Processes that start at the same time get the same CA.
    ///
    /// # Errors
    /// As [`Ca::open`], and if `dir` cannot be written to.
    pub fn find_or_create(dir: &Path, now: SystemTime) -> Result<Self, CaError> {
        let stored = match StoredCa::read(dir, now) {
            Err(CaError::Missing { .. }) => {
                let new = StoredCa::generate(&Constraints::default(), now)?;
                match new.write(dir) {
                    Ok(()) => new,
                    // Another process has created the CA first.
                    Err(CaError::Exists { .. }) => StoredCa::read(dir, now)?,
                    Err(error) => return Err(error),
                }
            }
            found => found?,
        };
        // An existing CA is published too: its maker may not have done so yet, or may have died before.
        stored.publish(dir)?;
        Self::assemble(stored)
    }

    /// A new CA in `dir`, for hosts that match `constraints` (any host, if there are none).
    ///
    /// # Errors
    /// If there is one ([`CaError::Exists`]), if a pattern cannot be a constraint, or `dir` cannot be written to.
    pub fn create(dir: &Path, constraints: &[HostPattern], now: SystemTime) -> Result<Self, CaError> {
        let stored = StoredCa::generate(&Constraints::new(constraints)?, now)?;
        stored.write(dir)?;
        stored.publish(dir)?;
        Self::assemble(stored)
    }

    fn assemble(stored: StoredCa) -> Result<Self, CaError> {
        let StoredCa { key, certificate } = stored;
        Ok(Self { leaf_cache: LeafCache::new(&certificate, key)?, certificate })
    }

    /// The public part: its name, its expiry, and its hosts.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The certificate that workers must trust.
    pub fn certificate_pem(&self) -> &str {
        self.certificate.pem()
    }

    /// SHA-256 of the certificate: `AA:BB:…`.
    pub fn fingerprint(&self) -> String {
        self.certificate.fingerprint()
    }

    /// TLS configuration for acting as `host` towards a worker. `host` has its canonical spelling, an IPv6 address
    /// without brackets. The certificate is made on the first call and kept, as long as no more than a thousand others
    /// are asked for.
    ///
    /// # Errors
    /// If `host` cannot be in a certificate, or the CA may not sign for it.
    pub fn server_config(&self, host: &str, alpn: Alpn, now: SystemTime) -> Result<Arc<ServerConfig>, CaError> {
        self.leaf_cache.server_config(host, alpn, now, &self.certificate)
    }

    /// Number of signed certificates.
    pub fn minted(&self) -> u64 {
        self.leaf_cache.minted()
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("subject", &self.certificate.subject()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
