//! Messages for people when something is wrong: `error:`, `caused by:`, `hint:`, `warning:`, in colour on a terminal.

use std::{
    env,
    error::Error,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    panic,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::UNIX_EPOCH,
};

use serde_json::{Map, Value};

use super::{FAILED, Failure, USAGE, json_text};
use crate::{clock, config::Diagnostic};

/// Messages are JSON, like the log: in a container both go to one collector.
static JSON: AtomicBool = AtomicBool::new(false);

/// Writes messages as JSON from now on, panics included.
pub(super) fn speak_json() {
    if JSON.swap(true, Ordering::Relaxed) {
        return;
    }
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let location = info.location().map(ToString::to_string);
        print_json(panicked(text, location));
    }));
}

/// Returns whether messages are JSON.
pub(super) fn speaks_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// First word of a line, with its colour (ANSI SGR).
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineLabel {
    Error,
    CausedBy,
    Hint,
    Warning,
}

/// Prints a command's failure.
pub(super) fn failure(failure: &Failure) -> ExitCode {
    let mut lines = vec![(LineLabel::Error, failure.to_string())];
    let mut cause = failure.source();
    while let Some(error) = cause {
        // Prints a cause once that a library both includes in its message and returns.
        let text = error.to_string();
        if lines.last().is_none_or(|(_, last)| *last != text) {
            lines.push((LineLabel::CausedBy, text));
        }
        cause = error.source();
    }
    lines.extend(failure.hint().map(|hint| (LineLabel::Hint, hint.to_owned())));
    print(&lines);
    ExitCode::from(FAILED)
}

/// Prints the problems of a configuration.
pub(super) fn problems(problems: &[Diagnostic]) {
    let mut lines = Vec::new();
    for problem in problems {
        let label = if problem.is_error() { LineLabel::Error } else { LineLabel::Warning };
        lines.push((label, problem.to_string()));
        lines.extend(problem.hint.iter().map(|hint| (LineLabel::Hint, hint.clone())));
    }
    print(&lines);
}

/// Prints a warning, with a way around it.
pub(super) fn warning(what: &str, hint: &str) {
    print(&[(LineLabel::Warning, what.to_owned()), (LineLabel::Hint, hint.to_owned())]);
}

/// Prints a mistake on the command line, or the requested help.
///
/// `meant` is the advice, if the mistake is understood.
pub(super) fn usage(error: &clap::Error, meant: Option<String>) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand) {
        // Without a reader of the output, no message can reach the user.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
    }
    print(&usage_lines(&error.render().to_string(), meant));
    ExitCode::from(USAGE)
}

/// Rewrites clap's message: its tips become hints, and its further lines belong to the error.
///
/// clap's tips compare spelling alone, and its usage line is that of the suggested flag. The advice in `meant` replaces
/// both.
fn usage_lines(rendered: &str, meant: Option<String>) -> Vec<(LineLabel, String)> {
    let mut wrong = String::new();
    let is_understood = meant.is_some();
    let mut hints: Vec<_> = meant.into_iter().map(|meant| (LineLabel::Hint, meant)).collect();
    for line in rendered.lines().map(str::trim) {
        if line.starts_with("tip: to pass ") {
            // clap's tip for values that look like flags, which it gives for each unknown flag.
        } else if is_understood && (line.starts_with("tip: ") || line.starts_with("Usage: ")) {
            // The tip or the usage may be for a flag other than the intended one.
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            hints.push((LineLabel::Hint, tip.to_owned()));
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            hints.push((LineLabel::Hint, format!("usage: {usage}")));
        } else if !line.is_empty() && !line.starts_with("For more information") {
            let glue = if wrong.is_empty() { "" } else { " " };
            wrong = format!("{wrong}{glue}{}", line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    // Parsers of values put advice behind a semicolon.
    if let Some((what, hint)) = wrong.clone().rsplit_once("; ")
        && ["write ", "leave ", "name ", "a limit ", "counts "].iter().any(|verb| hint.starts_with(verb))
    {
        hints.insert(0, (LineLabel::Hint, hint.to_owned()));
        what.clone_into(&mut wrong);
    }
    if !hints.iter().any(|(_, hint)| !hint.starts_with("usage: ")) {
        hints.insert(0, (LineLabel::Hint, "--help shows what there is, with examples".to_owned()));
    }
    [vec![(LineLabel::Error, wrong)], hints].concat()
}

/// Returns whether standard error shows colours, and the user has not switched them off (<https://no-color.org>).
pub(super) fn colourful() -> bool {
    io::stderr().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

fn print(lines: &[(LineLabel, String)]) {
    if speaks_json() {
        return json_objects(lines).into_iter().for_each(print_json);
    }
    let mut stderr = io::stderr().lock();
    let colour = colourful();
    for (label, text) in lines {
        // A closed standard error is ignored; the exit code still reports the failure.
        let _ = writeln!(stderr, "{}", label.line(text, colour));
    }
}

/// Objects for errors and warnings, with their causes and hints, as in the log.
fn json_objects(lines: &[(LineLabel, String)]) -> Vec<Map<String, Value>> {
    let mut objects: Vec<Map<String, Value>> = Vec::new();
    for (label, text) in lines {
        let list = match label {
            LineLabel::Error | LineLabel::Warning => {
                objects.push(json_object(*label, text));
                continue;
            }
            LineLabel::CausedBy => "caused_by",
            LineLabel::Hint => "hints",
        };
        if let Some(object) = objects.last_mut()
            && let Value::Array(texts) = object.entry(list).or_insert_with(|| Value::Array(Vec::new()))
        {
            texts.push(text.as_str().into());
        }
    }
    objects
}

/// A panic with its `text`, and its source location.
fn panicked(text: String, location: Option<String>) -> Map<String, Value> {
    let mut object = json_object(LineLabel::Error, "panicked");
    object.insert("event".into(), "panicked".into());
    object.insert("panic".into(), text.into());
    object.extend(location.map(|at| ("location".into(), at.into())));
    object
}

fn json_object(label: LineLabel, message: &str) -> Map<String, Value> {
    let (level, event) = if label == LineLabel::Warning { ("WARN", "warning") } else { ("ERROR", "error") };
    let now = humantime::format_rfc3339_micros(UNIX_EPOCH + clock::wall()).to_string();
    [("timestamp", now.as_str()), ("level", level), ("event", event), ("message", message)]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

fn print_json(object: Map<String, Value>) {
    // A closed standard error is ignored; the exit code still reports the failure.
    let _ = writeln!(io::stderr().lock(), "{}", json_text::line(&object));
}

// === impl LineLabel ===

impl LineLabel {
    fn line(self, text: impl Display, colour: bool) -> String {
        let (word, code) = match self {
            Self::Error => ("error:", "1;31"),
            Self::CausedBy => ("caused by:", "1;31"),
            Self::Hint => ("hint:", "1;36"),
            Self::Warning => ("warning:", "1;33"),
        };
        if colour { format!("\x1b[{code}m{word}\x1b[0m {text}") } else { format!("{word} {text}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(lines: &[(LineLabel, String)]) -> String {
        lines.iter().map(|(label, text)| label.line(text, false) + "\n").collect()
    }

    #[test]
    fn a_mistyped_flag_is_an_error_and_a_hint() {
        let rendered = "error: unexpected argument '--lisen' found\n\n  tip: a similar argument exists: '--listen'\n\n\
                        Usage: andante serve --listen <ADDR>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            plain(&usage_lines(rendered, None)),
            "error: unexpected argument '--lisen' found\nhint: a similar argument exists: '--listen'\n\
             hint: usage: andante serve --listen <ADDR>\n"
        );
    }

    #[test]
    fn a_flag_of_another_command_is_no_value() {
        let rendered = "error: unexpected argument '--store' found\n\n  tip: to pass '--store' as a value, use '-- --store'\n\n\
                        Usage: andante check [OPTIONS] [FILE]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            plain(&usage_lines(rendered, None)),
            "error: unexpected argument '--store' found\nhint: --help shows what there is, with examples\n\
             hint: usage: andante check [OPTIONS] [FILE]\n"
        );
    }

    #[test]
    fn further_lines_belong_to_the_error() {
        let rendered = "error: the following required arguments were not provided:\n  <COMMAND>...\n";
        assert_eq!(
            plain(&usage_lines(rendered, None)),
            "error: the following required arguments were not provided: <COMMAND>...\n\
             hint: --help shows what there is, with examples\n"
        );
    }

    #[test]
    fn in_json_a_panic_is_one_object_on_one_line() {
        let line = json_text::line(&panicked("a\nb".into(), Some("src/x.rs:1:2".into())));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert!(!line.contains('\n') && object["timestamp"].is_string(), "{line}");
        let said = ["level", "message", "panic", "location"].map(|name| object[name].as_str().unwrap());
        assert_eq!(said, ["ERROR", "panicked", "a\nb", "src/x.rs:1:2"]);
    }

    #[test]
    fn in_json_each_problem_is_an_object_with_its_causes_and_hints() {
        let line = |label, text: &str| (label, text.to_owned());
        let lines = [
            line(LineLabel::Error, "did not start"),
            line(LineLabel::CausedBy, "address in use"),
            line(LineLabel::Hint, "choose another"),
            line(LineLabel::Warning, "and this"),
        ];
        let objects = json_objects(&lines);
        assert_eq!(objects.len(), 2);
        assert_eq!((&objects[0]["level"], &objects[0]["message"]), (&"ERROR".into(), &"did not start".into()));
        assert_eq!(objects[0]["caused_by"], serde_json::json!(["address in use"]));
        assert_eq!(objects[0]["hints"], serde_json::json!(["choose another"]));
        assert_eq!((&objects[1]["level"], &objects[1]["event"]), (&"WARN".into(), &"warning".into()));
    }

    #[test]
    fn colour_is_around_the_first_word_alone() {
        assert_eq!(LineLabel::Hint.line("x", true), "\x1b[1;36mhint:\x1b[0m x");
    }
}
