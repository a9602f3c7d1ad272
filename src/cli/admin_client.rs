//! Asks the admin address of a running andante.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{net::TcpStream, time};

use super::{Failure, serve, terminal};
use crate::config::{
    Config, Settings, Sources,
    token_file::{self, TOKEN_FILE_HINT},
};

/// The running andante that a command asks.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct AdminArgs {
    /// Configuration file of the running andante [env: ANDANTE_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Admin address of the running andante, as in 127.0.0.1:9128 or http://127.0.0.1:9128 [env: ANDANTE_ADMIN]
    /// [default: 127.0.0.1:9128]
    #[arg(long, value_name = "URL", global = true)]
    admin: Option<String>,
    /// File with the admin token; changes need it, and on other machines all requests do
    #[arg(long, value_name = "FILE", global = true, env = "ANDANTE_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<PathBuf>,
}

/// Client of one andante's admin address.
pub(super) struct AdminClient {
    at: SocketAddr,
    token: Option<PathBuf>,
    agent: HeaderValue,
}

/// Largest answer in bytes: more than `/status` has for a thousand lanes.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Time from connecting to the last byte.
const PATIENCE: Duration = Duration::from_secs(10);

// === impl AdminArgs ===

impl AdminArgs {
    /// Arguments for the andante at `admin`.
    pub(super) fn of(config: Option<PathBuf>, admin: Option<String>, token: Option<PathBuf>) -> Self {
        Self { config, admin, token }
    }

    /// Makes a client for the named andante, on behalf of `command`. Prints problems with the arguments.
    pub(super) async fn client(&self, command: &str) -> Result<AdminClient, ExitCode> {
        let failed = |failure| terminal::failure(&failure);
        let admin = match &self.admin {
            Some(admin) => Some(address_of(admin).await.map_err(failed)?),
            None => None,
        };
        let admin = Config::admin_of(&sources(self.config.as_ref(), admin)).map_err(|problems| {
            terminal::problems(&problems);
            serve::exit_code(&problems)
        })?;
        let agent = format!("andante-{command}/{}", env!("CARGO_PKG_VERSION"));
        let agent = HeaderValue::try_from(agent).expect("a name and numbers");
        Ok(AdminClient { at: address(admin).map_err(failed)?, token: self.token.clone(), agent })
    }
}

// === impl AdminClient ===

impl AdminClient {
    /// URL of `path` at the admin address.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// Gets the JSON at `path`.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Sends `value` to `path`, and returns the answer.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, value: &Value) -> Result<T, Failure> {
        self.ask(Method::POST, path, Bytes::from(value.to_string())).await
    }

    /// Sends a change with the token; fails without one.
    pub(super) async fn change<T: DeserializeOwned>(&self, path: &str, value: &Value) -> Result<T, Failure> {
        if self.token.is_none() {
            let hint = "name the file that it is in: --token FILE or ANDANTE_ADMIN_TOKEN";
            return Err(Failure::new("changes need a token").hinting(hint));
        }
        self.post(path, value).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, Failure> {
        let url = self.url(path);
        let mut request = Request::builder().method(method).uri(path).header(header::USER_AGENT, self.agent.clone());
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = self.authorization()? {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).expect("the request is valid");
        let silent = |_| Failure::new(format!("{url} did not answer within {PATIENCE:?}"));
        let answer = time::timeout(PATIENCE, ask(self.at, request)).await.map_err(silent)?;
        let answer = answer.map_err(|error| {
            Failure::new(format!("could not ask {url}"))
                .because(error)
                .hinting("is andante running, with this --admin?")
        })?;
        if !answer.status().is_success() {
            return Err(refused(&url, &answer));
        }
        serde_json::from_slice(answer.body()).map_err(|error| {
            let hint = "is that an andante, of this version? `curl` shows what is there";
            Failure::new(format!("{url} answers what this andante does not understand")).because(error).hinting(hint)
        })
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        let Some(file) = &self.token else { return Ok(None) };
        let text = token_file::read(file)
            .map_err(|error| Failure::new("could not read the token").because(error).hinting(TOKEN_FILE_HINT))?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
            .map_err(|_| Failure::new(format!("there is no token in {}", token_file::shown(file))))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Describes an unexpected answer. The answer may come from another program, with any content.
fn refused(url: &str, answer: &Response<Bytes>) -> Failure {
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    let said = body["title"].as_str().map_or(&**answer.body(), str::as_bytes);
    if body["title"].as_str().is_none() {
        let hint = "another program listens there: name andante's admin address, as in --admin 127.0.0.1:9128";
        return Failure::new(format!("{url} answers {}, and that is no andante", answer.status())).hinting(hint);
    }
    let failure = Failure::new(format!("{url} answers {}: {}", answer.status(), line(said)));
    match body["detail"].as_str() {
        Some(detail) => failure.hinting(line(detail.as_bytes())),
        None => failure,
    }
}

/// Sources that contain only the place of the admin pages, and no other setting that could be wrong.
pub(super) fn sources(config: Option<&PathBuf>, admin: Option<String>) -> Sources {
    let only = |admin| Settings { admin, ..Settings::default() };
    Sources { file: serve::config_file(config), environment: only(serve::environment().admin), flags: only(admin) }
}

/// Address in a URL, or a host with a port. Returns other text unchanged, so that its parser reports the problem.
async fn address_of(admin: &str) -> Result<String, Failure> {
    if let Some(rest) = admin.strip_prefix("https://") {
        let hint = format!(
            "write --admin http://{}; on other machines, reach it by a tunnel of SSH or a proxy with TLS",
            rest.trim_end_matches('/')
        );
        return Err(Failure::new("the admin address speaks plain HTTP, and --admin says https://").hinting(hint));
    }
    let place = admin.strip_prefix("http://").unwrap_or(admin).trim_end_matches('/');
    let host = place.rsplit_once(':').map_or("", |(host, _)| host);
    if place.parse::<SocketAddr>().is_ok() || host.is_empty() || place.contains('/') {
        return Ok(place.to_owned());
    }
    let hint = "name an address, as in --admin 127.0.0.1:9128";
    let found = tokio::net::lookup_host(place).await;
    let found =
        found.map_err(|error| Failure::new(format!("could not look {host} up")).because(error).hinting(hint))?;
    let mut found: Vec<_> = found.collect();
    // Most andantes listen on this address alone.
    found.sort_by_key(|address| address.is_ipv6());
    let none = || Failure::new(format!("{host} has no address")).hinting(hint);
    found.first().map(ToString::to_string).ok_or_else(none)
}

/// Address at which to ask the andante that has its pages at `admin`.
pub(super) fn address(admin: Option<SocketAddr>) -> Result<SocketAddr, Failure> {
    let Some(admin) = admin else {
        return Err(Failure::new("cannot ask: the admin pages are off").hinting("name an address: --admin or `admin`"));
    };
    if admin.port() == 0 {
        let hint = "give `andante serve` a port to keep, or name the one that it printed: --admin 127.0.0.1:PORT";
        return Err(Failure::new("cannot ask: port 0 is another one at each start").hinting(hint));
    }
    Ok(reachable(admin))
}

/// Address at which to ask a server that listens on `address`: some systems cannot connect to the unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Sends `request`, whose target is a path, to `admin`, and returns the answer.
pub(super) async fn ask(
    admin: SocketAddr,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    request.headers_mut().insert(header::HOST, HeaderValue::try_from(admin.to_string())?);
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, MOST_BYTES).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(parts, body))
}

/// First line of an answer, without control characters. The answer may come from another program, with any content.
pub(super) fn line(body: &[u8]) -> String {
    let said = String::from_utf8_lossy(body);
    said.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(1000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_asked_on_loopback() {
        for (listens, asked) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("127.0.0.2:1", "127.0.0.2:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[tokio::test]
    async fn an_admin_address_may_be_a_url() {
        for (said, meant) in [
            ("http://127.0.0.1:9128/", "127.0.0.1:9128"),
            ("[::1]:9128", "[::1]:9128"),
            ("off", "off"),
            ("9128", "9128"),
        ] {
            assert_eq!(address_of(said).await.unwrap(), meant, "{said}");
        }
        assert!(address_of("localhost:9128").await.unwrap().ends_with(":9128"));
    }
}
