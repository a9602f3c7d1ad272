//! Sends paced requests through a private andante to a mock API on loopback: in the clear, through a tunnel, and
//! intercepted.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Finding;
use crate::{
    app::Running,
    ca::{Alpn, Ca},
    cli::wording,
    clock::Clock,
    config::{Config, StatePlace},
    listen::Given,
    mock::{self, Api, Options},
    policy::{Https, Policy, Rules},
};

/// The mock, and the TLS servers in front of it.
struct TrialApi {
    plain: SocketAddr,
    tunnelled: SocketAddr,
    intercepted: SocketAddr,
    /// CA of its certificates.
    ca: Ca,
    _tasks: JoinSet<()>,
    _api: Api,
}

/// The way of a request: each is a line of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialWay {
    Plain,
    Tunnel,
    Intercept,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A request every 50 ms.
const LIMIT: &str = "20/s burst 1";
const SPACING: Duration = Duration::from_millis(50);
const REQUESTS: u32 = 3;
/// Timers fire a little early, and the first request may have left a little late.
const TOLERANCE: Duration = Duration::from_millis(5);
/// Time from connecting to the last answer.
const PATIENCE: Duration = Duration::from_secs(10);
const REPORT: &str = "ANDANTE_LOG=debug says more; if this machine is as it should be, please report it";

/// Results of a few requests on each way.
pub(super) async fn findings() -> Vec<Finding> {
    let (api, proxy_ca) = match start_api().await.and_then(|api| Ok((api, generate()?))) {
        Ok(started) => started,
        Err(error) => return not_started(&error),
    };
    let roots = [TrialWay::Tunnel, TrialWay::Intercept]
        .map(|way| connector(if way == TrialWay::Tunnel { &api.ca } else { &proxy_ca }));
    let running = match start_andante(&api, proxy_ca).await {
        Ok(running) => running,
        Err(error) => return not_started(&error),
    };
    let proxy = running.listen().first().copied().unwrap_or(api.plain);
    let [tunnel, intercept] = roots;
    let clock = Clock::start();
    let mut found = Vec::new();
    for way in TrialWay::ALL {
        let began = clock.now();
        let sent = async {
            match way {
                TrialWay::Plain => plainly(proxy, api.plain).await,
                TrialWay::Tunnel => tunnels(proxy, api.tunnelled, &tunnel).await,
                TrialWay::Intercept => intercepted(proxy, api.intercepted, &intercept).await,
            }
        };
        let sent = time::timeout(PATIENCE, sent).await;
        found.push(judge(
            way,
            sent.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}").into())),
            clock.now().since(began),
        ));
    }
    running.drain().await;
    found
}

/// One line for each way, as if it had been tried: readers look for the same names after any outcome.
fn not_started(error: &BoxError) -> Vec<Finding> {
    let hint = "doctor needs a few free ports of 127.0.0.1, and a folder for temporary files";
    let detail = format!("could not start andante and a mock API on loopback: {error}");
    TrialWay::ALL.map(|way| Finding::not_ok(way.name(), detail.clone(), hint)).into()
}

fn judge(way: TrialWay, sent: Result<(), BoxError>, took: Duration) -> Finding {
    let name = way.name();
    let what = match way {
        TrialWay::Plain => "requests",
        TrialWay::Tunnel => "tunnels",
        TrialWay::Intercept => "requests inside a tunnel",
    };
    let least = SPACING * (REQUESTS - 1) - TOLERANCE;
    match sent {
        Err(error) => {
            Finding::not_ok(name, format!("{REQUESTS} {what} to a mock API on loopback failed: {error}"), REPORT)
        }
        Ok(()) if took < least => {
            let detail = format!("{REQUESTS} {what} took {}: too little for {LIMIT}", wording::short(took));
            Finding::not_ok(name, detail, REPORT)
        }
        Ok(()) => {
            let took = wording::short(took);
            Finding::ok(name, format!("{REQUESTS} {what} to a mock API with the limit {LIMIT} were answered in {took}"))
        }
    }
}

fn generate() -> Result<Ca, BoxError> {
    Ok(Ca::generate(&[], SystemTime::now())?)
}

async fn start_api() -> Result<TrialApi, BoxError> {
    let api = Api::start(Options::default(), mock::listen(SocketAddr::new(HERE, 0))?, Clock::start());
    let (ca, mut tasks) = (generate()?, JoinSet::new());
    let acceptor = TlsAcceptor::from(ca.server_config(&HERE.to_string(), Alpn::Http1First, SystemTime::now())?);
    let (tunnelled, intercepted) = (TcpListener::bind((HERE, 0)).await?, TcpListener::bind((HERE, 0)).await?);
    let addresses = (tunnelled.local_addr()?, intercepted.local_addr()?);
    for listener in [tunnelled, intercepted] {
        let (acceptor, plain) = (acceptor.clone(), api.addr());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                open.spawn(async move {
                    if let (Ok(mut stream), Ok(mut api)) =
                        (acceptor.accept(stream).await, TcpStream::connect(plain).await)
                    {
                        // The connection ends when either side closes it.
                        let _ = copy_bidirectional(&mut stream, &mut api).await;
                    }
                });
            }
        });
    }
    Ok(TrialApi { plain: api.addr(), tunnelled: addresses.0, intercepted: addresses.1, ca, _tasks: tasks, _api: api })
}

async fn start_andante(api: &TrialApi, ca: Ca) -> Result<Running, BoxError> {
    let authority = tempfile::NamedTempFile::new()?;
    std::fs::write(authority.path(), api.ca.certificate_pem())?;
    let ways = [(api.plain, None), (api.tunnelled, Some(Https::Tunnel)), (api.intercepted, Some(Https::Intercept))];
    let mut rules = Vec::new();
    for (at, https) in ways {
        let host = at.to_string();
        rules.push(Policy { limits: vec![LIMIT.parse()?], https, ..Policy::new(&host, vec![host.parse()?]) });
    }
    let config = Config {
        listen: vec![SocketAddr::new(HERE, 0)],
        admin: None,
        drain: Duration::from_secs(1),
        state: StatePlace::Off,
        upstream_ca: vec![authority.path().to_owned()],
        rules: Rules::new(rules),
        ..Config::default()
    };
    Ok(Running::start(config, Given::default(), Some(ca)).await?)
}

/// Trusts only this CA.
fn connector(ca: &Ca) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().der().clone()).expect("andante has made it");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("the provider has them");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into()
}

async fn plainly(proxy: SocketAddr, api: SocketAddr) -> Result<(), BoxError> {
    get(TcpStream::connect(proxy).await?, &format!("http://{api}/doctor"), api, REQUESTS).await
}

async fn tunnels(proxy: SocketAddr, api: SocketAddr, tls: &TlsConnector) -> Result<(), BoxError> {
    for _ in 0..REQUESTS {
        let stream = tls.connect(ServerName::from(HERE), connect(proxy, api).await?).await?;
        get(stream, "/doctor", api, 1).await?;
    }
    Ok(())
}

async fn intercepted(proxy: SocketAddr, api: SocketAddr, tls: &TlsConnector) -> Result<(), BoxError> {
    let stream = tls.connect(ServerName::from(HERE), connect(proxy, api).await?).await?;
    get(stream, "/doctor", api, REQUESTS).await
}

/// A tunnel to `api`.
async fn connect(proxy: SocketAddr, api: SocketAddr) -> Result<TcpStream, BoxError> {
    let mut stream = TcpStream::connect(proxy).await?;
    stream.write_all(format!("CONNECT {api} HTTP/1.1\r\nHost: {api}\r\n\r\n").as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    match head.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(stream),
        false => Err(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned().into()),
    }
}

/// Sends `count` requests, one after the other.
async fn get<S>(stream: S, target: &str, host: SocketAddr, count: u32) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Errors of the connection reach the request on it.
    let connection = tokio::spawn(connection);
    for _ in 0..count {
        sender.ready().await?;
        let request = Request::get(target).header(header::HOST, host.to_string()).body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if status != StatusCode::OK {
            return Err(format!("{target} was answered {status}").into());
        }
    }
    connection.abort();
    Ok(())
}

// === impl TrialWay ===

impl TrialWay {
    const ALL: [Self; 3] = [Self::Plain, Self::Tunnel, Self::Intercept];

    /// Name of its line in the report.
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tunnel => "tunnel",
            Self::Intercept => "intercept",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_is_reported_under_the_names_of_the_three_ways() {
        let found = not_started(&"no port is free".into());
        assert_eq!(found.iter().map(|finding| finding.name).collect::<Vec<_>>(), ["plain", "tunnel", "intercept"]);
        assert!(found.iter().all(|finding| !finding.ok && finding.detail.ends_with("no port is free")));
    }

    #[test]
    fn what_comes_too_soon_was_not_paced() {
        let judged = |way, sent: Result<(), BoxError>, ms| judge(way, sent, Duration::from_millis(ms)).ok;
        // Three, 50 ms apart.
        assert!(judged(TrialWay::Plain, Ok(()), 100) && !judged(TrialWay::Tunnel, Ok(()), 60));
        assert!(!judged(TrialWay::Intercept, Err("no".into()), 100));
    }
}
