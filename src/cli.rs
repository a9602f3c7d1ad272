//! The command line. Each command has a file of its own; this file only selects the command.

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _};

mod access_log_queue;
mod access_log_writer;
mod admin_client;
pub mod batch;
pub mod ca;
mod ca_folder;
mod changes;
pub mod check;
pub mod completions;
pub mod ctl;
pub mod demo;
mod describe;
pub mod doctor;
pub mod env;
mod environment;
mod event_name;
pub mod explain;
mod failure;
pub mod fleet;
pub mod health;
pub mod hint;
pub mod init;
mod json_text;
mod lane_table;
mod log;
pub mod mock;
mod notify;
pub mod plan;
mod queued_bytes;
pub mod run;
pub mod serve;
mod signals;
pub mod status;
mod terminal;
pub mod top;
pub mod trust;
mod usage;
mod variables;
mod whole_number;
mod wording;

pub use self::failure::Failure;

/// Keeps a fleet of workers inside the rate limits of the APIs they call
///
/// Workers set HTTP_PROXY and HTTPS_PROXY and change nothing else. andante queues their requests and sends them at the
/// pace that each API allows.
#[derive(Debug, clap::Parser)]
#[command(name = "andante", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    /// Runs one command behind a proxy of its own
    #[command(after_help = run::EXAMPLES)]
    Run {
        #[command(flatten)]
        serve: serve::ServeArgs,
        #[command(flatten)]
        options: run::RunOptions,
    },
    /// Sends the requests of a file, and writes the answers to another
    #[command(after_help = batch::EXAMPLES)]
    Batch {
        #[command(flatten)]
        serve: serve::ServeArgs,
        #[command(flatten)]
        options: Box<batch::BatchOptions>,
    },
    Env(env::Args),
    Init(init::Args),
    Check(check::Args),
    Explain(explain::Args),
    Doctor(Box<doctor::Args>),
    Health(health::Args),
    Status(status::Args),
    Top(top::Args),
    Ctl(ctl::Args),
    Demo(demo::Args),
    Mock(mock::Args),
    Plan(plan::Args),
    Hint(hint::Args),
    Ca(ca::Args),
    Fleet(fleet::Args),
    Completions(completions::Completions),
    Man(completions::Man),
}

const EXAMPLES: &str = "\
Examples:
  andante serve --limit 'api.example.com=10/s,500/min'
  andante run --limit api.example.com=500/min -- python fetch.py
  eval \"$(andante env)\"
  andante init api.example.com
  andante check andante.toml
  andante demo

Exit codes: 0 done, 1 failed, 2 wrong usage; `andante run` returns its command's.";

/// A problem outside of the command line.
const FAILED: u8 = 1;
/// An error in the command line itself.
const USAGE: u8 = 2;

// === impl Cli ===

impl Cli {
    /// Reads the command line of this process. On a mistake or a request for help, prints the message and returns the
    /// exit code.
    pub fn read() -> Result<Self, ExitCode> {
        let words: Vec<OsString> = std::env::args_os().collect();
        if usage::asks_for_json(&words, std::env::var_os("ANDANTE_LOG_FORMAT").as_deref()) {
            terminal::speak_json();
        }
        Self::parse_from(&words).map_err(|error| terminal::usage(&error, usage::meant(&error, &words)))
    }

    fn parse_from(words: impl IntoIterator<Item: Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Executes the command. Needs a tokio runtime.
    pub async fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Serve(args) => return serve::run(args).await,
            Command::Run { serve, options } => return run_behind_proxy(&serve, options).await,
            Command::Batch { serve, options } => return send_batch(&serve, *options).await,
            Command::Env(args) => env::run(&args),
            Command::Init(args) => init::run(&args),
            Command::Check(args) => return check::run(&args),
            Command::Doctor(args) => return doctor::run(&args).await,
            Command::Explain(args) => return explain::run(&args).await,
            Command::Health(args) => return health::run(&args).await,
            Command::Status(args) => return status::run(&args).await,
            Command::Top(args) => return top::run(&args).await,
            Command::Ctl(args) => return ctl::run(&args).await,
            Command::Demo(args) => demo::run(args).await,
            Command::Mock(args) => mock::run(args).await,
            Command::Plan(args) => plan::run(args),
            Command::Hint(args) => hint::run(&args),
            Command::Ca(args) => ca::run(args),
            Command::Fleet(args) => fleet::run(args).await,
            Command::Completions(args) => completions::completions(&args),
            Command::Man(args) => completions::man(&args),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            // The reader of the output needs no more: `andante plan … | head -1`.
            Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
            Err(failure) => terminal::failure(&failure),
        }
    }
}

/// The whole command line.
fn command() -> clap::Command {
    Cli::command().mut_subcommand("run", run::command).mut_subcommand("batch", batch::command)
}

async fn run_behind_proxy(serve: &serve::ServeArgs, options: run::RunOptions) -> ExitCode {
    let config = match serve.load(run::base()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    // The terminal belongs to the command, so only warnings are logged.
    let _logging = match log::start(&config, "warn") {
        Ok(logging) => logging,
        Err(failure) => return terminal::failure(&failure),
    };
    run::run(config, options).await
}

async fn send_batch(serve: &serve::ServeArgs, options: batch::BatchOptions) -> ExitCode {
    let config = match serve.load(batch::base(&options)) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let _logging = match log::start(&config, "warn") {
        Ok(logging) => logging,
        Err(failure) => return terminal::failure(&failure),
    };
    batch::run(config, options).await
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let cli = command();
        for command in [
            "serve",
            "run",
            "batch",
            "env",
            "init",
            "check",
            "explain",
            "doctor",
            "health",
            "status",
            "top",
            "ctl",
            "demo",
            "mock",
            "plan",
            "hint",
            "ca",
            "fleet",
            "completions",
            "man",
        ] {
            let help = cli.find_subcommand(command).unwrap().clone().render_long_help().to_string();
            assert!(help.contains("Examples:\n") && help.contains(&format!("andante {command}")), "{command}:\n{help}");
        }
    }

    #[test]
    fn the_help_of_run_has_its_own_defaults() {
        let help = command().find_subcommand("run").unwrap().clone().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(help.matches("[default: a free port of 127.0.0.1]").count(), 2, "{help}");
        assert!(help.contains("[default: every host]"), "{help}");
        assert!(help.contains("[env: ANDANTE_STATE] [default: off]"), "{help}");
        assert!(!help.contains("3128") && !help.contains("9128"), "{help}");
        let words = |name: &str| {
            let help = command().find_subcommand(name).unwrap().clone().render_long_help().to_string();
            help.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let serve = words("serve");
        assert!(serve.contains("127.0.0.1:3128") && !serve.contains("every host"), "{serve}");
        assert!(
            serve.contains("[env: ANDANTE_DATA] [default: $XDG_DATA_HOME/andante, or ~/.local/share/andante]"),
            "{serve}"
        );
        let batch = words("batch");
        assert!(
            batch.contains("[env: ANDANTE_STATE] [default: ANSWERS.state]") && !batch.contains("every host"),
            "{batch}"
        );
    }

    #[test]
    fn what_stands_below_a_help_page_is_wrapped_by_the_terminal_alone() {
        fn look(command: &clap::Command) {
            let (name, text) =
                (command.get_name(), command.get_after_help().map(ToString::to_string).unwrap_or_default());
            for (line, next) in text.lines().zip(text.lines().skip(1)) {
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                assert!(
                    !(is_text(line) && is_text(next)),
                    "{name}: a paragraph is one line, and this is broken: {line}"
                );
            }
            // Largest width of clap's help.
            let wide = text.lines().find(|line| line.starts_with(' ') && line.chars().count() > 100);
            assert_eq!(wide, None, "{name}");
            command.get_subcommands().for_each(look);
        }
        look(&command());
    }

    #[test]
    fn a_hyphen_in_the_command_of_run_is_the_commands() {
        assert!(Cli::parse_from(["andante", "run", "--limit", "a=1/s", "--", "curl", "--listen"]).is_ok());
        let missing = Cli::parse_from(["andante", "run"]).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::MissingRequiredArgument);
    }
}
