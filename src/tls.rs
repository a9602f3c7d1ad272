//! TLS towards upstreams: whom to believe, who we are, which protocol. Opens no connection and decides no route.
//!
//! Upstreams are verified against the host that was asked for, or the name that a rule gives: by the system's trust
//! store and `upstream-ca`, with the lists of `upstream-crl`. There is no way to switch that off.

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

/// How many upstreams' sessions can be resumed, for each way of [`TlsClient`].
const SESSIONS: usize = 1024;

/// All that is known about TLS towards upstreams. One for a process.
pub struct Tls {
    /// The ways that rules ask for, besides the plain one.
    ways: Vec<TlsClient>,
    plain: TlsClient,
}

/// Speaks TLS the way that one rule says. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient(Arc<Way>);

/// Which protocol the upstream agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or an upstream that agrees to nothing.
    Http1,
    /// HTTP/2.
    Http2,
}

struct Way {
    /// By what rules ask for it.
    identity: Option<Identity>,
    sni: Option<String>,
    /// The same, read.
    certificate: Option<Arc<SingleCertAndKey>>,
    name: Option<ServerName<'static>>,
    shared: Arc<ClientBasis>,
    /// Made at the first connection, for it needs the trust store.
    configs: OnceCell<Configs>,
}

struct Configs {
    both: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

/// What all ways have in common.
struct ClientBasis {
    provider: Arc<CryptoProvider>,
    trust: TrustRoots,
}

// === impl Tls ===

impl Tls {
    /// Reads what `rules` name, and the files with authorities (`ca`) and with lists of revoked certificates (`crl`).
    /// The system's trust store is read later, at the first connection: it is large.
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

    /// How upstreams under `policy` are spoken to, which is a rule's, or none's. To be remembered by the route.
    pub fn client(&self, policy: &Policy) -> TlsClient {
        let found = self.ways.iter().find(|way| way.is_for(&policy.egress));
        found.unwrap_or(&self.plain).clone()
    }

    /// How a server is spoken to that no rule is for.
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

    /// Speaks TLS over `stream`, which leads to `origin`, and says what was agreed on. `http1_only` is for upgrades.
    ///
    /// Not bounded in time: the caller knows how long it may take. An alert may also come later, with the first bytes
    /// that are read: [`failure`] tells it from other failures.
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

/// The name that certificates are looked through for.
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
        // They share what is known about sessions.
        let mut http1 = both.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Configs { both: Arc::new(both), http1: Arc::new(http1) })
    }

    fn config(&self, verifier: Arc<dyn ServerCertVerifier>) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(self.shared.provider.clone());
        // "Dangerous" is the door to any verifier of one's own; see `trust` for what ours adds.
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
