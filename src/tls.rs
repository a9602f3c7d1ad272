//! TLS towards upstreams: trust, client certificates, and protocols. Opens no connection and decides no route.
//!
//! Upstreams are verified against the requested host, or the name that a rule gives. The system's trust store,
//! `upstream-ca` and the lists of `upstream-crl` decide. There is no way to switch that off.

mod date;
mod der;
mod fault;
mod files;
mod reasons;
#[cfg(test)]
mod tests;
mod trust;

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig,
    client::{Resumption, danger::ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{IpAddr, ServerName},
    sign::SingleCertAndKey,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OnceCell,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use self::{files::PemReader, trust::TrustRoots};
pub use self::{files::TlsError, reasons::failure};
use crate::{
    error::Error,
    policy::{Egress, Identity, Origin, Policy, Rules},
};

/// Upstreams whose sessions can be resumed, for each [`TlsClient`].
const SESSIONS: usize = 1024;

/// TLS settings towards upstreams, one value for the process.
pub struct Tls {
    /// Clients for rules with settings of their own; all other rules use the plain client.
    ways: Vec<TlsClient>,
    plain: TlsClient,
}

/// TLS with the settings of one rule. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient(Arc<Way>);

/// Protocol that the upstream agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, also for an upstream that agrees on nothing.
    Http1,
    /// HTTP/2.
    Http2,
}

struct Way {
    /// Settings of the rules.
    identity: Option<Identity>,
    sni: Option<String>,
    /// Parsed form of these settings.
    certificate: Option<Arc<SingleCertAndKey>>,
    name: Option<ServerName<'static>>,
    shared: Arc<ClientBasis>,
    /// Made at the first connection, because it needs the trust store.
    configs: OnceCell<Configs>,
}

struct Configs {
    both: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

/// Parts that all clients share.
struct ClientBasis {
    provider: Arc<CryptoProvider>,
    trust: TrustRoots,
}

// === impl Tls ===

impl Tls {
    /// Reads the files that `rules` name, the authorities (`ca`), and the lists of revoked certificates (`crl`). The
    /// system's trust store is read later, at the first connection: it is large.
    pub fn new(ca: &[PathBuf], crl: &[PathBuf], rules: &Rules) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let shared = Arc::new(ClientBasis { trust: TrustRoots::new(ca, crl, provider.clone())?, provider });
        let plain = TlsClient::new(&Egress::default(), &shared)?;
        let mut ways: Vec<TlsClient> = Vec::new();
        for egress in rules.iter().map(|policy| &policy.egress) {
            if !plain.is_for(egress) && !ways.iter().any(|way| way.is_for(egress)) {
                ways.push(TlsClient::new(egress, &shared)?);
            }
        }
        Ok(Self { ways, plain })
    }

    /// TLS client for upstreams under `policy`, whether a rule's or the default. The route keeps it.
    pub fn client(&self, policy: &Policy) -> TlsClient {
        let found = self.ways.iter().find(|way| way.is_for(&policy.egress));
        found.unwrap_or(&self.plain).clone()
    }

    /// TLS client for servers without a rule.
    pub fn plain(&self) -> TlsClient {
        self.plain.clone()
    }
}

// === impl TlsClient ===

impl TlsClient {
    fn new(egress: &Egress, shared: &Arc<ClientBasis>) -> Result<Self, TlsError> {
        let identity = |identity: &Identity| PemReader::identity(identity, &shared.provider);
        let certificate = egress.identity.as_ref().map(identity).transpose()?.map(Arc::new);
        let name = egress.sni.as_ref().map(|sni| server_name(sni).ok_or_else(|| TlsError::Name { name: sni.clone() }));
        Ok(Self(Arc::new(Way {
            identity: egress.identity.clone(),
            sni: egress.sni.clone(),
            certificate,
            name: name.transpose()?,
            shared: shared.clone(),
            configs: OnceCell::new(),
        })))
    }

    fn is_for(&self, egress: &Egress) -> bool {
        self.0.identity == egress.identity && self.0.sni == egress.sni
    }

    /// Performs a TLS handshake over `stream`, which leads to `origin`, and returns the agreed protocol. `http1_only`
    /// is for upgrades.
    ///
    /// Has no time limit: the caller sets one. An alert may also come later, with the first bytes that are read:
    /// [`failure`] tells it from other failures.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        origin: &Origin,
        stream: S,
        http1_only: bool,
    ) -> Result<(TlsStream<S>, Protocol), Error> {
        let configs = self.0.configs.get_or_try_init(|| self.0.configs(origin)).await?;
        let config = if http1_only { &configs.http1 } else { &configs.both };
        let name = self.0.name.clone().or_else(|| server_name(&origin.host));
        let name = name.ok_or_else(|| reasons::nameless(origin))?;
        let connected = TlsConnector::from(config.clone()).connect(name, stream).await;
        let stream = connected.map_err(|error| reasons::of_handshake(origin, error))?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok((stream, protocol))
    }
}

/// The name that is looked up in certificates.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => Some(ServerName::IpAddress(IpAddr::from(address))),
        Err(_) => ServerName::try_from(host.to_owned()).ok(),
    }
}

// === impl Way ===

impl Way {
    async fn configs(&self, origin: &Origin) -> Result<Configs, Error> {
        let verifier = self.shared.trust.verifier().await.map_err(|untrusted| untrusted.about(origin))?;
        let both =
            self.config(verifier).map_err(|error| Error::Tls { origin: origin.to_string(), source: error.into() })?;
        // The copies share stored sessions.
        let mut http1 = both.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Configs { both: Arc::new(both), http1: Arc::new(http1) })
    }

    fn config(&self, verifier: Arc<dyn ServerCertVerifier>) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(self.shared.provider.clone());
        // rustls calls every custom verifier "dangerous"; see `trust` for what this one adds.
        let builder =
            builder.with_safe_default_protocol_versions()?.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &self.certificate {
            Some(certificate) => builder.with_client_cert_resolver(certificate.clone()),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(config)
    }
}
