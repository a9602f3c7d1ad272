//! `andante check`: all that is wrong with a configuration, or how it was understood.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use super::{FAILED, Failure, serve, terminal, wording};
use crate::{
    config::{Clients, Config, Problem, Settings, Sources},
    limit::{LimitSpec, MarginSpec},
    policy::Policy,
};

/// Checks a configuration: every problem at once, or how it was understood
///
/// Starts nothing. What ANDANTE_… variables say is checked along with the file, as `andante serve` would use them.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file [env: ANDANTE_CONFIG]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  andante check andante.toml
  andante check andante.toml && systemctl restart andante

Exit codes: 0 without errors (warnings alone do not count), 1 with errors.";

/// Prints the problems to standard error, or the summary to standard output.
pub fn run(args: &Args) -> ExitCode {
    let sources = Sources {
        file: serve::config_file(args.file.as_ref()),
        environment: serve::environment(),
        flags: Settings::default(),
    };
    match Config::load(&sources) {
        Ok((config, warnings)) => {
            terminal::problems(&warnings);
            match io::stdout().write_all(summary(&config).as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => terminal::failure(&Failure::writing(error)),
            }
        }
        Err(problems) => {
            terminal::problems(&problems);
            let _ = writeln!(io::stderr(), "{}", tally(&problems));
            ExitCode::from(FAILED)
        }
    }
}

fn tally(problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let counted = |count, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", counted(errors, "error"), counted(problems.len() - errors, "warning"))
}

/// How `config` was understood.
fn summary(config: &Config) -> String {
    let mut text = match &config.file {
        Some(file) => format!("{} is good\n", file.display()),
        None => "no file named; environment and defaults are good\n".to_owned(),
    };
    let listen: Vec<String> = config.listen.iter().map(|address| format!("http://{address}")).collect();
    let clients = match &config.clients {
        Clients::Loopback => "this machine".to_owned(),
        Clients::Networks(networks) => {
            let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
            format!("this machine, {}", networks.join(", "))
        }
        Clients::Any => "anybody who can connect".to_owned(),
    };
    for (name, value) in [
        ("listen", listen.join(", ")),
        ("admin", config.admin.map_or_else(|| "off".to_owned(), |address| format!("http://{address}"))),
        ("clients", clients),
        ("threads", config.threads.map_or_else(|| "one per core, at most 4".to_owned(), |count| count.to_string())),
        ("drain", wording::duration(config.drain)),
        ("rules", config.rules.iter().count().to_string()),
    ] {
        row(&mut text, 0, name, &value);
    }
    for rule in config.rules.iter() {
        describe(&mut text, rule);
    }
    text
}

fn describe(text: &mut String, rule: &Policy) {
    let hosts: Vec<String> = rule.hosts.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "\n{}", rule.name);
    row(text, 2, "host", &hosts.join(", "));
    for limit in &rule.limits {
        row(text, 2, "limit", &pace(limit));
    }
    if rule.limits.is_empty() {
        row(text, 2, "limit", "none");
    }
    row(text, 2, "in-flight", &rule.in_flight.map_or_else(|| "unbounded".to_owned(), |count| count.to_string()));
    row(text, 2, "max-wait", &wording::duration(rule.max_wait));
    row(text, 2, "max-waiting", &rule.max_waiting.to_string());
    let margin = match rule.margin {
        MarginSpec::Auto => "auto".to_owned(),
        MarginSpec::Fixed(width) => wording::duration(width),
    };
    row(text, 2, "margin", &margin);
    if rule.allow_private {
        row(text, 2, "allow-private", "true");
    }
}

/// `500/min (one every 120 ms)`.
fn pace(limit: &LimitSpec) -> String {
    format!("{limit} (one every {})", wording::duration(limit.rate.interval()))
}

fn row(text: &mut String, indent: usize, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:indent$}{name:<13} {value}", "");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    #[test]
    fn the_summary_says_how_limits_were_understood() {
        let text =
            b"clients = '10.0.0.0/8'\n[[rule]]\nhost = ['a', '*.b']\nlimits = '500/m burst 5, in-flight 3'\n".to_vec();
        let sources = Sources { file: Some(File { path: "a.toml".into(), content: Ok(text) }), ..Sources::default() };
        let (config, _) = Config::load(&sources).unwrap();
        let summary = summary(&config);
        for line in [
            "a.toml is good\n",
            "listen        http://127.0.0.1:3128\n",
            "clients       this machine, 10.0.0.0/8\n",
            "rules         1\n",
            "\na, *.b\n",
            "  limit         500/min burst 5 (one every 120 ms)\n",
            "  in-flight     3\n",
        ] {
            assert!(summary.contains(line), "{line}\n{summary}");
        }
    }

    #[test]
    fn errors_and_warnings_are_counted_apart() {
        let content = Ok(b"drain = 1\nlog = 2\n[[rule]]\nhost = 'a'".to_vec());
        let sources = Sources { file: Some(File { path: "a.toml".into(), content }), ..Sources::default() };
        assert_eq!(tally(&Config::load(&sources).unwrap_err()), "2 errors, 1 warning");
    }
}
