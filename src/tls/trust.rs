//! Trust in certificates of upstreams.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, TrustAnchor, UnixTime},
    server::ParsedCertificate,
};
use tokio::{sync::OnceCell, task};
use tracing::{debug, warn};

use super::{
    der,
    fault::{CertificateFault, Chain},
    files::{PemReader, TlsError, unusable},
};
use crate::{
    error::{Error, is_exhaustion},
    policy::Origin,
};

/// The system's trust store, and the certificates that are configured besides it.
pub(super) struct TrustRoots {
    /// The certificates of `upstream-ca`.
    named: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    provider: Arc<CryptoProvider>,
    verifier: OnceCell<Arc<dyn ServerCertVerifier>>,
}

/// rustls' verifier with two additions. The verifier's errors say more about unknown issuers. A certificate in
/// `upstream-ca` is accepted as a server's own although it is also marked as an authority: `openssl req -x509` makes
/// such certificates, and other clients accept them.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// Reason why a certificate is not trusted, where rustls has no words for it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untrusted {
    #[error("cannot be verified: this machine trusts no authority at all")]
    NoAuthority,
    #[error("cannot be verified: there is no file descriptor left to read whom this machine trusts")]
    NoDescriptor,
    #[error("is signed by itself, and is none that is trusted here")]
    SelfSigned,
    #[error("is signed by {0:?}, which is not trusted here")]
    Unknown(String),
    #[error("is that of an authority (CA:TRUE), and is none that is trusted here")]
    Authority,
    #[error(transparent)]
    CertificateFault(CertificateFault),
}

// === impl TrustRoots ===

impl TrustRoots {
    pub(super) fn new(ca: &[PathBuf], crl: &[PathBuf], provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let (mut named, mut revoked) = (Vec::new(), Vec::new());
        for path in ca {
            for certificate in PemReader::certificates(path)? {
                let added = RootCertStore::empty().add(certificate.clone());
                added.map_err(|error| unusable(path, "certificate", error.into()))?;
                named.push(certificate);
            }
        }
        for path in crl {
            let lists = PemReader::revocations(path)?;
            check_lists(&lists, &provider).map_err(|error| unusable(path, "revocation list", error.into()))?;
            revoked.extend(lists);
        }
        Ok(Self { named, revoked, provider, verifier: OnceCell::new() })
    }

    /// The verifier; the first call reads the system's trust store.
    pub(super) async fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, Untrusted> {
        self.verifier.get_or_try_init(|| self.verify()).await.cloned()
    }

    async fn verify(&self) -> Result<Arc<dyn ServerCertVerifier>, Untrusted> {
        let read = task::spawn_blocking(system_roots).await;
        let mut roots = read.unwrap_or_else(|_| Ok(RootCertStore::empty()))?;
        roots.add_parsable_certificates(self.named.iter().cloned());
        let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
            .with_crls(self.revoked.iter().cloned())
            // Lists cover some authorities only; other authorities have published none here.
            .allow_unknown_revocation_status()
            .build();
        // The lists were checked before, so authorities are missing.
        let inner = inner.map_err(|_| Untrusted::NoAuthority)?;
        Ok(Arc::new(Verifier { inner, named: self.named.clone(), revoked: self.revoked.clone() }))
    }
}

/// Parses `lists` as a verifier does, with an authority that signs nothing.
fn check_lists(
    lists: &[CertificateRevocationListDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<(), rustls::client::VerifierBuilderError> {
    let nobody =
        TrustAnchor { subject: Vec::new().into(), subject_public_key_info: Vec::new().into(), name_constraints: None };
    let roots = RootCertStore { roots: vec![nobody] };
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
    builder.with_crls(lists.iter().cloned()).build().map(|_| ())
}

fn system_roots() -> Result<RootCertStore, Untrusted> {
    let found = rustls_native_certs::load_native_certs();
    // The result is kept, so half a store would stay until the end of the process.
    if found.errors.iter().any(|error| is_exhaustion(error)) {
        return Err(Untrusted::NoDescriptor);
    }
    for error in found.errors {
        warn!(%error, "could not read all of the system's trust store");
    }
    let mut roots = RootCertStore::empty();
    let (usable, unusable) = roots.add_parsable_certificates(found.certs);
    debug!(usable, unusable, "read the system's trust store");
    Ok(roots)
}

// === impl Verifier ===

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let outcome = self.inner.verify_server_cert(certificate, intermediates, name, ocsp, now);
        let untrusted = match &outcome {
            Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                let last = intermediates.last().unwrap_or(certificate);
                match der::signed_by(certificate) {
                    None => Untrusted::SelfSigned,
                    Some(_) => Untrusted::Unknown(der::signed_by(last).unwrap_or_else(|| der::subject(last))),
                }
            }
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(other))) if is_authority(other) => {
                // The dates have been checked by now; the name has not.
                if self.named.contains(certificate) {
                    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                    return Ok(ServerCertVerified::assertion());
                }
                if der::signed_by(certificate).is_none() { Untrusted::SelfSigned } else { Untrusted::Authority }
            }
            Err(rustls::Error::InvalidCertificate(error)) => {
                let chain = Chain::read(certificate, intermediates, &self.named);
                match chain.and_then(|chain| chain.explain(error, name, &self.revoked, now)) {
                    Some(fault) => Untrusted::CertificateFault(fault),
                    None => return outcome,
                }
            }
            _ => return outcome,
        };
        Err(untrusted.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        explained(self.inner.verify_tls12_signature(message, certificate, signed), certificate)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        explained(self.inner.verify_tls13_signature(message, certificate, signed), certificate)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Explains a wrong signature of the handshake, if the reason is known.
fn explained<T>(outcome: Result<T, rustls::Error>, certificate: &CertificateDer<'_>) -> Result<T, rustls::Error> {
    let wrong = matches!(outcome, Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)));
    match Chain::read(certificate, &[], &[]).filter(|_| wrong).and_then(|chain| chain.explain_handshake()) {
        Some(fault) => Err(Untrusted::CertificateFault(fault).into()),
        None => outcome,
    }
}

/// Returns whether this is webpki's error about `CA:TRUE` in a server's certificate. rustls keeps its type private.
fn is_authority(error: &OtherError) -> bool {
    error.0.to_string() == "CaUsedAsEndEntity"
}

// === impl Untrusted ===

impl From<Untrusted> for rustls::Error {
    fn from(untrusted: Untrusted) -> Self {
        CertificateError::Other(OtherError(Arc::new(untrusted))).into()
    }
}

impl Untrusted {
    pub(super) fn about(&self, origin: &Origin) -> Error {
        if matches!(self, Self::NoDescriptor) {
            return Error::NoDescriptor { origin: origin.to_string() };
        }
        Error::Certificate { origin: origin.to_string(), reason: self.to_string(), hint: self.hint() }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::NoAuthority | Self::NoDescriptor => {
                "install the system's trust store (the package ca-certificates), or add an authority with --upstream-ca FILE"
            }
            Self::SelfSigned | Self::Authority => {
                "if it is the one you expect, add it with --upstream-ca FILE (`upstream-ca`)"
            }
            Self::CertificateFault(fault) => fault.hint,
            Self::Unknown(_) => {
                "add its CA with --upstream-ca FILE (`upstream-ca`), or have the upstream send its intermediate certificates"
            }
        }
    }
}
