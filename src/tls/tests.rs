//! TLS with upstreams of all kinds, over real sockets.

mod believing;
mod chains;
mod pki;
mod speaking;

use std::{io, path::PathBuf, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WantsServerCert,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use self::pki::{Authority, Pem};
use super::*;
use crate::policy::Scheme;

/// A TLS server: accepts connections, sends `hi`, and waits for their end.
struct Upstream {
    port: u16,
    task: JoinHandle<()>,
}

impl Upstream {
    /// A server with a certificate and its key, and default settings.
    async fn start(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self::with(|builder| builder.with_single_cert(chain, key).unwrap()).await
    }

    async fn with(config: impl FnOnce(rustls::ConfigBuilder<ServerConfig, WantsServerCert>) -> ServerConfig) -> Self {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let mut config = config(builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self::run(config).await
    }

    async fn run(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            loop {
                let accepting = acceptor.accept(listener.accept().await.unwrap().0);
                tokio::spawn(async move {
                    let Ok(mut stream) = accepting.await else { return };
                    let _ = stream.write_all(b"hi").await;
                    let _ = stream.read(&mut [0]).await;
                });
            }
        });
        Self { port, task }
    }

    /// Connects to the server by the name `host`.
    async fn reach(&self, client: &TlsClient, host: &str) -> Result<(TlsStream<TcpStream>, Protocol), Error> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (origin, patience) = (origin(host), std::time::Duration::from_secs(10));
        tokio::time::timeout(patience, client.connect(&origin, stream, false)).await.expect("it ends")
    }

    /// Connects, and returns the description of the failure and the advice.
    async fn refusal(&self, tls: &Tls, host: &str) -> (String, &'static str) {
        let error = self.reach(&tls.plain, host).await.unwrap_err();
        assert_eq!((error.status().as_u16(), error.proxy_status()), (502, "tls_certificate_error"), "{error}");
        assert_eq!(error.blame(), crate::error::Blame::Upstream);
        (error.to_string(), error.hint())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn origin(host: &str) -> Origin {
    Origin { scheme: Scheme::Https, host: host.into(), port: 443 }
}

/// TLS that trusts `authority`, besides the system's roots.
fn believing(authority: &Authority) -> Tls {
    let file = Pem::file(authority.pem());
    Tls::new(&[file.path()], &[], &Rules::default()).unwrap()
}
