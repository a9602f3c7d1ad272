//! TLS on both sides of andante: certificates for upstreams, and workers that come through CONNECT.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    path::Path,
    sync::{Arc, LazyLock},
};

use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    client::WebPkiServerVerifier,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::{Acceptor, WebPkiClientVerifier},
    version,
};
use tempfile::TempDir;

use super::{Andante, Client, Message, PATIENCE, RawConnection, message::Stream};

mod authority;
mod blind;

pub(crate) use self::authority::{Authority, Leaf};
use self::blind::Blind;

/// Authority that andante trusts, where a test does not say otherwise.
pub(crate) static TRUSTED: LazyLock<Authority> = LazyLock::new(|| Authority::new("trusted"));

/// Server name and ALPN of a handshake, as an upstream received them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) sni: Option<String>,
    pub(crate) alpn: Vec<String>,
}

/// How an upstream speaks TLS.
#[derive(Clone)]
pub(crate) struct Server(pub(super) Arc<ServerConfig>);

/// TLS settings of a worker: HTTP/1.1 with a name in the handshake by default.
#[derive(Clone)]
pub(crate) struct Worker {
    /// Whom it trusts.
    pub(crate) roots: Vec<CertificateDer<'static>>,
    /// Which protocols it names.
    pub(crate) alpn: &'static [&'static str],
    /// The name in the handshake, and whether it is sent.
    pub(crate) name: Option<String>,
    pub(crate) sni: bool,
    /// Takes any certificate.
    pub(crate) blind: bool,
    /// Speaks TLS 1.2 alone.
    pub(crate) old: bool,
}

/// andante, and the folder in which it keeps its CA.
pub(crate) struct Interceptor {
    pub(crate) andante: Andante,
    data: TempDir,
}

/// A TLS connection as one side sees it.
struct Side {
    tls: Connection,
    socket: TcpStream,
}

// === impl Server ===

impl Server {
    /// Shows `leaf`, and agrees to the first of `alpn` that is asked for.
    pub(crate) fn new(leaf: &Leaf, alpn: &[&str]) -> Self {
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        Self::assemble(config.with_no_client_auth().with_single_cert(leaf.chain(), leaf.key()).unwrap(), alpn)
    }

    /// A server only for clients that show a certificate of `clients`.
    pub(crate) fn for_clients_of(leaf: &Leaf, clients: &Authority) -> Self {
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let roots = Arc::new(store(&[clients.certificate()]));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build().unwrap();
        let config = config.with_client_cert_verifier(verifier).with_single_cert(leaf.chain(), leaf.key()).unwrap();
        Self::assemble(config, &["http/1.1"])
    }

    fn assemble(mut config: ServerConfig, alpn: &[&str]) -> Self {
        config.alpn_protocols = protocols(alpn);
        Self(Arc::new(config))
    }

    /// This side of a connection by `socket`, which shakes hands when it is first used.
    pub(crate) fn over(&self, socket: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
        StreamOwned::new(ServerConnection::new(self.0.clone()).unwrap(), socket)
    }

    /// Answers a handshake. Returns the client's hello, and the result.
    pub(crate) fn accept(&self, mut socket: TcpStream) -> (Option<Hello>, io::Result<RawConnection>) {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            match acceptor.read_tls(&mut socket) {
                Ok(0) => return (None, Err(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return (None, Err(error)),
                Ok(_) => {}
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let _ = alert.write_all(&mut socket);
                    return (None, Err(io::Error::other(error)));
                }
            }
        };
        let hello = accepted.client_hello();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let hello = Hello {
            sni: hello.server_name().map(str::to_owned),
            alpn: hello.alpn().into_iter().flatten().map(text).collect(),
        };
        let connection = match accepted.into_connection(self.0.clone()) {
            Ok(connection) => connection,
            Err((error, mut alert)) => {
                let _ = alert.write_all(&mut socket);
                return (Some(hello), Err(io::Error::other(error)));
            }
        };
        let mut side = Side { tls: connection.into(), socket };
        let shaken = side.tls.complete_io(&mut side.socket);
        (Some(hello), shaken.map(|_| RawConnection::over(Box::new(side))))
    }
}

// === impl Worker ===

impl Worker {
    /// Trusts the CA in `file`, and believes to talk to the host of `target`.
    pub(crate) fn trusting(file: &Path, target: &str) -> Self {
        let roots = CertificateDer::pem_file_iter(file).unwrap().map(|root| root.unwrap()).collect();
        let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self { roots, alpn: &["http/1.1"], name: Some(host.to_owned()), sni: true, blind: false, old: false }
    }

    pub(super) fn config(&self) -> ClientConfig {
        let versions: &[_] = if self.old { &[&version::TLS12] } else { &[&version::TLS13, &version::TLS12] };
        let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store(&self.roots)), provider());
        let mut config = builder.with_webpki_verifier(verifier.build().unwrap()).with_no_client_auth();
        if self.blind {
            config.dangerous().set_certificate_verifier(Arc::new(Blind));
        }
        config.alpn_protocols = protocols(self.alpn);
        config.enable_sni = self.sni;
        config
    }

    /// The first thing that it says.
    pub(crate) fn hello(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.connection().write_tls(&mut bytes).unwrap();
        bytes
    }

    fn connection(&self) -> ClientConnection {
        let name = ServerName::try_from(self.name.clone().expect("a name")).unwrap();
        ClientConnection::new(Arc::new(self.config()), name).unwrap()
    }

    /// Shakes hands over `client`, and writes each piece of its messages by `write`.
    pub(crate) fn shake(&self, client: Client, hello: impl Fn(&mut TcpStream, &[u8])) -> io::Result<Client> {
        let mut connection = self.connection();
        let mut socket = client.into_socket();
        let mut first = Vec::new();
        connection.write_tls(&mut first)?;
        hello(&mut socket, &first);
        let mut side = Side { tls: connection.into(), socket };
        side.tls.complete_io(&mut side.socket)?;
        let leaf = side.tls.peer_certificates().and_then(|chain| chain.first()).map(|leaf| leaf.to_vec());
        let alpn = side.tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Client::secure(RawConnection::over(Box::new(side)), leaf.unwrap_or_default(), alpn))
    }

    /// Shakes hands over `client`.
    pub(crate) fn secure(&self, client: Client) -> io::Result<Client> {
        self.shake(client, |socket, hello| _ = socket.write_all(hello))
    }
}

// === impl Interceptor ===

impl Interceptor {
    /// Starts `andante serve` with `args`, a CA of its own, and upstreams that [`TRUSTED`] has signed for.
    pub(crate) fn serve(args: &[&str]) -> Self {
        Self::with_config("", args)
    }

    /// Starts an intercepting andante with the configuration file `toml`.
    pub(crate) fn with_config(toml: &str, args: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let own = ["--data", data.path().to_str().unwrap(), "--upstream-ca", TRUSTED.file()];
        let andante = Andante::with_config_and(toml, &[&own, args].concat());
        Self { andante, data }
    }

    /// Starts an intercepting andante with the configuration file `toml` and the log level `level`.
    pub(crate) fn logging(level: &str, toml: &str, args: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let own = ["--data", data.path().to_str().unwrap(), "--upstream-ca", TRUSTED.file()];
        let andante = Andante::logging_with_config(level, toml, &[&own, args].concat());
        Self { andante, data }
    }

    /// Where it keeps its CA.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// A worker that trusts andante with `target`.
    pub(crate) fn trusting(&self, target: &str) -> Worker {
        Worker::trusting(&self.data.path().join("ca.pem"), target)
    }

    /// A tunnel to `target`, without any byte in it so far.
    pub(crate) fn tunnel(&self, target: &str) -> Client {
        let mut client = Client::connect(self.andante.proxy());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        client.opened();
        client
    }

    /// A worker's connection to `target`: TLS inside of a tunnel.
    pub(crate) fn worker(&self, target: &str) -> Client {
        self.trusting(target).secure(self.tunnel(target)).expect("a handshake")
    }

    /// `GET https://target path`.
    pub(crate) fn get(&self, target: &str, path: &str) -> Message {
        let mut worker = self.worker(target);
        worker.send(format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        worker.answer()
    }
}

// === impl Side ===

impl Side {
    fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.tls.write_tls(&mut self.socket);
    }
}

impl Read for Side {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            // Ignores a failed write: the other side may have sent its reason.
            self.tls.read_tls(&mut self.socket)?;
            self.tls.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for Side {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl Stream for Side {
    fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn finish(&mut self) {
        self.close();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn is_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(b"h2")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // As a program ends its connections, and not as one that is cut off.
        self.close();
    }
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn store(roots: &[CertificateDer<'static>]) -> RootCertStore {
    let mut store = RootCertStore::empty();
    roots.iter().for_each(|root| store.add(root.clone()).unwrap());
    store
}

fn protocols(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// The key in PEM `text`.
pub(crate) fn private_key(text: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).unwrap()
}
