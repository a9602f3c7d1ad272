//! Authorities that sign for upstreams in tests, and their certificates: good ones, and bad ones of every kind.

use std::io::Write as _;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::NamedTempFile;

use super::private_key;

/// A certificate authority, whose certificate is in a file.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: NamedTempFile,
}

/// A certificate with its key.
pub(crate) struct Leaf {
    certificate: CertificateDer<'static>,
    key: String,
}

// === impl Authority ===

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("{name} authority of tests"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = written(&issuer.pem());
        Self { issuer, file }
    }

    /// Where its certificate is.
    pub(crate) fn file(&self) -> &str {
        self.file.path().to_str().unwrap()
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// A good certificate for `names`, which may be addresses.
    pub(crate) fn leaf(&self, names: &[&str]) -> Leaf {
        self.sign(names, |_| {})
    }

    /// A certificate for `names`, spoiled by `how`.
    pub(crate) fn sign(&self, names: &[&str], how: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let (params, key) = params(names, how);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { certificate: certificate.der().clone(), key: key.serialize_pem() }
    }

    /// A file that says that the certificate with the serial number `revoked` is not to be believed any more.
    pub(crate) fn revoking(&self, revoked: u64) -> NamedTempFile {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(revoked),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        written(&list.signed_by(&self.issuer).unwrap().pem().unwrap())
    }
}

// === impl Leaf ===

impl Leaf {
    /// A self-signed certificate.
    pub(crate) fn self_signed(names: &[&str]) -> Self {
        let (params, key) = params(names, |_| {});
        Self { certificate: params.self_signed(&key).unwrap().der().clone(), key: key.serialize_pem() }
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        private_key(&self.key)
    }

    /// Both in one file, as `client-cert` reads it.
    pub(crate) fn file(&self) -> NamedTempFile {
        let certificate = pem::encode(&pem::Pem::new("CERTIFICATE", self.certificate.to_vec()));
        written(&format!("{certificate}{}", self.key))
    }
}

fn params(names: &[&str], how: impl FnOnce(&mut CertificateParams)) -> (CertificateParams, KeyPair) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, "an upstream of tests");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    how(&mut params);
    (params, KeyPair::generate().unwrap())
}

fn written(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".pem").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}
