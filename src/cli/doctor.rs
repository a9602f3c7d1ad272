//! `andante doctor`: checks everything that andante and its workers need, and gives advice on problems.

mod machine;
mod trial;
mod trust;
mod tunnels;
mod variables;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use serde::Serialize;

use super::{FAILED, Failure, json_text, log, serve::ServeArgs, terminal};
use crate::{
    app::unusable_files,
    config::{Config, Diagnostic},
    error::in_one_line,
};

/// Checks what andante and its workers need: ports, the CA, variables, clock, files, store, and a paced request each way
///
/// Takes the flags of `andante serve` and checks the settings of such a start; it does not read a running andante's.
/// Sends requests only to a mock API of its own on loopback, and to the store if there is one. Reads the variables of
/// this shell: run it where the workers run, too.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    serve: ServeArgs,
    /// Print one JSON array instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  andante doctor
  andante doctor --config /etc/andante/andante.toml
  andante doctor --json | jq '.[] | select(.ok | not)'

Exit codes: 0 everything is ok, 1 something is not, 2 wrong usage.";

/// Result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// Subject of the check.
    name: &'static str,
    ok: bool,
    /// The check's action, its object, and its result.
    detail: String,
    /// Advice.
    hint: Option<String>,
}

// === impl Finding ===

impl Finding {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), hint: None }
    }

    fn not_ok(name: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into(), hint: Some(hint.into()) }
    }

    fn lines(&self) -> String {
        let mark = match (self.ok, &self.hint) {
            (true, None) => "ok    ",
            // A neutral result: whether it is good depends on where workers run.
            (true, Some(_)) => "note  ",
            (false, _) => "not ok",
        };
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("{:8}{:<12}{hint}\n", "", "-> do"));
        format!("{mark}  {:<12}{}\n{hint}", self.name, self.detail)
    }
}

/// Prints each finding as soon as it is known.
pub async fn run(args: &Args) -> ExitCode {
    let config = match args.serve.load(Config::default()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let mut report = DoctorReport { findings: Vec::new(), json: args.json, unread: None };
    let file = config.file.as_ref().map_or_else(|| "no file, defaults".to_owned(), |file| file.display().to_string());
    let rules = match config.rules.iter().count() {
        1 => "1 rule".to_owned(),
        rules => format!("{rules} rules"),
    };
    let mut found = Finding::ok("config", format!("{file}: {rules}"));
    if machine::andante_runs(&config).await {
        // The running andante may have the same file and variables, but only that process knows its flags.
        found.detail += "; the flags of the andante that runs here are not read";
        found.hint =
            Some("give doctor the flags that it was started with, such as --config, --limit, --intercept".into());
    }
    report.add([found]);
    report.add(file_findings(&Config::check_files(&args.serve.sources()), &config));
    report.add(machine::ports(&config).await);
    report.add([machine::files(), machine::clock().await]);
    report.add(machine::state(&config));
    report.add(machine::store(&config).await);
    report.add(trust::findings(&config, |name| std::env::var_os(name)));
    report.add(tunnels::findings(&config.rules));
    report.add(variables::findings(&config, |name| std::env::var_os(name)));
    report.add(trial::findings().await);
    report.end()
}

/// Problems of the files that the configuration names: those that `andante check` finds in them, or else those for
/// which `andante serve` would not start.
fn file_findings(problems: &[Diagnostic], config: &Config) -> Vec<Finding> {
    let elsewhere = || "`andante serve` says the same".to_owned();
    let found = |problem: &Diagnostic| {
        let hint = Some(problem.hint.clone().unwrap_or_else(elsewhere));
        Finding { name: FILES, ok: !problem.is_error(), detail: problem.to_string(), hint }
    };
    let unstartable = |what: String, hint: Option<String>| {
        Finding::not_ok(FILES, format!("andante would not start: {what}"), hint.unwrap_or_else(elsewhere))
    };
    let mut all: Vec<Finding> = problems.iter().map(found).collect();
    if all.iter().all(|finding| finding.ok) {
        all.extend(unusable_files(config).iter().map(|error| unstartable(in_one_line(error), error.hint())));
    }
    let log = log::unusable(config);
    all.extend(log.map(|failure| unstartable(in_one_line(&failure), failure.hint().map(str::to_owned))));
    all
}

/// Subject of the findings about files.
const FILES: &str = "files";

/// Findings so far.
struct DoctorReport {
    findings: Vec<Finding>,
    json: bool,
    unread: Option<io::Error>,
}

// === impl DoctorReport ===

impl DoctorReport {
    fn add(&mut self, found: impl IntoIterator<Item = Finding>) {
        for finding in found {
            if !self.json {
                self.print(&finding.lines());
            }
            self.findings.push(finding);
        }
    }

    fn print(&mut self, text: &str) {
        if let Err(error) = io::stdout().write_all(text.as_bytes()) {
            self.unread.get_or_insert(error);
        }
    }

    fn end(mut self) -> ExitCode {
        let wrong = self.findings.iter().filter(|finding| !finding.ok).count();
        let text = match (self.json, wrong) {
            (true, _) => json_text::pretty(&self.findings) + "\n",
            (false, 0) => "everything is ok\n".to_owned(),
            (false, wrong) => format!("{wrong} of {} not ok\n", self.findings.len()),
        };
        self.print(&text);
        match self.unread {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => terminal::failure(&Failure::writing(error)),
            _ if wrong > 0 => ExitCode::from(FAILED),
            _ => ExitCode::SUCCESS,
        }
    }
}
