//! The command line. One file per command; this one only tells them apart.

use std::process::ExitCode;

use clap::Parser as _;

pub mod ca;
pub mod check;
pub mod demo;
mod failure;
pub mod health;
pub mod hint;
mod log;
pub mod mock;
mod notify;
pub mod plan;
pub mod run;
pub mod serve;
mod signals;
mod terminal;
pub mod trust;
mod variables;
mod wording;

pub use self::failure::Failure;

/// Keeps a fleet of workers inside the rate limits of the APIs they call
///
/// Workers set HTTP_PROXY and HTTPS_PROXY and change nothing else. Their requests wait in andante's queue and leave at
/// the pace that each API allows.
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
        options: run::Options,
    },
    Check(check::Args),
    Health(health::Args),
    Demo(demo::Args),
    Mock(mock::Args),
    Plan(plan::Args),
    Hint(hint::Args),
    Ca(ca::Args),
}

const EXAMPLES: &str = "\
Examples:
  andante serve --limit 'api.example.com=10/s,500/min'
  andante run --limit api.example.com=500/min -- python fetch.py
  andante check andante.toml
  andante demo

Exit codes: 0 done, 1 failed, 2 wrong usage; `andante run` returns its command's.";

/// Failed: something outside of the command line was not as it should be.
const FAILED: u8 = 1;
/// The command line itself is wrong.
const USAGE: u8 = 2;

// === impl Cli ===

impl Cli {
    /// Reads the command line of this process; on a mistake, or when asked for help, prints what there is to say and
    /// returns the exit code.
    pub fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| terminal::usage(&error))
    }

    /// Does what was asked for. Needs a tokio runtime.
    pub async fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Serve(args) => return serve::run(args).await,
            Command::Run { serve, options } => return run_behind_proxy(&serve, options).await,
            Command::Check(args) => return check::run(&args),
            Command::Health(args) => return health::run(&args).await,
            Command::Demo(args) => demo::run(args).await,
            Command::Mock(args) => mock::run(args).await,
            Command::Plan(args) => plan::run(args),
            Command::Hint(args) => hint::run(&args),
            Command::Ca(args) => ca::run(args),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            // Whoever reads our output has seen enough: `andante plan … | head -1`.
            Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
            Err(failure) => terminal::failure(&failure),
        }
    }
}

async fn run_behind_proxy(serve: &serve::ServeArgs, options: run::Options) -> ExitCode {
    let config = match serve.load(run::base()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    // The terminal belongs to the command: our own good news would only stand in its way.
    let _logging = match log::start(&config, "warn") {
        Ok(logging) => logging,
        Err(failure) => return terminal::failure(&failure),
    };
    run::run(config, options).await
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, error::ErrorKind};

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let cli = Cli::command();
        for command in ["serve", "run", "check", "health", "demo", "mock", "plan", "hint", "ca"] {
            let help = cli.find_subcommand(command).unwrap().clone().render_long_help().to_string();
            assert!(help.contains("Examples:\n") && help.contains(&format!("andante {command}")), "{command}:\n{help}");
        }
    }

    #[test]
    fn a_hyphen_in_the_command_of_run_is_the_commands() {
        assert!(Cli::try_parse_from(["andante", "run", "--limit", "a=1/s", "--", "curl", "--listen"]).is_ok());
        let missing = Cli::try_parse_from(["andante", "run"]).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::MissingRequiredArgument);
    }
}
