//! `andante health`: reports whether an andante on this machine accepts requests, for health checks without curl.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use http::Request;
use http_body_util::Full;
use tokio::time;

use super::{Failure, admin_client, serve, terminal};
use crate::config::Config;

/// Asks the andante on this machine whether it accepts requests
///
/// Reads /readyz on the admin address, for 2 seconds at most. Finds the address like `andante serve`, so that a
/// container with the same variables needs no arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file of the running andante [env: ANDANTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Admin address of the running andante [env: ANDANTE_ADMIN] [default: 127.0.0.1:9128]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  andante health
  andante health --admin 127.0.0.1:9129
  andante health --config /etc/andante/andante.toml || systemctl restart andante

In a Dockerfile: HEALTHCHECK CMD [\"andante\", \"health\"]

Exit codes: 0 it takes requests, 1 it does not, or no andante answers.";

/// Time from connecting to the last byte: health checks are frequent, and have time-outs of their own.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints `ready` to standard output, or the reason to standard error.
pub async fn run(args: &Args) -> ExitCode {
    let admin = match Config::admin_of(&admin_client::sources(args.config.as_ref(), args.admin.clone())) {
        Ok(admin) => admin,
        Err(problems) => {
            terminal::problems(&problems);
            return serve::exit_code(&problems);
        }
    };
    match check(admin).await {
        Ok(()) => {
            // A failed write is harmless: the exit code reports the same.
            let _ = writeln!(io::stdout(), "ready");
            ExitCode::SUCCESS
        }
        Err(failure) => terminal::failure(&failure),
    }
}

async fn check(admin: Option<SocketAddr>) -> Result<(), Failure> {
    let admin = admin_client::address(admin)?;
    let url = format!("http://{admin}/readyz");
    let silent = |_| Failure::new(format!("{url} did not answer within {PATIENCE:?}"));
    let request = Request::get("/readyz").body(Full::default()).expect("the request is valid");
    let answer = time::timeout(PATIENCE, admin_client::ask(admin, request)).await.map_err(silent)?;
    let answer = answer.map_err(|error| {
        Failure::new(format!("could not ask {url}")).because(error).hinting("is andante running, with this --admin?")
    })?;
    if answer.status().is_success() {
        return Ok(());
    }
    let said = admin_client::line(answer.body());
    Err(Failure::new(format!("{url} answers {}: {said}", answer.status())))
}
