//! Certificates of hosts: signed on demand, once per host, and kept in a bounded cache.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use lru::LruCache;
use parking_lot::Mutex;
use rcgen::{Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, Ticketer, kx_group},
    },
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::NoServerSessionStorage,
    sign::{CertifiedKey, SigningKey, SingleCertAndKey},
    version,
};

use super::{CaError, Certificate, params};

/// Protocol preference inside TLS, for workers that offer both. A worker that offers one protocol gets that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// HTTP/1.1 before HTTP/2.
    Http1First,
    /// HTTP/2 before HTTP/1.1.
    Http2First,
}

/// Signs certificates for hosts, and caches them.
pub(super) struct LeafCache {
    issuer: Issuer<'static, KeyPair>,
    /// Key of all hosts' certificates, different from the CA's. Creating a key per host would cost more than signing.
    /// And it would not help, because an attacker that reads one key of this process reads them all.
    key: KeyPair,
    signer: Arc<dyn SigningKey>,
    /// Configuration without certificate and ALPN. All hosts share it, so that sessions resume although a certificate
    /// was replaced.
    common: ServerConfig,
    kept: Mutex<LruCache<Box<str>, Leaf>>,
    minted: AtomicU64,
}

/// Configurations with the certificate of a host, one for each [`Alpn`].
struct Leaf {
    http1_first: Arc<ServerConfig>,
    http2_first: Arc<ServerConfig>,
    /// Time from which the next request for this host signs a new certificate.
    renew: SystemTime,
}

/// Maximum number of cached certificates, one per host. Each takes about 3 KiB, so the cache takes 3 MiB.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Remaining validity at which a certificate is renewed, long enough for a long connection.
const RENEW_BEFORE: Duration = params::days(30);
/// Minimum age at which a certificate is renewed. Without it, each connection would need a new certificate while the CA
/// itself is about to expire.
const RENEW_AT_MOST_EVERY: Duration = Duration::from_secs(3600);

// === impl LeafCache ===

impl LeafCache {
    /// Creates an empty cache of certificates signed by the CA with this certificate and `key`.
    pub(super) fn new(authority: &Certificate, key: KeyPair) -> Result<Self, CaError> {
        let issuer = Issuer::from_ca_cert_der(authority.der(), key).map_err(CaError::Making)?;
        let key = KeyPair::generate().map_err(CaError::Making)?;
        let provider = Arc::new(provider());
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signer = provider.key_provider.load_private_key(private).map_err(CaError::Tls)?;
        Ok(Self {
            common: common(provider, &signer)?,
            issuer,
            key,
            signer,
            kept: Mutex::new(LruCache::new(KEPT)),
            minted: AtomicU64::new(0),
        })
    }

    /// Returns the configuration for `host`, from the cache or with a new certificate.
    pub(super) fn server_config(
        &self,
        host: &str,
        alpn: Alpn,
        now: SystemTime,
        authority: &Certificate,
    ) -> Result<Arc<ServerConfig>, CaError> {
        let mut kept = self.kept.lock();
        if let Some(leaf) = kept.get(host).filter(|leaf| now < leaf.renew) {
            return Ok(leaf.config(alpn));
        }
        // Signing holds the lock, so that no name is signed twice. The 40 µs are less than the handshake that follows.
        let leaf = self.mint(host, now, authority)?;
        let config = leaf.config(alpn);
        kept.put(host.into(), leaf);
        Ok(config)
    }

    pub(super) fn minted(&self) -> u64 {
        self.minted.load(Ordering::Relaxed)
    }

    fn mint(&self, host: &str, now: SystemTime, authority: &Certificate) -> Result<Leaf, CaError> {
        if !authority.constraints().permit(host) {
            return Err(CaError::Outside { host: host.to_owned(), only: authority.constraints().to_string() });
        }
        if authority.not_after() <= now {
            return Err(CaError::expired(authority.not_after()));
        }
        let (params, until) = params::leaf(host, now, authority.not_after())?;
        let signed = params.signed_by(&self.key, &self.issuer).map_err(CaError::Making)?;
        self.minted.fetch_add(1, Ordering::Relaxed);
        // The chain lacks the CA's certificate: a client that trusts the CA has it already.
        let key = Arc::new(CertifiedKey::new(vec![signed.der().clone()], self.signer.clone()));
        let config = |protocols: &[&[u8]]| {
            let mut config = self.common.clone();
            config.cert_resolver = Arc::new(SingleCertAndKey::from(key.clone()));
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Leaf {
            http1_first: config(&[b"http/1.1", b"h2"]),
            http2_first: config(&[b"h2", b"http/1.1"]),
            renew: (until - RENEW_BEFORE).max(now + RENEW_AT_MOST_EVERY),
        })
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept.lock().len()
    }
}

// === impl Leaf ===

impl Leaf {
    fn config(&self, alpn: Alpn) -> Arc<ServerConfig> {
        match alpn {
            Alpn::Http1First => self.http1_first.clone(),
            Alpn::Http2First => self.http2_first.clone(),
        }
    }
}

/// Returns the configuration that all hosts share. The shared ticket key lets a session resume although the host's
/// certificate was evicted from the cache.
fn common(provider: Arc<CryptoProvider>, signer: &Arc<dyn SigningKey>) -> Result<ServerConfig, CaError> {
    let nobody = CertifiedKey::new(Vec::new(), signer.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(CaError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(nobody)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new().map_err(CaError::Tls)?;
    config.send_tls13_tickets = 1;
    // Early data can be replayed, but a request that takes a slot must not be.
    config.max_early_data_size = 0;
    Ok(config)
}

/// Returns the cryptography provider without post-quantum key exchange, which costs as much as the rest of a handshake.
/// Workers run on this machine or near it.
fn provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        ..aws_lc_rs::default_provider()
    }
}
