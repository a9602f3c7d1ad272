//! The certificates of hosts: signed on demand, cached up to a bound, and signed once per name.

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

/// Which protocol a worker that speaks both gets inside TLS. A worker that speaks one gets that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// HTTP/1.1, else HTTP/2.
    Http1First,
    /// HTTP/2, else HTTP/1.1.
    Http2First,
}

/// Signs certificates for hosts, and caches them.
pub(super) struct LeafCache {
    issuer: Issuer<'static, KeyPair>,
    /// One key for all hosts: making a key costs more than signing, and an attacker who reads one of this process' keys
    /// reads them all. Not the CA's.
    key: KeyPair,
    signer: Arc<dyn SigningKey>,
    /// Everything but the certificate. All hosts share it, so that sessions resume although a certificate was replaced.
    common: ServerConfig,
    kept: Mutex<LruCache<Box<str>, Leaf>>,
    minted: AtomicU64,
}

/// A host's certificate, ready for either answer to ALPN.
struct Leaf {
    http1_first: Arc<ServerConfig>,
    http2_first: Arc<ServerConfig>,
    /// From then on the next request for it replaces it.
    renew: SystemTime,
}

/// How many hosts' certificates are kept. Some 3 KiB each.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// The remaining validity of a certificate should outlast a long connection.
const RENEW_BEFORE: Duration = params::days(30);
/// But while the CA itself is about to expire, not every connection should need a new certificate.
const RENEW_AT_MOST_EVERY: Duration = Duration::from_secs(3600);

// === impl LeafCache ===

impl LeafCache {
    /// Signs with the CA's `key`.
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

    /// The configuration for `host`, from the cache or new.
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
        // Under the lock, so that a name is not minted twice; it takes 40 µs, less than the handshake that follows.
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
        // The leaf alone: a client that trusts the CA has the CA's certificate already.
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

/// What all hosts share. Tickets too: so a session is resumed although the host's certificate has left the cache.
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
    // Early data can be replayed, and a request that costs a slot must not be.
    config.max_early_data_size = 0;
    Ok(config)
}

/// No post-quantum key exchange: workers are on this machine or beside it, and it costs as much as all the rest.
fn provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        ..aws_lc_rs::default_provider()
    }
}
