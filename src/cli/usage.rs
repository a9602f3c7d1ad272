//! What is meant by a command line with a mistake in it: flags and commands that other tools have.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command;
use crate::config::synonyms;

/// Commands of other tools, and what to write instead.
const COMMANDS: [(&str, &str); 16] = [
    ("start server proxy up daemon listen launch gateway", "write andante serve"),
    ("stop shutdown kill quit exit", "send it SIGTERM, or write andante ctl drain: queued requests may finish"),
    ("reload", "a changed file is loaded within a second; kill -HUP PID loads it at once"),
    ("restart", "stop it by SIGTERM, and start it again: andante serve"),
    ("validate test lint verify config conf configtest", "write andante check FILE"),
    ("version", "write andante --version"),
    ("pause resume limit weights forget drop first drain", "write andante ctl COMMAND, as in andante ctl pause HOST"),
    ("logs log", "the log is on standard error; with systemd journalctl -u andante shows it"),
    ("metrics", "metrics are at the admin address: curl http://127.0.0.1:9128/metrics"),
    ("ps list ls lanes queue queues stats info show limits", "write andante status"),
    ("watch monitor dashboard ui", "write andante top, or open the page at the admin address"),
    ("cert certs certificate certificates", "write andante ca show, or andante ca init"),
    ("new create setup configure generate", "write andante init HOST"),
    ("bench simulate estimate forecast", "write andante plan --limit 500/min --requests 20000"),
    ("exec wrap with", "write andante run --limit HOST=500/min -- COMMAND"),
    ("ping healthcheck ready live", "write andante health"),
];
/// Commands below `ca` and `fleet`.
const MAKERS: &str = "make create new start generate setup join";

/// Similarity of two flags (Jaro-Winkler) that differ by a slip of the keyboard, whatever they mean.
const CERTAIN_SLIP: f64 = 0.94;
/// Flags that throw something away: nobody is led to them by their spelling.
const DESTRUCTIVE: [&str; 2] = ["--forget", "--force"];

/// Whether the log of the andante that `words` start is JSON, as far as flags and the environment's `format` say it. Looked at
/// before the words are parsed, since they may be wrong.
pub(super) fn asks_for_json(words: &[OsString], format: Option<&OsStr>) -> bool {
    let words: Vec<&str> =
        words.iter().skip(1).map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    if !words.first().is_some_and(|command| STARTING.contains(command)) {
        return false;
    }
    let follows = |at: usize| words.get(at + 1).copied();
    let of_flag = words.iter().enumerate().rev().find_map(|(at, word)| match *word {
        "--log" => follows(at),
        word => word.strip_prefix("--log="),
    });
    of_flag.map_or_else(|| format.is_some_and(|format| format == "json"), |format| format == "json")
}

/// Commands that have a log.
const STARTING: [&str; 3] = ["serve", "run", "batch"];

/// What to write in the place of what is wrong with these `words`; `None` if it is not understood.
pub(super) fn meant(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let reached = reached(words);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let wrong = text(ContextKind::InvalidArg)?;
            if wrong.starts_with('-') { flag(wrong, &reached) } else { word(wrong, &reached) }
        }
        ErrorKind::InvalidSubcommand => {
            let wrong = text(ContextKind::InvalidSubcommand)?;
            if reached.get_name() != "andante" {
                let makes = MAKERS.split(' ').any(|word| word == wrong) && reached.find_subcommand("init").is_some();
                return makes.then(|| format!("write andante {} init", reached.get_name()));
            }
            let found = COMMANDS.iter().find(|(names, _)| names.split(' ').any(|name| name == wrong));
            found.map(|(_, instead)| (*instead).to_owned())
        }
        _ => None,
    }
}

/// The command that `words` reach.
fn reached(words: &[OsString]) -> clap::Command {
    let mut command = command();
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(below) => command = below.clone(),
            None if word.starts_with('-') => {}
            None => break,
        }
    }
    command
}

fn flag(wrong: &str, command: &clap::Command) -> Option<String> {
    let flags: Vec<String> =
        command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect();
    let has = |flag: &str| flags.iter().any(|known| known == flag);
    let is_destructive = |flag: &&String| DESTRUCTIVE.contains(&flag.as_str());
    let similar = |flag: &&String| strsim::jaro_winkler(wrong, flag) > CERTAIN_SLIP && !is_destructive(flag);
    let slip = flags.iter().find(similar).filter(|_| wrong.len() > 4).map(|flag| format!("write {flag}"));
    // `--limits` is a slip of `--limit` as well as a word for it.
    let (name, _) = wrong.split_once('=').unwrap_or((wrong, ""));
    let by_meaning = synonyms::flag(name, has);
    let suggested = slip.filter(|_| by_meaning.is_none()).or(by_meaning);
    suggested.or_else(|| {
        let near = flags.iter().filter(|flag| !is_destructive(flag));
        let near = near.map(|flag| (strsim::jaro_winkler(name, flag), flag)).max_by(|a, b| a.0.total_cmp(&b.0));
        let command = match command.get_name() {
            "andante" => "andante".to_owned(),
            name => format!("andante {name}"),
        };
        match near {
            Some((likeness, flag)) if likeness > LIKELY_SLIP => Some(format!("a similar argument exists: '{flag}'")),
            _ => Some(format!("{command} --help shows its flags, with examples")),
        }
    })
}

/// Similarity of two flags of which one is probably meant by the other.
const LIKELY_SLIP: f64 = 0.87;

/// What to write where a word without a flag is one too many.
fn word(wrong: &str, command: &clap::Command) -> Option<String> {
    let has_limit = command.get_arguments().any(|arg| arg.get_long() == Some("limit"));
    let is_limits = wrong.parse::<crate::limit::Limits>().is_ok();
    (has_limit && is_limits).then(|| format!("write host and limits as one: --limit HOST={wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        meant(&super::super::Cli::parse_from(&words).unwrap_err(), &words)
    }

    #[test]
    fn flags_of_other_tools_are_told_by_meaning_and_never_lead_to_one_that_throws_away() {
        for (flag, expected) in [
            ("--port", "write --listen 127.0.0.1:3128"),
            ("-p", "write --listen 127.0.0.1:3128"),
            ("--limits", "write --limit api.example.com=500/min"),
            ("--lisen", "write --listen"),
            ("--forgot", "andante serve --help shows"),
            ("--concurrency", "write --limit 'api.example.com=in-flight 20'"),
            ("--max-wait", "max-wait = \"10m\" under a [[rule]] in a file"),
        ] {
            let hint = hint(&["andante", "serve", flag]).unwrap();
            assert!(hint.contains(expected), "{flag}: {hint}");
        }
        assert!(!hint(&["andante", "status", "--port"]).unwrap().contains("--listen"), "it has no such flag");
    }

    #[test]
    fn json_is_asked_for_by_flag_or_variable_of_a_command_that_has_a_log() {
        let asks = |words: &[&str], format: Option<&str>| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            asks_for_json(&words, format.map(OsStr::new))
        };
        assert!(asks(&["andante", "serve", "--log", "json", "--lisen"], None));
        assert!(asks(&["andante", "run", "--log=json"], None) && asks(&["andante", "batch"], Some("json")));
        assert!(!asks(&["andante", "serve", "--log", "text"], Some("json")), "the flag wins");
        assert!(!asks(&["andante", "run", "--", "x", "--log", "json"], None), "that is the command's");
        assert!(!asks(&["andante", "plan", "--log", "json"], None), "a file");
    }

    #[test]
    fn commands_of_other_tools_are_told_by_meaning() {
        assert_eq!(hint(&["andante", "start"]).unwrap(), "write andante serve");
        assert_eq!(hint(&["andante", "ca", "make"]).unwrap(), "write andante ca init");
        assert_eq!(hint(&["andante", "sevre"]), None, "clap tells slips");
    }
}
