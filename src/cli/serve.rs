//! `andante serve`: the proxy, until a signal ends it.

mod end;
mod https_log;
mod reload;

use std::{
    env,
    error::Error as _,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    process::{self, ExitCode},
    time::UNIX_EPOCH,
};

use serde_json::json;
use tracing::{info, warn};

use self::{
    end::{End, until_ended},
    reload::ConfigWatch,
};
use super::{FAILED, Failure, USAGE, json_text, log, notify, signals::Signals, terminal};
use crate::{
    app::{Running, StartError, StartOptions},
    clock,
    config::{Config, Diagnostic, File, LogFormat, Place, Settings, Sources},
    listen::Given,
};

/// Runs the proxy until SIGINT or SIGTERM
///
/// Prints one line when it is ready. On the first signal it stops accepting and lets requests finish within the time of
/// `drain`; on the second it ends at once.
///
/// Takes sockets from systemd (LISTEN_FDS) instead of --listen, and instead of --admin if one is called "admin", and
/// tells systemd when it is ready (NOTIFY_SOCKET).
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file [env: ANDANTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address for workers; may be repeated [env: ANDANTE_LISTEN] [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Address of metrics, health and status, or "off" [env: ANDANTE_ADMIN] [default: 127.0.0.1:9128]
    #[arg(long, value_name = "ADDR|off")]
    pub admin: Option<String>,
    /// File with the token for changes by the admin API, and for reads beyond loopback [env: ANDANTE_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub admin_token: Option<String>,
    /// Clients that may use the proxy besides this machine: a network as in 10.0.0.0/8, or "any"; may be repeated [env:
    /// ANDANTE_CLIENTS]
    #[arg(long, value_name = "NETWORK|any")]
    pub clients: Vec<String>,
    /// Limits of a host, as in api.example.com=10/s,500/min; may be repeated [env: ANDANTE_LIMIT]
    #[arg(long, value_name = "HOST=LIMITS")]
    pub limit: Vec<String>,
    /// A host whose HTTPS is intercepted, so that each request inside is paced, as in api.example.com,
    /// *.example.com:8443 or *; may be repeated; or none [env: ANDANTE_INTERCEPT] [default: none]
    #[arg(long, value_name = "HOST|none")]
    pub intercept: Vec<String>,
    /// PEM file with authorities for verifying upstreams, besides the system's; may be repeated [env:
    /// ANDANTE_UPSTREAM_CA]
    #[arg(long, value_name = "FILE")]
    pub upstream_ca: Vec<String>,
    /// Folder of andante's own certificate authority [env: ANDANTE_DATA] [default: $XDG_DATA_HOME/andante, or
    /// ~/.local/share/andante]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// File for what was sent and learned, so that a restart continues from there, or "off" [env: ANDANTE_STATE]
    /// [default: limits-ADDRESS.redb in $STATE_DIRECTORY, else --data, else $XDG_STATE_HOME/andante, else
    /// ~/.local/state/andante]
    #[arg(long, value_name = "FILE|off")]
    pub state: Option<String>,
    /// A Redis or Valkey through which several andantes share their limits, as in redis://store.example:6379, or "off"
    /// [env: ANDANTE_STORE] [default: off]
    #[arg(long, value_name = "URL|off")]
    pub store: Option<String>,
    /// Time for which an andante continues without an answer from the store; the same for the whole fleet [env:
    /// ANDANTE_LEASE] [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<String>,
    /// Maximum number of andantes at once: it divides limits that the store does not share, and floors [env:
    /// ANDANTE_FLEET_SIZE]
    #[arg(long, value_name = "N")]
    pub fleet_size: Option<String>,
    /// Behaviour when the lease ends without an answer from the store: wait (hold requests), floor (send at this andante's
    /// part of --floor), or open (send at its last known part; limits may be exceeded) [env: ANDANTE_STORE_DOWN] [default: wait]
    #[arg(long, value_name = "wait|floor|open")]
    pub store_down: Option<String>,
    /// Part of each limit that is never lent, with --store-down floor [env: ANDANTE_FLOOR] [default: 20%]
    #[arg(long, value_name = "PERCENT")]
    pub floor: Option<String>,
    /// Set the stored state aside, and begin with nothing used
    #[arg(long)]
    pub forget: bool,
    /// Take over from the andante that runs here with the same state, while it sends its queued requests; without one,
    /// just start
    #[arg(long)]
    pub take_over: bool,
    /// How to spend a quota that the API reports, where no rule says: mostly (freely until a tenth is left, then
    /// evenly), even, or greedy [env: ANDANTE_SPEND] [default: mostly]
    #[arg(long, value_name = "mostly|even|greedy")]
    pub spend: Option<String>,
    /// How far to trust the limits that the API reports, where no rule says: waits (only if it asks to wait), stricter
    /// (also limits stricter than those here), or api (always) [env: ANDANTE_TRUST] [default: stricter]
    #[arg(long, value_name = "waits|stricter|api")]
    pub trust: Option<String>,
    /// Send a request again after a failure that allows it, where no rule says [env: ANDANTE_RETRY] [default: on]
    #[arg(long, value_name = "on|off")]
    pub retry: Option<String>,
    /// Pause sending to an API that keeps failing, where no rule says [env: ANDANTE_BREAKER] [default: on]
    #[arg(long, value_name = "on|off")]
    pub breaker: Option<String>,
    /// Runtime threads [env: ANDANTE_THREADS] [default: auto, one per core, at most 4]
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
    /// Largest memory of the process [env: ANDANTE_MAX_MEMORY] [default: auto, a part of the system's]
    #[arg(long, value_name = "SIZE|auto")]
    pub max_memory: Option<String>,
    /// Format of the log, "text" or "json" [env: ANDANTE_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "text|json")]
    pub log: Option<String>,
    /// Destination of the log of requests: a file, "stderr", "stdout" or "off" [env: ANDANTE_ACCESS_LOG] [default: off]
    #[arg(long, value_name = "FILE|stderr|stdout|off")]
    pub access_log: Option<String>,
    /// An OpenTelemetry collector for traces and metrics, as in `http://collector.example:4318`, or "off" [env:
    /// ANDANTE_OTLP]
    #[arg(long, value_name = "URL|off")]
    pub otlp: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  andante serve --limit 'api.example.com=10/s,500/min,in-flight 20'
  andante serve --config andante.toml --listen 127.0.0.1:8080 --admin off
  andante serve --intercept api.example.com --limit api.example.com=500/min
  andante serve --store redis://store.example:6379 --limit api.example.com=500/min
  andante serve --listen 0.0.0.0:3128 --clients 10.0.0.0/8 --limit api.example.com=500/min
  ANDANTE_LIMIT='a.example=5/s; b.example=100/min' andante serve --log json

LIMITS are separated by commas: 500/min, 10/s, 1/120s, each optionally followed by \"burst 20\" or \
\"strict\"; and \"in-flight 20\". Flags win over the environment, the environment over the file. \
ANDANTE_LOG=debug logs more.";

/// Serves until SIGINT or SIGTERM, and returns the exit code.
pub async fn run(args: ServeArgs) -> ExitCode {
    let watch = ConfigWatch::new(&args);
    let config = match args.load(Config::default()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let options = StartOptions { forget: args.forget, take_over: args.take_over, ..StartOptions::default() };
    match serve(config, watch, options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => terminal::failure(&failure),
    }
}

async fn serve(config: Config, watch: Option<ConfigWatch>, options: StartOptions) -> Result<(), Failure> {
    let _logging = log::start(&config, "info")?;
    // Listens for signals before andante reports that it is ready: a reader of that line may stop andante right away.
    let deaf = |error| Failure::new("could not listen for signals").because(error);
    let mut signals = Signals::listen().map_err(deaf)?;
    let given = Given::take().map_err(not_given)?;
    let mut running = Running::start_keeping(config, StartOptions { given, ..options }).await.map_err(not_started)?;
    https_log::log(running.config());
    notify::ready();
    let ready = match running.config().log {
        LogFormat::Text => ready_line(running.listen(), running.admin()),
        LogFormat::Json => ready_json(running.listen(), running.admin()),
    };
    writeln!(io::stdout(), "{ready}").map_err(Failure::writing)?;
    let end = until_ended(&mut running, &mut signals, watch).await;
    notify::stopping();
    let tally = running.drain_tally();
    let mut drained = pin!(async {
        match end {
            End::Signal(stop) => {
                let signal = stop.name();
                info!(signal, "draining: queued requests may finish within `drain`; send a second signal to exit now");
                running.drain().await;
            }
            End::Successor(successor) => running.hand_over(successor).await,
        }
    });
    tokio::select! {
        // Borrowed: dropping it would close the connections before they are counted.
        () = &mut drained => Ok(()),
        again = signals.stop() => {
            let (signal, cut_off) = (again.name(), tally.cut_off());
            warn!(signal, cut_off, "ending at once: a second signal cuts off what has not finished");
            tally.log();
            // Returning would wait for the threads, whose requests the second signal gives up.
            process::exit(again.exit_code().into())
        }
    }
}

/// Ready line: `andante 0.1.0 listening on http://127.0.0.1:3128, admin on http://127.0.0.1:9128`. Scripts wait for it.
fn ready_line(listen: &[SocketAddr], admin: Option<SocketAddr>) -> String {
    let listen: Vec<String> = listen.iter().map(|address| format!("http://{address}")).collect();
    let admin = admin.map_or_else(|| "off".to_owned(), |address| format!("on http://{address}"));
    format!("andante {} listening on {}, admin {admin}", env!("CARGO_PKG_VERSION"), listen.join(" and "))
}

/// The ready line for a log in JSON: in a container both streams are one.
fn ready_json(listen: &[SocketAddr], admin: Option<SocketAddr>) -> String {
    let url = |address: &SocketAddr| format!("http://{address}");
    let now = humantime::format_rfc3339_micros(UNIX_EPOCH + clock::wall()).to_string();
    json_text::line(&json!({
        "timestamp": now,
        "level": "INFO",
        "message": ready_line(listen, admin),
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "listen": listen.iter().map(url).collect::<Vec<_>>(),
        "admin": admin.as_ref().map(url),
    }))
}

fn not_given(error: io::Error) -> Failure {
    Failure::new("cannot use the sockets that LISTEN_FDS names")
        .because(error)
        .hinting("give andante listening TCP sockets, at most one of them with FileDescriptorName=admin")
}

fn not_started(error: StartError) -> Failure {
    let mut cause = error.source();
    let mut kind = None;
    while let Some(error) = cause {
        kind = kind.or_else(|| error.downcast_ref::<io::Error>().map(io::Error::kind));
        cause = error.source();
    }
    let hint = match kind {
        Some(io::ErrorKind::AddrInUse) => {
            Some("another program listens there, perhaps another andante: choose with --listen and --admin")
        }
        Some(io::ErrorKind::PermissionDenied) => Some("ports below 1024 need privileges: choose a higher one"),
        Some(io::ErrorKind::AddrNotAvailable) => Some("use an address of this machine; `ip address` lists them"),
        _ => None,
    };
    let hint = error.hint().or(hint.map(str::to_owned));
    let failure = Failure::new("andante did not start").because(error);
    match hint {
        Some(hint) => failure.hinting(hint),
        None => failure,
    }
}

// === impl ServeArgs ===

impl ServeArgs {
    /// Loads the configuration from flags, environment and file over `base`. Prints warnings; on errors prints all
    /// problems and returns the exit code.
    pub fn load(&self, base: Config) -> Result<Config, ExitCode> {
        let sources = self.sources();
        if Config::log_of(&sources) == LogFormat::Json {
            terminal::speak_json();
        }
        match Config::load_over(base, &sources) {
            Ok((config, warnings)) => {
                terminal::problems(&warnings);
                Ok(config)
            }
            Err(problems) => {
                terminal::problems(&problems);
                Err(exit_code(&problems))
            }
        }
    }

    /// Path of the configuration file, if there is one.
    fn path(&self) -> Option<PathBuf> {
        config_path(self.config.as_ref())
    }

    /// All sources, with the file that they name.
    pub(super) fn sources(&self) -> Sources {
        self.sources_with(config_file(self.config.as_ref()))
    }

    /// All sources, with this `file`.
    pub(super) fn sources_with(&self, file: Option<File>) -> Sources {
        Sources {
            file,
            environment: environment(),
            flags: Settings {
                listen: self.listen.clone(),
                admin: self.admin.clone(),
                admin_token: self.admin_token.clone(),
                clients: self.clients.clone(),
                limits: self.limit.clone(),
                threads: self.threads.clone(),
                max_memory: self.max_memory.clone(),
                log: self.log.clone(),
                access_log: self.access_log.clone(),
                otlp: self.otlp.clone(),
                otel: Default::default(),
                intercept: self.intercept.clone(),
                upstream_ca: self.upstream_ca.clone(),
                data: self.data.clone(),
                state: self.state.clone(),
                store: self.store.clone(),
                lease: self.lease.clone(),
                fleet_size: self.fleet_size.clone(),
                store_down: self.store_down.clone(),
                floor: self.floor.clone(),
                spend: self.spend.clone(),
                trust: self.trust.clone(),
                retry: self.retry.clone(),
                breaker: self.breaker.clone(),
                log_filter: None,
                unknown: Vec::new(),
            },
        }
    }
}

/// The given file, else the one in the environment.
pub(super) fn config_file(named: Option<&PathBuf>) -> Option<File> {
    config_path(named).map(File::read)
}

fn config_path(named: Option<&PathBuf>) -> Option<PathBuf> {
    let variable = || env::var_os("ANDANTE_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from);
    named.cloned().or_else(variable)
}

/// Values of the environment. Text that is not UTF-8 is read lossily, so that it is reported and not ignored.
pub(super) fn environment() -> Settings {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    Settings::from_environment(names, |name| env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
}

/// Exit code for these problems: a mistake in a flag is a usage error.
pub(super) fn exit_code(problems: &[Diagnostic]) -> ExitCode {
    let flag = |problem: &Diagnostic| problem.is_error() && matches!(problem.place, Place::Flag(_));
    ExitCode::from(if problems.iter().any(flag) { USAGE } else { FAILED })
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::config::keys;

    #[test]
    fn the_ready_line_names_every_address() {
        let [a, b] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            ready_line(&[a], Some(b)),
            format!("andante {version} listening on http://127.0.0.1:1, admin on http://127.0.0.1:2")
        );
        assert_eq!(
            ready_line(&[a, b], None),
            format!("andante {version} listening on http://127.0.0.1:1 and http://127.0.0.1:2, admin off")
        );
    }

    #[test]
    fn the_help_has_every_flag_of_the_table_of_keys_and_no_other() {
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        let mut flags: Vec<String> =
            command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect();
        flags.retain(|flag| !["--config", "--forget", "--take-over"].contains(&flag.as_str()));
        for (_, flag) in keys::with_flags() {
            let at = flags.iter().position(|name| name == flag.name);
            flags.remove(at.unwrap_or_else(|| panic!("the help lacks {}", flag.name)));
            let arg = command.get_arguments().find(|arg| arg.get_long() == flag.name.strip_prefix("--")).unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.contains(&format!("[env: {}]", flag.variable)), "{}: {help}", flag.name);
            assert_eq!(help.contains("may be repeated"), !flag.separators.is_empty(), "{}: {help}", flag.name);
            let default = flag.default.map(|default| format!("[default: {default}"));
            assert!(default.is_none_or(|default| help.contains(&default)), "{}: {help}", flag.name);
            let has_default = flag.default.is_some() || ["--data", "--state"].contains(&flag.name);
            assert_eq!(help.contains("[default: "), has_default, "{}: {help}", flag.name);
        }
        assert!(flags.is_empty(), "not in the table of keys: {flags:?}");
    }
}
