//! SHA-256 of certificates, keys, and other data that needs an identifier.

use rustls::{SupportedCipherSuite, crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256};

/// Computes SHA-256 with the library that TLS uses anyway, which saves a dependency.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        unreachable!("the suite is one of TLS 1.3")
    };
    let digest = suite.common.hash_provider.hash(bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
