//! Tools for packagers and new users: a first configuration, completions, and the manual.

use std::{fs, process::Command};

use super::{andante, outcome};

const COMMANDS: [&str; 12] =
    ["serve", "run", "init", "check", "health", "demo", "mock", "plan", "hint", "ca", "completions", "man"];

#[test]
fn init_writes_what_check_finds_good_and_never_overwrites_unasked() {
    let place = tempfile::tempdir().unwrap();
    let init = |args: &[&str]| {
        let mut command = andante(&[&["init"], args].concat());
        command.current_dir(place.path());
        outcome(command)
    };
    let (code, stdout, stderr) = init(&["api.example.com=500/min,in-flight 20", "*.example.org"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("wrote andante.toml; andante check andante.toml "), "{stdout}");
    let path = place.path().join("andante.toml");
    let (code, stdout, stderr) = outcome(andante(&["check", path.to_str().unwrap()]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    for line in ["\nrules         2\n", "  limit         500/min (one every 120 ms)\n", "  in-flight     20\n"] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }

    let before = fs::read_to_string(&path).unwrap();
    let (code, _, stderr) = init(&["other.example"]);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: did not write andante.toml\n") && stderr.contains("--force"), "{stderr}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert_eq!(init(&["--force", "other.example"]).0, Some(0));
    assert!(fs::read_to_string(&path).unwrap().contains("host = \"other.example\""));
    assert_eq!(init(&["--out", "-", "third.example"]).1.matches("third.example").count(), 1);
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, stdout, stderr) = outcome(andante(&["completions", shell]));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{shell}");
        for command in COMMANDS {
            assert!(stdout.contains(command), "{shell}: {command}");
        }
        assert!(stdout.contains("access-log"), "{shell}");
    }
    // The shell itself takes them.
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("andante");
    fs::write(&script, outcome(andante(&["completions", "bash"])).1).unwrap();
    let words =
        "source $1; COMP_WORDS=(andante comp) COMP_CWORD=1; _andante andante comp andante; echo ${COMPREPLY[*]}";
    let said = Command::new("bash").args(["-c", words, "bash"]).arg(&script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "completions", "{said:?}");
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let (code, stdout, stderr) = outcome(andante(&["man"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains(".TH andante 1"), "{stdout}");
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("man1");
    assert_eq!(outcome(andante(&["man", folder.to_str().unwrap()])).0, Some(0));
    let pages: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for command in COMMANDS {
        assert!(pages.contains(&format!("andante-{command}.1")), "{command}: {pages:?}");
    }
    assert!(pages.contains(&"andante.1".to_owned()) && pages.contains(&"andante-ca-env.1".to_owned()), "{pages:?}");
    let run = fs::read_to_string(folder.join("andante-run.1")).unwrap();
    assert!(run.contains("a free port") && run.contains("Examples:"), "{run}");
}
