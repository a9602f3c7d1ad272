//! Authorities and certificates, made for a test.

use std::{io::Write, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::NamedTempFile;

pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, and the certificates above it.
pub(super) struct TestLeaf {
    pub(super) certificate: rcgen::Certificate,
    pub(super) key: KeyPair,
}

/// A temporary file.
pub(super) struct Pem(NamedTempFile);

// === impl Authority ===

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(authority(name), KeyPair::generate().unwrap()).unwrap())
    }

    /// An authority below this one, with parameters that `how` spoils.
    pub(super) fn below(&self, name: &str, how: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = authority(name);
        how(&mut params);
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A certificate for `names`.
    pub(super) fn sign(&self, names: &[&str]) -> TestLeaf {
        self.sign_as(params(names))
    }

    pub(super) fn sign_as(&self, params: CertificateParams) -> TestLeaf {
        let key = KeyPair::generate().unwrap();
        TestLeaf { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }

    /// A revocation list with this serial number.
    pub(super) fn revoke(&self, serial: u64) -> rcgen::CertificateRevocationList {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2034, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap()
    }
}

/// Parameters for the certificate of an authority.
fn authority(name: &str) -> CertificateParams {
    let mut params = params(&[]);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Parameters for a good certificate for `names`.
pub(super) fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

// === impl TestLeaf ===

impl TestLeaf {
    pub(super) fn self_signed(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.der().clone()]
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).unwrap()
    }
}

// === impl Pem ===

impl Pem {
    pub(super) fn file(text: impl AsRef<[u8]>) -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_ref()).unwrap();
        Self(file)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}
