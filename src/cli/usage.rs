//! Guesses the meaning of a wrong command line, by flags and commands of other tools.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command;
use crate::config::synonyms::{self, CommandFlags as _};

/// Commands of other tools, with advice.
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
/// Words for `init` below `ca` and `fleet`.
const MAKERS: &str = "make create new start generate setup join";

/// Similarity of two flags (Jaro-Winkler) that differ by a typing error, whatever they mean.
const CERTAIN_SLIP: f64 = 0.94;
/// Flags that discard data: no similar spelling leads to them.
const DESTRUCTIVE: [&str; 2] = ["--forget", "--force"];

/// Returns whether the andante that `words` start logs JSON, as far as flags and the environment's `format` show it.
/// Runs before the words are parsed, because they may be wrong.
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

/// Advice for the mistake in these `words`; `None` if it is not understood.
pub(super) fn meant(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let reached = ReachedCommand::by(words);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let wrong = text(ContextKind::InvalidArg)?;
            if wrong.starts_with('-') { reached.flag(wrong, value_of(wrong, words)) } else { reached.word(wrong) }
        }
        // clap reports a flag without its value this way, too.
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue) == Some("") => {
            reached.missing_value(text(ContextKind::InvalidArg)?)
        }
        ErrorKind::InvalidSubcommand => {
            let wrong = text(ContextKind::InvalidSubcommand)?;
            if let Some(name) = reached.path.first() {
                let makes =
                    MAKERS.split(' ').any(|word| word == wrong) && reached.command.find_subcommand("init").is_some();
                return makes.then(|| format!("write andante {name} init"));
            }
            let found = COMMANDS.iter().find(|(names, _)| names.split(' ').any(|name| name == wrong));
            found.map(|(_, instead)| (*instead).to_owned())
        }
        _ => None,
    }
}

/// The value of the unknown flag `wrong`: the word behind it or behind its `=`, unless that is a flag.
fn value_of<'a>(wrong: &'a str, words: &'a [OsString]) -> Option<&'a str> {
    let (flag, joined) = wrong.split_once('=').map_or((wrong, None), |(flag, value)| (flag, Some(value)));
    let at = words.iter().position(|word| word.to_str().is_some_and(|word| word == wrong || word.starts_with(flag)))?;
    let joined = joined.or_else(|| words[at].to_str()?.split_once('=').map(|(_, value)| value));
    let next = words.get(at + 1).and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    joined.or(next)
}

/// Similarity of a flag to the flag that it probably misspells.
const LIKELY_SLIP: f64 = 0.87;

/// The command that a command line addresses.
struct ReachedCommand {
    command: clap::Command,
    /// Name of the command, after the names of the commands above it.
    path: Vec<String>,
}

// === impl ReachedCommand ===

impl ReachedCommand {
    fn by(words: &[OsString]) -> Self {
        let (mut command, mut path) = (command(), Vec::new());
        for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
            match command.find_subcommand(word) {
                Some(below) => {
                    path.push(word.to_owned());
                    command = below.clone();
                }
                None if word.starts_with('-') => {}
                None => break,
            }
        }
        Self { command, path }
    }

    /// Form on the command line: `andante ca init`.
    fn written(&self) -> String {
        ["andante".to_owned()].into_iter().chain(self.path.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    fn flags(&self) -> impl Iterator<Item = String> {
        self.command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}"))
    }

    /// Replacement for the flag `wrong`, which has this `value`.
    fn flag(&self, wrong: &str, value: Option<&str>) -> Option<String> {
        let (name, _) = wrong.split_once('=').unwrap_or((wrong, ""));
        if self.path.is_empty() {
            let serve = Self::by(&["andante".into(), "serve".into()]);
            let of_serve = serve.has(name).then(|| format!("write andante serve {name}"));
            let by_meaning = || synonyms::flag(name, value, &serve);
            return of_serve
                .or_else(|| by_meaning().map(|hint| hint.replacen("write --", "write andante serve --", 1)));
        }
        if let Some(hint) = self.file(name, value) {
            return Some(hint);
        }
        let flags: Vec<String> = self.flags().filter(|flag| !DESTRUCTIVE.contains(&flag.as_str())).collect();
        let similar = |flag: &&String| strsim::jaro_winkler(wrong, flag) > CERTAIN_SLIP;
        let slip = flags.iter().find(similar).filter(|_| wrong.len() > 4).map(|flag| format!("write {flag}"));
        // `--limits` is both a misspelling of `--limit` and a synonym.
        let by_meaning = synonyms::flag(name, value, self);
        let suggested = slip.filter(|_| by_meaning.is_none()).or(by_meaning);
        suggested.or_else(|| {
            let near = flags.iter().map(|flag| (strsim::jaro_winkler(name, flag), flag));
            match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
                Some((likeness, flag)) if likeness > LIKELY_SLIP => {
                    Some(format!("a similar argument exists: '{flag}'"))
                }
                _ => Some(format!("{} --help shows its flags, with examples", self.written())),
            }
        })
    }

    /// Replacement for `--config FILE` for a command that takes its file without a flag.
    fn file(&self, flag: &str, value: Option<&str>) -> Option<String> {
        let takes = self.command.get_positionals().any(|arg| arg.get_id() == "file");
        let asks = matches!(flag, "--config" | "--file" | "-c" | "-f") && !self.has(flag);
        (takes && asks).then(|| format!("write {} {}", self.written(), value.unwrap_or("FILE")))
    }

    /// Replacement for a surplus word without a flag.
    fn word(&self, wrong: &str) -> Option<String> {
        if wrong.ends_with(".toml") && self.starts_proxy() {
            return Some(format!("write --config {wrong}"));
        }
        let is_limits = wrong.parse::<crate::limit::Limits>().is_ok();
        (self.has("--limit") && is_limits).then(|| format!("write host and limits as one: --limit HOST={wrong}"))
    }

    /// Example of the flag `wrong` (`--limit <HOST=LIMITS>`), whose value is missing.
    fn missing_value(&self, wrong: &str) -> Option<String> {
        let flag = wrong.split(' ').next()?;
        synonyms::example_of(flag, self)
    }
}

impl synonyms::CommandFlags for ReachedCommand {
    fn has(&self, flag: &str) -> bool {
        self.flags().any(|known| known == flag)
    }

    fn takes(&self, flag: &str, value: &str) -> bool {
        use ErrorKind::{InvalidValue, UnknownArgument, ValueValidation};
        // Missing arguments are no refusal of this one.
        let refused = |error: clap::Error| matches!(error.kind(), InvalidValue | UnknownArgument | ValueValidation);
        let is_table = self.starts_proxy() && value.starts_with('{');
        let alone = self.command.clone().no_binary_name(true);
        !is_table && !alone.try_get_matches_from([flag, value]).is_err_and(refused)
    }

    fn default_of(&self, flag: &str) -> Option<String> {
        let arg = self.command.get_arguments().find(|arg| arg.get_long() == flag.strip_prefix("--"))?;
        arg.get_default_values().first()?.to_str().map(str::to_owned)
    }

    fn starts_proxy(&self) -> bool {
        self.has("--clients") || self.has("--threads")
    }
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

    /// A synonym of each meaning from flags of other tools, and every flag of `serve`.
    fn names() -> Vec<String> {
        let serve = ReachedCommand::by(&["andante".into(), "serve".into()]);
        synonyms::names().map(|name| format!("--{name}")).chain(serve.flags()).collect()
    }

    /// The commands, as words after `andante`.
    fn paths(command: &clap::Command, above: &[String], found: &mut Vec<Vec<String>>) {
        for below in command.get_subcommands() {
            let path = [above, &[below.get_name().to_owned()]].concat();
            found.push(path.clone());
            paths(below, &path, found);
        }
    }

    #[test]
    fn each_hint_is_taken_by_the_command_that_gave_it() {
        let (mut all, mut followed) = (Vec::new(), 0);
        paths(&command(), &[], &mut all);
        for path in all {
            let reached = ReachedCommand { command: ReachedCommand::by(&words_of(&path)).command, path: path.clone() };
            for name in names().iter().filter(|name| !reached.has(name)) {
                let hint = reached.flag(name, Some("10/s")).unwrap_or_default();
                if !reached.starts_proxy() {
                    assert!(!hint.contains("in a file") && !hint.contains("limits ="), "{path:?} {name}: {hint}");
                }
                let Some(written) = hint.strip_prefix("write --") else { continue };
                let (flag, value) = written.split_once(' ').unwrap_or((written, ""));
                let value = value.trim_matches('\'');
                assert!(reached.has(&format!("--{flag}")), "{path:?} {name}: {hint}");
                if !value.is_empty() {
                    assert!(reached.takes(&format!("--{flag}"), value), "{path:?} {name}: {hint}");
                    followed += 1;
                }
                if path == ["serve"] && !value.is_empty() {
                    let words = ["andante", "serve", &format!("--{flag}"), value];
                    let cli = super::super::Cli::parse_from(words).unwrap();
                    let super::super::Command::Serve(args) = cli.command else { panic!("{hint}") };
                    let problems = crate::config::Config::load(&args.sources_with(None)).err();
                    let is_file = value.contains("FILE") || flag == "config";
                    assert!(is_file || problems.is_none(), "{name}: {hint}: {problems:?}");
                }
            }
        }
        assert!(followed > 100, "{followed}");
    }

    fn words_of(path: &[String]) -> Vec<OsString> {
        ["andante".to_owned()].into_iter().chain(path.iter().cloned()).map(OsString::from).collect()
    }

    #[test]
    fn a_hint_is_that_of_the_command_being_parsed() {
        for (words, expected) in [
            ("mock --port 9200", "write --listen 127.0.0.1:9100"),
            ("mock --rate 10/s", "write --limit 500/min"),
            ("demo --rate 5", "write --limit 50/s"),
            ("status --port 9128", "write --admin 127.0.0.1:9128"),
            ("status --interval 5", "andante status --help shows its flags"),
            ("hint --host x", "andante hint --help shows its flags"),
            ("hint --status 429", "andante hint --help shows its flags"),
            ("batch a --out b --workers 50", "write --parallel 50"),
            ("serve --workers 4", "write --threads 4"),
            ("serve --no-retry", "write --retry off"),
            ("serve --retries 3", "write retry = { tries = 3 } under a [[rule]] in a file"),
            ("serve many.toml", "write --config many.toml"),
            ("check --config many.toml", "write andante check many.toml"),
            ("--limit a.example=1/s", "write andante serve --limit"),
            ("--port 1", "write andante serve --listen 127.0.0.1:3128"),
            ("serve -l a.example=3/s", "write --limit a.example=3/s"),
            ("serve --rate=a.example=3/s", "write --limit a.example=3/s"),
            ("serve --limit", "write --limit api.example.com=500/min"),
        ] {
            let words: Vec<&str> = ["andante"].into_iter().chain(words.split(' ')).collect();
            let hint = hint(&words).unwrap_or_default();
            assert!(hint.contains(expected), "{words:?}: {hint}");
        }
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
