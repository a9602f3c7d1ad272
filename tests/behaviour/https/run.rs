//! `andante run` paces HTTPS with nothing else to do: its command trusts it, and nothing of that is left behind.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{localhost, secure};
use crate::support::{Andante, tls::TRUSTED};

/// `andante run` with a limit for `target`, around a shell that runs `script`; its temporary files go to `place`.
fn shell(place: &Path, target: &str, script: &str) -> Command {
    let mut command = Andante::command();
    for name in ["CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.env_remove(name);
    }
    command.args([
        "run",
        "--limit",
        &format!("{target}=50/s"),
        "--upstream-ca",
        TRUSTED.file(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.env("TMPDIR", place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output, standard error.
fn outcome(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn left(place: &Path) -> Vec<String> {
    fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_command_that_speaks_https_is_paced_and_nothing_is_left() {
    let (upstream, place) = (secure(), tempfile::tempdir().unwrap());
    let target = localhost(&upstream);
    let urls = (0..8).map(|n| format!("https://{target}/{n} ")).collect::<String>();
    let script = format!(
        "ls -d $TMPDIR/andante-*/ >&2; grep -c BEGIN $CURL_CA_BUNDLE >&2; curl -sS {urls} && curl -sS https://{target}/own"
    );
    let (code, stdout, stderr) = outcome(shell(place.path(), &target, &script));
    assert_eq!((code, stdout), (Some(0), "ok".repeat(9)), "{stderr}");
    assert!(stderr.contains("andante: 9 requests sent in "), "{stderr}");
    assert!(upstream.requests().iter().all(|request| request.has("via")), "a tunnel was let through unseen");
    assert_eq!(left(place.path()), [""; 0], "{stderr}");
}

#[test]
fn whatever_ends_the_command_nothing_is_left() {
    let (upstream, place) = (secure(), tempfile::tempdir().unwrap());
    let target = localhost(&upstream);
    for (script, code) in [
        ("kill -KILL $$", 137),
        ("kill -TERM $PPID; exec sleep 20", 143),
        ("kill -USR1 $PPID; exec sleep 20", 138),
        ("trap 'exit 7' TERM; kill -TERM $PPID; while :; do sleep 0.02; done", 7),
    ] {
        let script = format!("test -s $CURL_CA_BUNDLE || exit 99; {script}");
        let (ended, _, stderr) = outcome(shell(place.path(), &target, &script));
        assert_eq!(ended, Some(code), "{script}: {stderr}");
        assert_eq!(left(place.path()), [""; 0], "{script}");
    }
    let mut command = Andante::command();
    command.args(["run", "--limit", "localhost=1/s", "--", "/nonexistent/program"]).env("TMPDIR", place.path());
    assert_eq!(outcome(command).0, Some(127));
    assert_eq!(left(place.path()), [""; 0]);
}

#[test]
fn a_command_whose_own_roots_were_named_keeps_them() {
    let (upstream, direct, place) = (secure(), secure(), tempfile::tempdir().unwrap());
    let target = localhost(&upstream);
    // The second host has no limit: a blind tunnel, in which the upstream's own certificate is seen.
    let script = format!("curl -sS https://{target}/ https://{}/", localhost(&direct));
    let mut command = shell(place.path(), &target, &script);
    command.env("CURL_CA_BUNDLE", TRUSTED.file());
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stdout.as_str()), (Some(0), "okok"), "{stderr}");
    assert!(upstream.request().has("via") && !direct.request().has("via"));
}
