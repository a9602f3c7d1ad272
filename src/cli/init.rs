//! `andante init`: writes a first configuration for the given hosts.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{Failure, mock};
use crate::{
    limit::{InFlightLimit, Limits},
    policy::HostPattern,
};

/// Writes a first configuration, with a rule for each given host
///
/// Comments explain each key. The documentation of an API states its limits: give them along with the host, or write
/// them into the file. Until then andante follows the API's answers.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A host, or a URL of it, and its limits if they are known, as in api.example.com=10/s,500/min
    #[arg(value_name = "HOST[=LIMITS]", value_parser = host)]
    hosts: Vec<Host>,
    /// File to write; - is standard output
    #[arg(long, value_name = "FILE", default_value = "andante.toml")]
    out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// A host with its known limits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    pattern: HostPattern,
    limits: Limits,
}

const EXAMPLES: &str = "\
Examples:
  andante init api.example.com && andante check andante.toml
  andante init 'api.example.com=10/s,500/min' '*.example.org' --out /etc/andante/andante.toml
  andante init --out - api.example.com";

/// Writes the file.
///
/// # Errors
/// If the file exists already, or cannot be written.
pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(twice) = twice(&args.hosts) {
        let hint = "name each host once, with all its limits, as in api.example.com=10/s,500/min";
        return Err(Failure::new(format!("{twice} is named twice, and has one rule")).hinting(hint));
    }
    let text = configuration(&args.hosts);
    if args.out == Path::new("-") {
        return io::stdout().write_all(text.as_bytes()).map_err(Failure::writing);
    }
    let shown = args.out.display();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(!args.force);
    options.open(&args.out).and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => "choose another file with --out, or replace it with --force",
            _ => "choose another file with --out, or - for standard output",
        };
        Failure::new(format!("did not write {shown}")).because(error).hinting(hint)
    })?;
    mock::say(&format!(
        "wrote {shown}; andante check {shown} says how it is understood, andante serve --config {shown} uses it"
    ))
}

/// A host that is given more than once.
fn twice(hosts: &[Host]) -> Option<&HostPattern> {
    let before = |at: usize| hosts[..at].iter().any(|other| other.pattern == hosts[at].pattern);
    (0..hosts.len()).find(|at| before(*at)).map(|at| &hosts[at].pattern)
}

fn host(text: &str) -> Result<Host, String> {
    let split = if text.contains("://") && text.contains('?') {
        // The query has equals signs of its own; text behind the last one counts if it is a limit.
        text.rsplit_once('=').filter(|(_, limits)| limits.parse::<Limits>().is_ok())
    } else {
        text.split_once('=')
    };
    let (host, limits) = split.map_or((text, None), |(host, limits)| (host, Some(limits)));
    let pattern = HostPattern::in_url(host)
        .unwrap_or(host)
        .parse::<HostPattern>()
        .map_err(|error| format!("{error}; write it as in api.example.com"))?;
    let limits = limits.map(str::parse::<Limits>).transpose().map_err(|error| format!("{error}; {}", error.hint()))?;
    Ok(Host { pattern, limits: limits.unwrap_or_default() })
}

fn configuration(hosts: &[Host]) -> String {
    let mut text = HEAD.to_owned();
    for Host { pattern, limits } in hosts {
        let _ = write!(text, "\n[[rule]]\nhost = \"{pattern}\"\n{LIMITS}");
        let written: Vec<String> = limits.written().iter().map(|limit| format!("\"{limit}\"")).collect();
        if written.is_empty() {
            text.push_str("# limits = [\"10/s\", \"500/min\"]\n");
        } else {
            let _ = writeln!(text, "limits = [{}]", written.join(", "));
        }
        if let Some((_, preset)) = PRESETS.iter().find(|(host, _)| pattern.is_exactly(host)) {
            let _ = writeln!(text, "{PRESET}# preset = \"{preset}\"");
        }
        text.push_str(IN_FLIGHT);
        match limits.in_flight {
            Some(InFlightLimit::Fixed(most)) => writeln!(text, "in-flight = {most}"),
            Some(InFlightLimit::Auto) => writeln!(text, "in-flight = \"auto\""),
            None => writeln!(text, "# in-flight = 20"),
        }
        .unwrap_or_default();
        text.push_str(REST);
    }
    if hosts.is_empty() {
        text.push_str(NO_RULE);
    }
    text
}

const HEAD: &str = "\
# andante's configuration. docs/configuration.md and config/full.toml have every key; `andante check` says how this file
# is understood. What is behind a \"#\" does not count.

# Where workers connect: HTTP_PROXY=http://127.0.0.1:3128.
listen = \"127.0.0.1:3128\"
# Where /metrics, /status, /healthz and /readyz answer. Without a password: keep it on loopback.
admin = \"127.0.0.1:9128\"
# Workers on other machines: listen on an address that they reach, and name their networks.
# clients = [\"10.0.0.0/8\"]
# A line for each request: \"stderr\", or a file.
# access-log = \"access.log\"
";

const LIMITS: &str = "\
# What the API allows, as its documentation says; all of it holds. Without limits andante goes by what the API answers.
";

/// Hosts with a preset that fits all of their requests.
const PRESETS: [(&str, &str); 2] = [("api.openai.com", "openai"), ("api.anthropic.com", "anthropic")];

const PRESET: &str = "\
# Where its answers say how many tokens a request has used: for limits as in \"90000 tokens/min\".
";

const IN_FLIGHT: &str = "\
# How many requests may be on their way at once, if the API bounds that.
";

const REST: &str = "\
# How far its answers are believed: \"stricter\" also where they allow less than the limits here, \"waits\" only if they ask
# to wait, \"api\" even where they allow more.
trust = \"stricter\"
# HTTPS comes through a tunnel, in which andante counts the client's turns: the limits hold, but refusals, paths and
# costs are not seen. \"intercept\" sees all; workers must trust andante's CA then: eval \"$(andante env)\".
# https = \"intercept\"
";

const NO_RULE: &str = "
# One [[rule]] per API.
# [[rule]]
# host = \"api.example.com\"
# limits = [\"10/s\", \"500/min\"]
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, File, Sources};

    #[test]
    fn a_host_that_is_named_twice_in_whatever_spelling_is_found() {
        let hosts = |texts: &[&str]| texts.iter().map(|text| host(text).unwrap()).collect::<Vec<_>>();
        for texts in [["api.test", "api.test=1/s"], ["API.test", "api.test."]] {
            assert!(twice(&hosts(&texts)).is_some(), "{texts:?}");
        }
        assert_eq!(twice(&hosts(&["api.test", "*.api.test"])), None);
    }

    fn understood(hosts: &[&str]) -> (String, Config) {
        let hosts: Vec<Host> = hosts.iter().map(|text| host(text).unwrap()).collect();
        let text = configuration(&hosts);
        let file = File { path: "andante.toml".into(), content: Ok(text.clone().into_bytes()) };
        let (config, warnings) = Config::load(&Sources { file: Some(file), ..Sources::default() }).expect(&text);
        assert_eq!(warnings, [], "{text}");
        (text, config)
    }

    #[test]
    fn what_it_writes_is_understood_without_a_warning() {
        let (_, config) =
            understood(&["api.example.com", "*.example.org:8443=10/s burst 3,500/min strict,in-flight 4", "*"]);
        let rules: Vec<_> =
            config.rules.iter().map(|rule| (rule.name.to_string(), rule.limits.len(), rule.in_flight)).collect();
        let four = std::num::NonZeroU32::new(4).map(InFlightLimit::Fixed);
        assert_eq!(
            rules,
            [("api.example.com".into(), 0, None), ("*.example.org:8443".into(), 2, four), ("*".into(), 0, None)]
        );
        assert_eq!(understood(&[]).1.rules.iter().count(), 0);
    }

    #[test]
    fn a_host_that_a_preset_is_for_is_offered_it() {
        let (text, _) = understood(&["https://api.openai.com/v1", "api.anthropic.com=50/min", "openai.example.com"]);
        assert_eq!(text.matches("preset = ").count(), 2, "{text}");
        let text = text.replace("# preset = ", "preset = ");
        let file = File { path: "andante.toml".into(), content: Ok(text.clone().into_bytes()) };
        let (config, _) = Config::load(&Sources { file: Some(file), ..Sources::default() }).expect(&text);
        let usage: Vec<usize> = config.rules.iter().map(|rule| rule.usage.len()).collect();
        assert_eq!(usage, [5, 3, 0]);
    }

    #[test]
    fn what_stands_behind_a_hash_is_understood_once_it_does_not() {
        let (text, _) = understood(&["api.example.com"]);
        let is_key = |line: &str| {
            line.strip_prefix("# ").is_some_and(|rest| {
                rest.split_once(" = ").is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
            })
        };
        let text: String =
            text.lines().map(|line| format!("{}\n", if is_key(line) { &line[2..] } else { line })).collect();
        assert_eq!(text.matches("\nlimits = ").count(), 1, "{text}");
        let file = File { path: "andante.toml".into(), content: Ok(text.clone().into_bytes()) };
        let (config, warnings) = Config::load(&Sources { file: Some(file), ..Sources::default() }).expect(&text);
        assert_eq!(warnings, [], "{text}");
        assert_eq!(config.rules.iter().next().unwrap().limits.len(), 2);
    }

    #[test]
    fn a_url_names_its_host() {
        for (url, expected) in [
            ("https://api.example.com/v1/x", "api.example.com"),
            ("http://API.example.com:8080", "api.example.com:8080"),
            ("https://me:hunter2@[2001:db8::1]:8443/", "[2001:db8::1]:8443"),
            ("https://api.example.com?key=10&other=x", "api.example.com"),
        ] {
            assert_eq!(host(url).unwrap().pattern.to_string(), expected, "{url}");
        }
        for url in ["https://api.example.com/v1=10/s", "https://api.example.com/v1?key=x=10/s"] {
            let limited = host(url).unwrap();
            assert_eq!(
                (&*limited.pattern.to_string(), &*limited.limits.to_string()),
                ("api.example.com", "10/s"),
                "{url}"
            );
        }
    }

    #[test]
    fn a_mistake_comes_with_what_to_write() {
        assert!(host("api.example.com/v1").unwrap_err().contains("write it as in api.example.com"));
        assert!(host("https:///v1").unwrap_err().contains("write it as in api.example.com"));
        assert!(host("a=500 a min").unwrap_err().contains("500/min"));
    }
}
