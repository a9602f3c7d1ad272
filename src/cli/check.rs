//! `andante check`: reports all problems of a configuration, or its interpretation.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

mod json;

use super::{
    FAILED, Failure, changes,
    describe::{
        access_log, added, again, authorities, cost, egress, files, https, listed, margin, max_memory, otlp, pace,
        patience, read_body, resolver, route, sharing, shown, state, store, store_down, turns,
    },
    log, serve, terminal, wording,
};
use crate::{
    app::{StartError, unusable_files},
    ca::CaError,
    config::{Clients, Config, Diagnostic, File, FleetConfig, Place, Settings, Severity, Sources, token_file},
    error::in_one_line,
    fleet::StoreDown,
    policy::{Https, Policy, Rules},
};

/// Checks a configuration: every problem at once, or how andante understands it
///
/// Starts nothing. ANDANTE_… variables are checked along with the file, as `andante serve` would use them. Named
/// certificates, keys and lists are opened.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file [env: ANDANTE_CONFIG]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object instead of text, with the problems and andante's understanding of the rules
    #[arg(long)]
    json: bool,
    /// Print the changes against this file instead: new and removed rules, keys with their old and new values, and what
    /// needs a restart
    #[arg(long, value_name = "OLD", conflicts_with = "json")]
    diff: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  andante check andante.toml
  andante check andante.toml && systemctl reload andante
  andante check new.toml --diff /etc/andante/andante.toml
  andante check --json andante.toml | jq '.problems[] | .line, .what'

Exit codes: 0 without errors (warnings alone do not count), 1 with errors.";

/// Prints the problems to standard error, or the summary to standard output.
pub fn run(args: &Args) -> ExitCode {
    let sources = Sources {
        file: serve::config_file(args.file.as_ref()),
        environment: serve::environment(),
        flags: Settings::default(),
    };
    let mut checked = Config::check(&sources);
    if checked.is_good() {
        checked.problems.extend(unstartable(&checked.config));
    }
    let (good, mut text) = (checked.is_good(), String::new());
    if args.json {
        text = format!("{:#}\n", json::report(&checked));
    } else {
        terminal::problems(&checked.problems);
        if good {
            text = match &args.diff {
                None => summary(&checked.config),
                Some(old) => match differences(old, &checked.config) {
                    Ok(differences) => differences,
                    Err(code) => return code,
                },
            };
        } else {
            let _ = writeln!(io::stderr(), "{}{}", fine(&checked.rules), counts(&checked.problems));
        }
    }
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) if good => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(FAILED),
        Err(error) => terminal::failure(&Failure::writing(error)),
    }
}

/// Errors that a start with `config` would find in well-formed files.
fn unstartable(config: &Config) -> Vec<Diagnostic> {
    let name = config.file.as_ref().map(|file| file.display().to_string().into());
    let place = name.map_or(Place::Default, |name| Place::File { name, at: None });
    // The user who checks may differ from the one who serves.
    let is_denied = |error: &StartError| matches!(error, StartError::Ca(CaError::Read { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied);
    let diagnostic = |what: String, hint: Option<String>| Diagnostic {
        severity: Severity::Error,
        place: place.clone(),
        key: None,
        what,
        hint,
    };
    let files = unusable_files(config).into_iter().filter(|error| !is_denied(error));
    let files = files.map(|error| diagnostic(in_one_line(&error), error.hint()));
    let log = log::unusable(config).filter(|failure| !failure.is_denied());
    files.chain(log.map(|failure| diagnostic(in_one_line(&failure), failure.hint().map(str::to_owned)))).collect()
}

/// Differences of `config` from the file at `old`, one per line.
fn differences(old: &PathBuf, config: &Config) -> Result<String, ExitCode> {
    let (file, environment) = (Some(File::read(old)), serve::environment());
    let old = match Config::load(&Sources { file, environment, flags: Settings::default() }) {
        Ok((old, _)) => old,
        Err(problems) => {
            terminal::problems(&problems);
            return Err(ExitCode::from(FAILED));
        }
    };
    let changes = changes::between(&old, config);
    if changes.is_empty() {
        return Ok("no differences\n".to_owned());
    }
    Ok(changes.iter().map(|change| format!("{change}\n")).collect())
}

fn counts(problems: &[Diagnostic]) -> String {
    let errors = errors(problems);
    let counted = |count, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", counted(errors, "error"), counted(problems.len() - errors, "warning"))
}

/// The rules without errors, one per line, if the file has other rules too.
fn fine(rules: &[(Arc<str>, bool)]) -> String {
    rules.iter().filter(|(_, good)| *good).map(|(name, _)| format!("fine: the rule {name}\n")).collect()
}

fn errors(problems: &[Diagnostic]) -> usize {
    problems.iter().filter(|problem| problem.is_error()).count()
}

/// andante's understanding of `config`.
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
        ("admin-token", config.admin_token.as_deref().map_or_else(|| "none".to_owned(), token_file::shown)),
        ("clients", clients),
        ("threads", config.threads.map_or_else(|| "one per core, at most 4".to_owned(), |count| count.to_string())),
        ("max-memory", max_memory(config.max_memory)),
        ("identity", format!("{:?}", config.identity).to_lowercase()),
        ("access-log", access_log(config.access_log.as_ref())),
        ("otlp", otlp(config.otlp.as_ref())),
        ("drain", wording::duration(config.drain)),
        ("intercept", listed(&config.rules.interception().hosts, "no host unless its rule says so")),
        ("upstream-ca", authorities(&config.upstream_ca)),
        ("dns", resolver(&config.dns)),
        ("data", config.data.as_deref().map_or_else(|| "the user's own folder for it".to_owned(), shown)),
        ("state", state(&config.state)),
        ("store", store(&config.fleet)),
        ("store-down", store_down(config.fleet.down)),
        ("rules", config.rules.iter().count().to_string()),
    ] {
        row(&mut text, 0, name, &value);
    }
    if !config.upstream_crl.is_empty() {
        row(&mut text, 0, "upstream-crl", &files(&config.upstream_crl));
    }
    if config.fleet.store.is_some() {
        row(&mut text, 0, "in-flight-hold", &wording::duration(config.fleet.in_flight_hold));
    }
    let (usual, otherwise) = (Policy::unruled(), config.rules.unruled());
    answers(&mut text, 0, otherwise, &[&usual]);
    for gateway in &config.gateways {
        row(&mut text, 0, "gateway", &route(gateway));
    }
    for rule in config.rules.iter() {
        describe(&mut text, rule);
        unseen(&mut text, rule, &config.rules);
        floors(&mut text, rule, &config.fleet);
        answers(&mut text, 2, rule, &[&usual, otherwise]);
    }
    text
}

/// Floors of the limits of `rule`: amounts that each andante of a fleet keeps without the store.
fn floors(text: &mut String, rule: &Policy, fleet: &FleetConfig) {
    let (Some(_), StoreDown::Floor(floor)) = (&fleet.store, fleet.down) else { return };
    let windows =
        rule.limits.iter().filter(|limit| rule.shares(limit)).map(|limit| (limit.rate.count, limit.to_string()));
    for (count, limit) in windows.chain(rule.shared_in_flight().map(|count| (count, format!("in-flight {count}")))) {
        let (count, members) = (count.get(), floor.members);
        let (own, all, lent) = (floor.of(count), floor.of_all(count), floor.lendable(count));
        row(text, 2, "floor", &format!("{own} for each of {members} of {limit}: {all} together, and {lent} are lent"));
    }
}

fn describe(text: &mut String, rule: &Policy) {
    let _ = writeln!(text, "\n{}", rule.name);
    row(text, 2, "host", &listed(&rule.hosts, "none"));
    added(rule.added.as_ref()).iter().for_each(|(key, value)| row(text, 2, key, value));
    for limit in &rule.limits {
        row(text, 2, "limit", &pace(limit));
    }
    for limit in &rule.calendar {
        row(text, 2, "limit", &limit.to_string());
    }
    if rule.limits.is_empty() && rule.calendar.is_empty() {
        row(text, 2, "limit", "none");
    }
    if let Some(cost) = cost(rule) {
        row(text, 2, "cost", &cost);
    }
    if let Some(most) = &rule.max_cost {
        row(text, 2, "max-cost", &most.to_string());
    }
    if rule.read_body.is_some() {
        row(text, 2, "read-body", &read_body(rule));
    }
    if !rule.usage.is_empty() {
        row(text, 2, "usage", &listed(&rule.usage, "none"));
    }
    if !rule.refused.is_empty() {
        row(text, 2, "refused", &listed(&rule.refused, "none"));
    }
    row(text, 2, "in-flight", &rule.in_flight.map_or_else(|| "unbounded".to_owned(), |count| count.to_string()));
    row(text, 2, "max-wait", &wording::duration(rule.max_wait));
    row(text, 2, "max-waiting", &rule.max_waiting.to_string());
    if rule.learns_patience {
        row(text, 2, "patience", patience(rule));
    }
    row(text, 2, "margin", &margin(rule.margin));
    if rule.allow_private {
        row(text, 2, "allow-private", "true");
    }
    if let Some(said) = rule.https.filter(|_| !rule.is_limited()) {
        row(text, 2, "https", https(said));
    }
    let (turns, sharing) = (turns(&rule.turns), sharing(rule));
    turns.iter().chain(&sharing).chain(&egress(&rule.egress)).for_each(|(key, value)| row(text, 2, key, value));
}

/// Describes the handling of HTTPS to the hosts of a limited rule, and the rule's keys that have no effect then.
fn unseen(text: &mut String, rule: &Policy, rules: &Rules) {
    let mut ways: Vec<Https> = rules.https_of(rule).map(|(_, way)| way).collect();
    ways.dedup();
    for way in ways.iter().filter(|_| rule.is_limited()) {
        row(text, 2, "https", &format!("{}: {}", https(*way), way.meaning()));
    }
    let keys = rule.keys_unseen();
    if !keys.is_empty() && ways.iter().any(|way| matches!(way, Https::Tunnel | Https::Turns)) {
        let what = format!("{}: for plain HTTP and gateway addresses only, not inside tunnels", keys.join(", "));
        row(text, 2, "not seen", &what);
    }
}

/// The settings on answers that differ from `others`, the defaults.
fn answers(text: &mut String, indent: usize, policy: &Policy, others: &[&Policy]) {
    let differs = |same: fn(&Policy, &Policy) -> bool| others.iter().any(|other| !same(policy, other));
    if differs(|a, b| a.spend == b.spend) {
        row(text, indent, "spend", policy.spend.as_str());
    }
    if differs(|a, b| a.trust == b.trust) {
        row(text, indent, "trust", policy.trust.as_str());
    }
    if differs(|a, b| a.retry == b.retry) {
        row(text, indent, "retry", &again(policy.retry));
    }
    if differs(|a, b| a.breaker == b.breaker) {
        row(text, indent, "breaker", if policy.breaker { "on" } else { "off" });
    }
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
            "  limit         500/min burst 5 (5 at once after a pause, else one every 120 ms)\n",
            "  in-flight     3\n",
        ] {
            assert!(summary.contains(line), "{line}\n{summary}");
        }
    }

    #[test]
    fn the_summary_says_where_everything_goes_and_no_password() {
        let text =
            b"intercept = '*.c'\nupstream-ca = 'ca.pem'\nupstream-crl = 'crl.pem'\ndns = '10.0.0.2'\ndata = '/d'\n\
            [[gateway]]\npath = '/o'\nto = 'https://a/v1'\n\
            [[rule]]\nhost = 'a'\nhttps = 'refuse'\nupstream = 'https'\nvia = 'http://me:hunter2@corp:3128'\n\
            resolve = ['10.0.0.5', '10.0.0.6']\nsource = '10.0.0.9'\nsni = 'b'\nclient-cert = 'me.pem'"
                .to_vec();
        let file = File { path: "etc/a.toml".into(), content: Ok(text) };
        let (config, _) = Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
        let summary = summary(&config);
        for line in [
            "intercept     *.c\n",
            "upstream-ca   the system's, etc/ca.pem\n",
            "upstream-crl  etc/crl.pem\n",
            "dns           10.0.0.2:53, cached\n",
            "data          /d\n",
            "gateway       /o is https://a:443/v1\n",
            "  https         refuse\n",
            "  upstream      https, also where http is asked for\n",
            "  via           http://corp:3128, with user name and password\n",
            "  resolve       10.0.0.5, 10.0.0.6\n",
            "  source        10.0.0.9\n",
            "  sni           b\n",
            "  client-cert   etc/me.pem\n",
            "  client-key    etc/me.pem\n",
        ] {
            assert!(summary.contains(line), "{line}\n{summary}");
        }
        assert!(!summary.contains("hunter2"), "{summary}");
    }

    #[test]
    fn the_summary_says_what_becomes_of_answers_where_it_is_not_the_usual() {
        let summary = |text: &str| {
            let file = File { path: "a.toml".into(), content: Ok(text.as_bytes().to_vec()) };
            summary(&Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap().0)
        };
        let usual = summary("[[rule]]\nhost = 'a'\nspend = 'mostly'\ntrust = 'stricter'\nretry = 'on'\nbreaker = 'on'");
        for key in ["spend", "trust", "retry", "breaker"] {
            assert!(!usual.contains(key), "{key}\n{usual}");
        }
        let said = summary(
            "spend = 'even'\nretry = { body = '64KiB' }\n[[rule]]\nhost = 'a'\nspend = 'mostly'\ntrust = 'api'\n\
             breaker = 'off'\n[[rule]]\nhost = 'b'\nretry = 'off'\n[[rule]]\nhost = 'c'\nretry = { body = '0' }",
        );
        for line in [
            "\nspend         even\n",
            "\nretry         on, with bodies up to 64 KiB\n",
            "  spend         mostly\n  trust         api\n  retry         on, with bodies up to 64 KiB\n  breaker       off\n",
            "  spend         even\n  retry         off\n",
            "  retry         on, without bodies\n",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
    }

    #[test]
    fn errors_and_warnings_are_counted_apart() {
        let content = Ok(b"drain = 1\nlog = 2\n[[rule]]\nhost = 'a'".to_vec());
        let sources = Sources { file: Some(File { path: "a.toml".into(), content }), ..Sources::default() };
        assert_eq!(counts(&Config::load(&sources).unwrap_err()), "2 errors, 1 warning");
    }

    #[test]
    fn the_rules_without_errors_are_named_beside_those_with() {
        let named = |text: &str| {
            let file = File { path: "a.toml".into(), content: Ok(text.as_bytes().to_vec()) };
            fine(&Config::check(&Sources { file: Some(file), ..Sources::default() }).rules)
        };
        let (good, bad) = ("[[rule]]\nhost = ['a', 'b']\nlimits = '1/s'\n", "[[rule]]\nhost = 'c'\nlimits = '1'\n");
        let named_d = "[[rule]]\nname = 'd'\nhost = 'e'\nin-flight = 1";
        assert_eq!(named(&format!("{good}{bad}{named_d}")), "fine: the rule a, b\nfine: the rule d\n");
        assert_eq!((named(bad), named("drain = 1")), (String::new(), String::new()));
    }
}
