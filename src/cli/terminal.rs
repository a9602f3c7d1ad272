//! What people see when something is wrong: `error:`, `caused by:`, `hint:`, `warning:`, in colour on a terminal.

use std::{
    env,
    error::Error,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use super::{FAILED, Failure, USAGE};
use crate::config::Diagnostic;

/// A line's first word, with its colour (ANSI SGR).
#[derive(Clone, Copy)]
enum LineLabel {
    Error,
    CausedBy,
    Hint,
    Warning,
}

/// Prints why a command failed.
pub(super) fn failure(failure: &Failure) -> ExitCode {
    let mut lines = vec![(LineLabel::Error, failure.to_string())];
    let mut cause = failure.source();
    while let Some(error) = cause {
        // Some libraries print their cause as well as naming it: once is enough.
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

/// Prints what is wrong with a configuration.
pub(super) fn problems(problems: &[Diagnostic]) {
    let mut lines = Vec::new();
    for problem in problems {
        let label = if problem.is_error() { LineLabel::Error } else { LineLabel::Warning };
        lines.push((label, problem.to_string()));
        lines.extend(problem.hint.iter().map(|hint| (LineLabel::Hint, hint.clone())));
    }
    print(&lines);
}

/// Prints a warning, and a way around it.
pub(super) fn warning(what: &str, hint: &str) {
    print(&[(LineLabel::Warning, what.to_owned()), (LineLabel::Hint, hint.to_owned())]);
}

/// Prints a mistake on the command line, or the help that was asked for.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand) {
        // Nobody is left to be told that nobody reads.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
    }
    print(&usage_lines(&error.render().to_string()));
    ExitCode::from(USAGE)
}

/// clap's rendering in our words: its tips are hints, and what it puts on further lines belongs to the error.
fn usage_lines(rendered: &str) -> Vec<(LineLabel, String)> {
    let mut wrong = String::new();
    let mut hints = Vec::new();
    for line in rendered.lines().map(str::trim) {
        if line.starts_with("tip: to pass ") {
            // Meant for values that look like flags, and offered for each flag that there is not.
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            hints.push((LineLabel::Hint, tip.to_owned()));
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            hints.push((LineLabel::Hint, format!("usage: {usage}")));
        } else if !line.is_empty() && !line.starts_with("For more information") {
            let glue = if wrong.is_empty() { "" } else { " " };
            wrong = format!("{wrong}{glue}{}", line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    if !hints.iter().any(|(_, hint)| !hint.starts_with("usage: ")) {
        hints.insert(0, (LineLabel::Hint, "--help shows what there is, with examples".to_owned()));
    }
    [vec![(LineLabel::Error, wrong)], hints].concat()
}

/// Whether standard error shows colours, and nobody minds (<https://no-color.org>).
pub(super) fn colourful() -> bool {
    io::stderr().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

fn print(lines: &[(LineLabel, String)]) {
    let mut stderr = io::stderr().lock();
    let colour = colourful();
    for (label, text) in lines {
        // Nothing can be done about a closed standard error; the exit code still reports the failure.
        let _ = writeln!(stderr, "{}", label.line(text, colour));
    }
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
            plain(&usage_lines(rendered)),
            "error: unexpected argument '--lisen' found\nhint: a similar argument exists: '--listen'\n\
             hint: usage: andante serve --listen <ADDR>\n"
        );
    }

    #[test]
    fn a_flag_of_another_command_is_no_value() {
        let rendered = "error: unexpected argument '--store' found\n\n  tip: to pass '--store' as a value, use '-- --store'\n\n\
                        Usage: andante check [OPTIONS] [FILE]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            plain(&usage_lines(rendered)),
            "error: unexpected argument '--store' found\nhint: --help shows what there is, with examples\n\
             hint: usage: andante check [OPTIONS] [FILE]\n"
        );
    }

    #[test]
    fn further_lines_belong_to_the_error() {
        let rendered = "error: the following required arguments were not provided:\n  <COMMAND>...\n";
        assert_eq!(
            plain(&usage_lines(rendered)),
            "error: the following required arguments were not provided: <COMMAND>...\n\
             hint: --help shows what there is, with examples\n"
        );
    }

    #[test]
    fn colour_is_around_the_first_word_alone() {
        assert_eq!(LineLabel::Hint.line("x", true), "\x1b[1;36mhint:\x1b[0m x");
    }
}
