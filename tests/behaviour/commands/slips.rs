//! User mistakes and their error messages. `slips/*.txt` has a command line, variables or a file for each, and the
//! required message: the mistake, its place, and the correction.

use std::fs;

use super::{andante, outcome};

/// A slip.
#[derive(Debug, Default)]
struct Slip {
    args: Vec<String>,
    variables: Vec<(String, String)>,
    /// The content of `a.toml`.
    file: Vec<String>,
    /// Lines that the output must contain.
    says: Vec<String>,
}

/// Slips of a newcomer, and similar ones.
const LISTS: [&str; 3] =
    [include_str!("slips/command_line.txt"), include_str!("slips/files.txt"), include_str!("slips/variables.txt")];
/// Stand-ins for credentials in the lists.
const SECRETS: [&str; 2] = ["hunter2", "super-secret"];
/// Minimum number of slips: a newcomer's afternoon.
const LEAST: usize = 150;

/// Reads blocks of lines: `$ args`, `VARIABLE=value`, indented lines of the file, `> output`.
fn slips(text: &str) -> Vec<Slip> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let block = |lines: &[&str]| {
        let mut slip = Slip::default();
        for line in lines {
            if let Some(args) = line.strip_prefix("$ ") {
                slip.args = args.split(' ').map(str::to_owned).collect();
            } else if let Some(said) = line.strip_prefix("> ") {
                slip.says.push(said.to_owned());
            } else if let Some(file) = line.strip_prefix("  ") {
                slip.file.push(file.to_owned());
            } else {
                let (name, value) = line.split_once('=').unwrap();
                slip.variables.push((name.to_owned(), value.to_owned()));
            }
        }
        slip
    };
    lines.split(|line| line.is_empty()).filter(|block| !block.is_empty()).map(block).collect()
}

/// The flaw of the message about `slip`.
fn misses(slip: &Slip) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.toml"), slip.file.join("\n")).unwrap();
    let mut command = andante(&slip.args.iter().map(String::as_str).collect::<Vec<_>>());
    command.current_dir(folder.path()).env("HOME", folder.path());
    command.envs(slip.variables.iter().map(|(name, value)| (name, value)));
    let (code, _, said) = outcome(command);
    let missing: Vec<_> = slip.says.iter().filter(|line| !said.lines().any(|other| other == *line)).collect();
    let told = SECRETS.iter().find(|secret| said.contains(*secret));
    let wrong = code == Some(0) || slip.says.len() < 2 || !missing.is_empty() || told.is_some();
    wrong.then(|| format!("{slip:?}\n  missing: {missing:?}, secret: {told:?}, exit code {code:?}, said:\n{said}"))
}

#[test]
fn every_slip_of_a_newcomer_is_told_what_where_and_what_to_write() {
    let slips: Vec<Slip> = LISTS.into_iter().flat_map(slips).collect();
    assert!(slips.len() >= LEAST, "{} slips", slips.len());
    let wrong: Vec<String> = slips.iter().filter_map(misses).collect();
    assert!(wrong.is_empty(), "{} of {} slips are not told:\n{}", wrong.len(), slips.len(), wrong.join("\n"));
}
