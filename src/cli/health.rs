//! `andante health`: whether an andante on this machine takes requests, for health checks without curl.

use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time};

use super::{Failure, serve, terminal};
use crate::config::{Config, Settings, Sources};

/// Asks the andante on this machine whether it takes requests
///
/// Looks at /readyz on the admin address, for 2 seconds at most. The address is found as `andante serve` finds it, so
/// that in a container with the same variables, or beside the same file, nothing needs to be named.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file of the andante that is asked [env: ANDANTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Its admin address [env: ANDANTE_ADMIN] [default: 127.0.0.1:9128]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  andante health
  andante health --admin 127.0.0.1:9129
  andante health --config /etc/andante/andante.toml || systemctl restart andante

In a Dockerfile: HEALTHCHECK CMD [\"andante\", \"health\"]

Exit codes: 0 it takes requests, 1 it does not, or nobody answers.";

/// From connecting to the last byte: health checks are asked often, and give up themselves.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than any answer of ours has.
const MOST_BYTES: usize = 1024;

/// Prints `ready` to standard output, or the reason to standard error.
pub async fn run(args: &Args) -> ExitCode {
    let admin = match Config::admin_of(&sources(args)) {
        Ok(admin) => admin,
        Err(problems) => {
            terminal::problems(&problems);
            return serve::exit_code(&problems);
        }
    };
    match check(admin).await {
        Ok(()) => {
            // A failed write does not matter: the exit code reports the same.
            let _ = writeln!(io::stdout(), "ready");
            ExitCode::SUCCESS
        }
        Err(failure) => terminal::failure(&failure),
    }
}

/// What says where the admin pages are, and nothing else that could be wrong.
fn sources(args: &Args) -> Sources {
    let only = |admin| Settings { admin, ..Settings::default() };
    Sources {
        file: serve::config_file(args.config.as_ref()),
        environment: only(serve::environment().admin),
        flags: only(args.admin.clone()),
    }
}

async fn check(admin: Option<SocketAddr>) -> Result<(), Failure> {
    let Some(admin) = admin else {
        return Err(Failure::new("cannot ask: the admin pages are off").hinting("name an address: --admin or `admin`"));
    };
    if admin.port() == 0 {
        let hint = "give `andante serve` a port to keep, or name the one that it printed: --admin 127.0.0.1:PORT";
        return Err(Failure::new("cannot ask: port 0 is another one at each start").hinting(hint));
    }
    let admin = reachable(admin);
    let url = format!("http://{admin}/readyz");
    let silent = |_| Failure::new(format!("{url} did not answer within {PATIENCE:?}"));
    let answer = time::timeout(PATIENCE, ask(admin)).await.map_err(silent)?;
    let answer = answer.map_err(|error| {
        Failure::new(format!("could not ask {url}")).because(error).hinting("is andante running, with this --admin?")
    })?;
    if answer.status().is_success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(answer.body());
    // Another program may listen there and send anything: show one line, without control characters.
    let said: String = said.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    Err(Failure::new(format!("{url} answers {}: {said}", answer.status())))
}

/// Where to ask a server that listens on `address`: "any" is no place to connect to everywhere.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

async fn ask(admin: SocketAddr) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/readyz").header(header::HOST, admin.to_string()).body(Empty::<Bytes>::new())?;
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, MOST_BYTES).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(parts, body))
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
}
