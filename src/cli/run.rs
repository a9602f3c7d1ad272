//! `andante run -- COMMAND`: runs a private proxy around one command, on free ports, for as long as the command runs.
//!
//! The proxy lives in this process: if it dies, its connections close, and the command gets errors instead of waiting
//! without end. The command is a plain child: same terminal, same process group, same standard streams.

use std::{
    ffi::{OsStr, OsString},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitCode, ExitStatus},
    time::{Duration, SystemTime},
};

use tokio::{
    process::{Child, Command},
    time::{Interval, interval},
};
use tracing::warn;

use super::{Failure, environment, terminal, trust::TrustFolder};
use crate::{
    app::{Running, StartError},
    ca::{Ca, CaError},
    clock::Clock,
    config::{Config, StatePlace},
    listen::Given,
    policy::{Interception, Rules, Unlisted},
};

mod client_hint;
pub(super) mod diagnosis;
pub(super) mod footer;
mod json;
pub(super) mod progress;
mod signals;
pub(super) mod summary;

use self::{diagnosis::Circumstances, footer::Footer, progress::Pace, signals::CommandSignals};

/// End of `--help`.
pub const EXAMPLES: &str = "\
Examples:
  andante run --limit api.example.com=500/min -- python fetch.py
  andante run --limit 'api.example.com=10/s,in-flight 20' -- xargs -P 50 -n 1 curl -sSO < urls.txt
  andante run --config andante.toml --quiet -- make data
  andante run --json -- ./fetch.sh 2>&1 >/dev/null | tail -n 1 | jq .failed

Each request in HTTPS is paced, too: every host is intercepted, with a CA that lives in memory and that \
COMMAND is told to trust by the variables that common clients read. --intercept HOST narrows that to these \
hosts and those with limits, --intercept none switches it off; a rule with https = 'tunnel' leaves one host \
alone.

COMMAND finds the proxy in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, in capitals and small letters, Java in \
JAVA_TOOL_OPTIONS, Yarn in YARN_HTTPS_PROXY; NODE_USE_ENV_PROXY and PERL_LWP_ENV_PROXY are 1. NO_PROXY stays \
as it is, except that a rule for a loopback host takes the loopback hosts out of it; programs in Go never use \
a proxy for these. Where COMMAND runs a full-screen program, use --quiet.

TERM, HUP, USR1 and USR2 are passed on to COMMAND. So are INT and QUIT, unless they come from the terminal, \
which sends them to COMMAND itself. andante stays until COMMAND ends, and then returns its exit code: 128 + N \
if signal N ended it, 127 if it was not found, 126 if it could not be run.";

/// The `run` command: takes the flags of `serve`, with its own defaults.
pub fn command(serve: clap::Command) -> clap::Command {
    let free = "a free port of 127.0.0.1";
    with_defaults(serve, &[("listen", free), ("admin", free), ("intercept", "every host"), ("state", "off")])
}

/// `serve` with these defaults in its help texts.
pub(super) fn with_defaults(serve: clap::Command, defaults: &[(&'static str, &str)]) -> clap::Command {
    defaults.iter().fold(serve, |command, (flag, default)| {
        command.mut_arg(*flag, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            debug_assert!(help.contains("[default: "), "{flag}: {help}");
            let text = help.split("[default: ").next().unwrap_or_default();
            arg.help(format!("{text}[default: {default}]"))
        })
    })
}

/// Arguments of `run` besides the flags of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunOptions {
    /// Show neither progress nor a summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Instead of these, end with the summary as one line of JSON on standard error
    #[arg(long)]
    pub json: bool,
    /// The command to run, and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Reason why the command did not run.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the proxy did not start")]
    Start(#[source] StartError),
    #[error("could not set up the CA that lets the command trust intercepted HTTPS")]
    Ca(#[source] CaError),
    #[error("the proxy listens nowhere")]
    Deaf,
    #[error("signals cannot be passed on")]
    Signals(#[source] io::Error),
    #[error("cannot run {command:?}")]
    Command { command: OsString, source: io::Error },
    #[error("lost track of {command:?}")]
    Lost { command: OsString, source: io::Error },
}

/// The progress line, while there is a terminal for it.
struct LiveFooter {
    tick: Interval,
    pace: Pace,
    footer: Footer,
}

/// Time that the summary waits for the effects of the command's end. Only processes that stay in the background take
/// longer.
pub(super) const LAST_NEWS: Duration = Duration::from_millis(250);
/// Interval of updates of the line.
const REFRESH: Duration = Duration::from_millis(200);

/// Configuration of `run` without flags, environment and file. Free ports on loopback allow several to run side by
/// side, and beside a `serve`.
pub fn base() -> Config {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // The command is told to trust andante, so the user need not ask for interception.
    let interception = Interception { others: Unlisted::Intercept, ..Interception::default() };
    let rules = Rules::default().intercepting(interception);
    Config { listen: vec![free], admin: Some(free), rules, state: StatePlace::Off, ..Config::default() }
}

/// Runs the command, and returns its exit code.
pub async fn run(config: Config, options: RunOptions) -> ExitCode {
    match around(config, options).await {
        Ok(code) => code.into(),
        Err(trouble) => {
            let code = trouble.code();
            terminal::failure(&trouble.into_failure());
            code.into()
        }
    }
}

async fn around(config: Config, options: RunOptions) -> Result<u8, Trouble> {
    let (config, authority) = prepare_interception(config)?;
    let rules = config.rules.clone();
    let (ca, folder) = authority.unzip();
    let trust = folder.as_ref().map(TrustFolder::trust);
    let running = Running::start(config, Given::default(), ca).await.map_err(Trouble::Start)?;
    let proxy = environment::url(*running.listen().first().ok_or(Trouble::Deaf)?);
    // Listens before the command starts: signals from then on are meant for the command.
    let mut signals = CommandSignals::listen().map_err(Trouble::Signals)?;
    let clock = Clock::start();
    let (program, arguments) = options.command.split_first().expect("the command line asks for a command");
    let variables = environment::variables(&proxy, &rules, trust, |name| std::env::var_os(name));
    let no_proxy = environment::exceptions(&variables, |name| std::env::var_os(name));
    let mut child = Command::new(program)
        .args(arguments)
        .envs(variables)
        .spawn()
        .map_err(|source| Trouble::Command { command: program.clone(), source })?;
    let mut live = if options.quiet || options.json || terminal::speaks_json() { None } else { LiveFooter::open() };
    let ended = follow(&mut child, &mut signals, &running, &clock, &mut live).await;
    if let Some(live) = live {
        live.footer.close();
    }
    let ended = ended.map_err(|source| Trouble::Lost { command: program.clone(), source })?;
    if options.json || !options.quiet {
        // The command's connections are closed by now, and the proxy is about to notice.
        running.settled(LAST_NEWS).await;
        let (no_proxy, unmatched) = (no_proxy.as_deref(), running.unmatched_rules());
        let command = Some(program.as_os_str());
        let circumstances = Circumstances { ended, no_proxy, command, unmatched: &unmatched };
        let elapsed = clock.now().since(crate::clock::Instant::START);
        let status = running.status();
        say(&if options.json || terminal::speaks_json() {
            // Begins a new line, wherever the command has left the cursor. A collector of lines reads no empty ones.
            let before = if terminal::speaks_json() { "" } else { "\n" };
            format!("{before}{}\n", json::summary(&status, elapsed, exit_code(ended), &unmatched))
        } else {
            summary::render(&status, elapsed, &circumstances)
        });
    }
    // Background processes of the command may finish, but a signal ends the wait.
    tokio::select! {
        _ = running.drain() => {}
        _ = signals.next() => {}
    }
    Ok(exit_code(ended))
}

/// Creates the CA for interception, and the files that the command needs to trust it. The key never leaves this
/// process, and the files are removed with the command.
///
/// Lets HTTPS pass unseen if that fails and the user has not asked for interception.
fn prepare_interception(config: Config) -> Result<(Config, Option<(Ca, TrustFolder)>), Trouble> {
    if !config.rules.intercepts() {
        return Ok((config, None));
    }
    let error = match authority() {
        Ok((ca, folder)) => {
            // andante verifies the APIs instead of the command, and so needs all roots that the command trusts.
            let upstream_ca = [config.upstream_ca.as_slice(), &[folder.upstream().to_owned()]].concat();
            return Ok((Config { upstream_ca, ..config }, Some((ca, folder))));
        }
        Err(error) => error,
    };
    let others = config.rules.interception().others.besides_named();
    let rules = config.rules.clone().intercepting(Interception { others, ..config.rules.interception().clone() });
    if rules.intercepts() {
        return Err(Trouble::Ca(error));
    }
    let hint = error.hint().unwrap_or_default();
    warn!(%error, hint, "cannot intercept HTTPS: requests inside tunnels are neither seen nor paced");
    Ok((Config { rules, ..config }, None))
}

fn authority() -> Result<(Ca, TrustFolder), CaError> {
    let ca = Ca::generate(&[], SystemTime::now())?;
    let folder = TrustFolder::new(&ca, |name| std::env::var_os(name))?;
    Ok((ca, folder))
}

/// Waits for the command's end.
async fn follow(
    child: &mut Child,
    signals: &mut CommandSignals,
    running: &Running,
    clock: &Clock,
    live: &mut Option<LiveFooter>,
) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            signal = signals.next() => signals::pass_on(signal, child),
            live = LiveFooter::tick(live) => {
                let status = running.status();
                let pace = live.pace.at(clock.now(), progress::sent(&status));
                live.footer.show(progress::line(&status, pace));
            }
        }
    }
}

/// Exit code in the convention of shells.
fn exit_code(ended: ExitStatus) -> u8 {
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

// === impl LiveFooter ===

impl LiveFooter {
    fn open() -> Option<Self> {
        Some(Self { footer: Footer::open()?, tick: interval(REFRESH), pace: Pace::default() })
    }

    /// Waits for the next refresh; without end if there is nothing to refresh.
    async fn tick(live: &mut Option<Self>) -> &mut Self {
        match live {
            Some(live) => {
                live.tick.tick().await;
                live
            }
            None => std::future::pending().await,
        }
    }
}

// === impl Trouble ===

impl Trouble {
    /// Exit code in the convention of shells.
    fn code(&self) -> u8 {
        match self {
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Command { .. } => 126,
            _ => 1,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Command { command, source } if source.kind() == io::ErrorKind::NotFound && is_there(command) => {
                "the file is there, but not the program that its first line (#!) or its format asks for: install that"
            }
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "write the command after `--`, and its path if it is not in PATH: andante run -- ./fetch.sh"
            }
            Self::Command { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "make the file executable (chmod +x), or name the program that reads it: andante run -- sh FILE"
            }
            Self::Ca(error) => {
                let otherwise = "or leave HTTPS unpaced: --intercept none";
                return error.hint().map(|hint| format!("{hint}; {otherwise}"));
            }
            Self::Start(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// Converts it to the failure that other commands print.
    fn into_failure(self) -> Failure {
        let (failure, hint) = (Failure::new(self.to_string()), self.hint());
        let failure = match self {
            Self::Start(source) => failure.because(source),
            Self::Ca(source) => failure.because(source),
            Self::Signals(source) | Self::Command { source, .. } | Self::Lost { source, .. } => failure.because(source),
            Self::Deaf => failure,
        };
        hint.into_iter().fold(failure, Failure::hinting)
    }
}

/// Returns whether there is a file that would be run as `command`.
fn is_there(command: &OsStr) -> bool {
    if Path::new(command).components().count() > 1 {
        return Path::new(command).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(command).is_file())
}

#[cfg(test)]
mod tests;

/// Writes to standard error. If that fails, the user cannot be told, and the command's exit code matters more.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}
