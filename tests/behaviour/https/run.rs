//! `andante run` paces HTTPS with nothing else to do: its command trusts it, and nothing of that is left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{localhost, secure, server};
use crate::support::{
    Andante, Upstream,
    tls::{Authority, Server, TRUSTED},
};

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
    // The second host is left alone: a blind tunnel, in which the upstream's own certificate is seen.
    let script = format!("curl -sS https://{target}/ https://{}/", localhost(&direct));
    let mut command = shell(place.path(), &target, &script);
    command.env("CURL_CA_BUNDLE", TRUSTED.file()).env("ANDANTE_CONFIG", left_alone(place.path(), &localhost(&direct)));
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stdout.as_str()), (Some(0), "okok"), "{stderr}");
    assert!(upstream.request().has("via") && !direct.request().has("via"));
}

/// A configuration that leaves the HTTPS of `target` alone.
fn left_alone(place: &Path, target: &str) -> PathBuf {
    let file = place.join("left-alone.toml");
    fs::write(&file, format!("[[rule]]\nhost = \"{target}\"\nhttps = \"tunnel\"\n")).unwrap();
    file
}

/// `andante run` with `flags` around curl, which gets `target`.
fn get(place: &Path, flags: &[&str], target: &str) -> Command {
    let mut command = Andante::command();
    for name in ["CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.env_remove(name);
    }
    command.arg("run").args(flags).args(["--upstream-ca", TRUSTED.file(), "--"]);
    command.args(["curl", "-sS", &format!("https://{target}/")]);
    command.env("TMPDIR", place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn without_a_limit_https_is_seen_and_a_refusal_is_not_the_commands() {
    let place = tempfile::tempdir().unwrap();
    let refused = AtomicBool::new(false);
    let upstream = Upstream::secure(server(&["http/1.1"]), move |mut connection| {
        while connection.request().is_some() {
            connection.send(match refused.swap(true, Ordering::AcqRel) {
                false => "HTTP/1.1 429 Too Many Requests\r\nRetry-After-Ms: 50\r\nContent-Length: 5\r\n\r\nlater",
                true => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            });
        }
    });
    let (code, stdout, stderr) = outcome(get(place.path(), &[], &localhost(&upstream)));
    assert_eq!((code, stdout.as_str()), (Some(0), "ok"), "{stderr}");
    assert!(stderr.contains("answered with 429: 1, tried again: 1"), "{stderr}");
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn interception_can_be_switched_off() {
    let (upstream, place) = (secure(), tempfile::tempdir().unwrap());
    let target = localhost(&upstream);
    for flags in [&["--intercept", "none"][..], &["--intercept", "other.example"]] {
        let mut command = get(place.path(), flags, &target);
        command.env("CURL_CA_BUNDLE", TRUSTED.file());
        let (code, stdout, stderr) = outcome(command);
        assert_eq!((code, stdout.as_str()), (Some(0), "ok"), "{flags:?}: {stderr}");
        assert!(stderr.contains("1 tunnel; the requests inside are not seen"), "{flags:?}: {stderr}");
    }
    assert!(upstream.requests().iter().all(|request| !request.has("via")));
}

#[test]
fn where_no_ca_can_be_made_what_was_not_asked_to_be_intercepted_passes_unseen() {
    let (upstream, place) = (secure(), tempfile::tempdir().unwrap());
    let target = localhost(&upstream);
    let nowhere = place.path().join("nowhere");
    let mut command = get(&nowhere, &[], &target);
    command.env("CURL_CA_BUNDLE", TRUSTED.file());
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stdout.as_str()), (Some(0), "ok"), "{stderr}");
    assert!(stderr.contains("cannot intercept HTTPS") && stderr.contains("nowhere"), "{stderr}");
    // A user with a limit must not read that the limit was kept.
    let (code, _, stderr) = outcome(get(&nowhere, &["--limit", "localhost=1/s"], &target));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains("--intercept none"), "{stderr}");
}

/// `andante run` around curl, which gets `target`, in an environment that names no roots but by `variable`.
fn with_roots(place: &Path, variable: &str, roots: &Path, target: &str) -> Command {
    let mut command = Andante::command();
    for name in ROOTS.iter().chain(&["SSL_CERT_DIR", "DENO_CERT", "NODE_EXTRA_CA_CERTS"]) {
        command.env_remove(name);
    }
    command.args(["run", "--", "curl", "-sS", &format!("https://{target}/")]);
    command.env("TMPDIR", place).env(variable, roots);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Variables by which a client's only roots are named.
const ROOTS: [&str; 12] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "npm_config_cafile",
    "YARN_HTTPS_CA_FILE_PATH",
];

#[test]
fn authority_that_a_variable_of_the_worker_names_is_trusted_towards_the_api() {
    let (corporate, place) = (Authority::new("corporate"), tempfile::tempdir().unwrap());
    let upstream = Upstream::secure_ok(Server::new(&corporate.leaf(&["localhost"]), &["http/1.1"]));
    let target = localhost(&upstream);
    for name in ROOTS.iter().chain(&["NODE_EXTRA_CA_CERTS", "DENO_CERT"]) {
        let (code, stdout, stderr) = outcome(with_roots(place.path(), name, corporate.file().as_ref(), &target));
        assert_eq!((code, stdout.as_str()), (Some(0), "ok"), "{name}: {stderr}");
    }
    assert!(upstream.requests().iter().all(|request| request.has("via")), "a tunnel was let through unseen");
    // Named by nothing, it is no authority.
    let (_, stdout, _) = outcome(with_roots(place.path(), "OTHER", corporate.file().as_ref(), &target));
    assert!(stdout.contains("502") && stdout.contains("corporate authority of tests"), "{stdout}");
    assert_eq!(left(place.path()), [""; 0]);
}

#[test]
fn authority_in_a_folder_that_a_variable_names_is_trusted_towards_the_api() {
    let (corporate, place) = (Authority::new("corporate"), tempfile::tempdir().unwrap());
    let upstream = Upstream::secure_ok(Server::new(&corporate.leaf(&["localhost"]), &["http/1.1"]));
    let folder = tempfile::tempdir().unwrap();
    // As `openssl rehash` names it.
    fs::copy(corporate.file(), folder.path().join("5ed36f99.0")).unwrap();
    let two = format!("/nowhere/at/all:{}", folder.path().display());
    for (name, roots) in
        [("SSL_CERT_DIR", folder.path()), ("SSL_CERT_DIR", two.as_ref()), ("REQUESTS_CA_BUNDLE", folder.path())]
    {
        let (code, stdout, stderr) = outcome(with_roots(place.path(), name, roots, &localhost(&upstream)));
        assert_eq!((code, stdout.as_str()), (Some(0), "ok"), "{name}: {stderr}");
    }
}

#[test]
fn certificate_that_cannot_be_used_does_not_hide_the_others_of_its_file() {
    let (corporate, place) = (Authority::new("corporate"), tempfile::tempdir().unwrap());
    let upstream = Upstream::secure_ok(Server::new(&corporate.leaf(&["localhost"]), &["http/1.1"]));
    let roots = place.path().join("roots.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    fs::write(&roots, format!("{broken}{}", fs::read_to_string(corporate.file()).unwrap())).unwrap();
    let (code, stdout, stderr) = outcome(with_roots(place.path(), "REQUESTS_CA_BUNDLE", &roots, &localhost(&upstream)));
    assert_eq!((code, stdout.as_str()), (Some(0), "ok"), "{stderr}");
}
