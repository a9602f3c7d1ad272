//! The final summary of `andante run`: the actual cause of a failure, and the remedy.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use super::{andante, outcome};
use crate::support::{
    DeadPort, Mock, Upstream,
    tls::{Server, TRUSTED},
};

/// The summary of `andante run` with `flags` around a shell that runs `script`.
fn summary(flags: &[&str], script: &str) -> String {
    of(andante(&[&["run"], flags, &["--", "sh", "-c", script]].concat()))
}

fn of(command: Command) -> String {
    let (_, _, stderr) = outcome(command);
    stderr[stderr.find("andante: ").expect(&stderr)..].to_owned()
}

#[test]
fn a_command_that_the_shell_did_not_find_is_not_blamed_on_the_proxy() {
    let text = summary(&[], "no-such-command-at-all");
    assert!(text.contains("127") && text.contains("did not find a command"), "{text}");
    assert!(!text.contains("HTTP_PROXY"), "{text}");
}

#[test]
fn a_command_that_fails_before_its_first_request_is_told_with_its_exit_code() {
    let text = summary(&[], "exit 3");
    assert!(text.contains("exit code 3") && text.contains("no request"), "{text}");
    let text = summary(&[], "kill -KILL $$");
    assert!(text.contains("signal 9 ended the command"), "{text}");
}

#[test]
fn a_client_that_went_around_the_proxy_is_told_by_what_is_known() {
    let upstream = Upstream::ok();
    let script = format!("curl -sS --noproxy '*' -o /dev/null {}", upstream.url("/"));
    let text = summary(&[], &script);
    assert!(text.contains("no request reached andante"), "{text}");
    assert!(text.contains("HTTP_PROXY") && text.contains("docs/troubleshooting.md"), "{text}");
    assert!(!text.contains("NO_PROXY is"), "{text}");
    let mut command = andante(&["run", "--", "curl", "-sS", "-o", "/dev/null", &upstream.url("/")]);
    command.env("NO_PROXY", "intra.example,127.0.0.1");
    let text = of(command);
    assert!(text.contains("NO_PROXY is \"intra.example,127.0.0.1\""), "{text}");
    assert!(upstream.requests().iter().all(|request| !request.has("via")));
}

#[test]
fn what_failed_is_counted_and_named_although_nothing_was_sent() {
    let dead = DeadPort::reserve();
    let script =
        format!("for i in 1 2; do curl -sS -o /dev/null {}; done; curl -sS http://nowhere.invalid/", dead.url());
    let text = summary(&[], &script);
    assert!(text.contains("andante: 0 requests sent in ") && text.contains("failed: 3"), "{text}");
    assert!(!text.contains("nothing came through"), "{text}");
    let refused = format!("2 × could not connect to {}", dead.address());
    for cause in [&*refused, "Connection refused", "1 × could not resolve nowhere.invalid"] {
        assert!(text.contains(cause), "{cause}: {text}");
    }
    assert_eq!(text.matches("hint: check").count(), 2, "{text}");
}

#[test]
fn a_command_that_does_not_trust_the_ca_is_told_so() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]));
    let url = format!("https://localhost:{}/", upstream.port());
    // curl trusts only the roots in the given file.
    let script = format!("for i in 1 2 3; do curl -sS --cacert /etc/ssl/certs/ca-certificates.crt {url}; done");
    let text = summary(&[], &script);
    assert!(text.contains("failed: 3"), "{text}");
    assert!(text.contains("3 × localhost: a client does not trust andante's CA (alert: UnknownCA)"), "{text}");
    for remedy in ["SSL_CERT_FILE", "--intercept none"] {
        assert!(text.contains(remedy), "{remedy}: {text}");
    }
    assert!(!text.contains("nothing came through"), "{text}");
}

#[test]
fn a_client_that_pins_its_certificate_is_named() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]));
    let url = format!("https://localhost:{}/", upstream.port());
    let pin = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let run = |script: &str| of(andante(&["run", "--upstream-ca", TRUSTED.file(), "--", "sh", "-c", script]));
    let text = run(&format!("curl -sS --pinnedpubkey {pin} {url}"));
    assert!(text.contains("failed: 1"), "{text}");
    assert!(text.contains("1 × localhost: a client took andante's certificate and left without a request"), "{text}");
    assert!(text.contains("pinning") && text.contains("--intercept none"), "{text}");
    // A client that also sends a request only had a connection too many.
    let text = run(&format!("curl -sS {url}; curl -sS --pinnedpubkey {pin} {url}"));
    assert!(text.contains("failed: 0"), "{text}");
}

#[test]
fn what_cannot_be_intercepted_is_named() {
    let upstream = Upstream::echo();
    // SSH, as some tunnel it through proxies.
    let connect = format!("CONNECT localhost:{} HTTP/1.1\\r\\n\\r\\nSSH-2.0-OpenSSH\\r\\n", upstream.port());
    let script =
        format!("exec 3<>/dev/tcp/${{HTTP_PROXY#http://127.0.0.1:}}; printf '{connect}' >&3; cat <&3 >/dev/null");
    let script = script.replace("/dev/tcp/", "/dev/tcp/127.0.0.1/");
    let text = of(andante(&["run", "--", "bash", "-c", &script]));
    assert!(text.contains("failed: 1"), "{text}");
    assert!(text.contains("1 × localhost: what came through a tunnel is neither TLS nor HTTP"), "{text}");
    assert!(text.contains("https = \"tunnel\""), "{text}");
}

#[test]
fn errors_of_the_api_are_told_from_those_of_the_proxy() {
    let upstream = Upstream::always("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    let text = summary(&[], &format!("curl -s {0}; curl -s {0}", upstream.url("/")));
    assert!(text.contains("failed: 0") && text.contains("the API itself answered 2 × 500"), "{text}");
}

#[test]
fn a_request_that_was_rejected_has_failed() {
    let text = summary(&[], "curl -sS -o /dev/null ftp://user:hunter2@a.test/ -x $HTTP_PROXY");
    assert!(text.contains("failed: 1") && text.contains("1 × the scheme \"ftp\""), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_rule_that_no_request_matched_is_told_with_the_host_that_was_meant() {
    let mock = Mock::start(&[]);
    let text = summary(&["--limit", "127.0.0.11=10/s"], &format!("curl -s -o /dev/null {}", mock.url("/")));
    assert!(text.contains("no request was for 127.0.0.11; "), "{text}");
    assert!(text.contains("most similar host that was asked for is 127.0.0.1\n"), "{text}");
    let text = summary(&["--limit", "127.0.0.1=10/s"], &format!("curl -s -o /dev/null {}", mock.url("/")));
    assert!(!text.contains("no request was for"), "{text}");
}

#[test]
fn clients_that_gave_up_are_counted_with_the_time_that_they_waited() {
    let mock = Mock::start(&[]);
    // The first request leaves at once. The other nine would have to wait for longer than they do.
    let some = format!("for i in 1 2 3 4 5; do curl -s -m 0.4 -o /dev/null {} & done; wait", mock.url("/"));
    let text = summary(&["--limit", &format!("{}=1/min", mock.address())], &format!("{some}; {some}"));
    assert!(text.contains("given up by the client: 9"), "{text}");
    assert!(text.contains("9 clients left before the answer, 9 of them in the queue, most after "), "{text}");
    assert!(text.contains("docs/troubleshooting.md"), "{text}");
}

#[test]
fn the_summary_as_json_is_the_last_line() {
    let mock = Mock::start(&[]);
    let script =
        format!("echo out; echo err >&2; for i in 1 2 3; do curl -s -o /dev/null {}; done; exit 3", mock.url("/"));
    let limit = format!("{}=100/s", mock.address());
    let (code, stdout, stderr) =
        outcome(andante(&["run", "--json", "--limit", &limit, "--limit", "x.test=1/s", "--", "sh", "-c", &script]));
    assert_eq!((code, stdout.as_str()), (Some(3), "out\n"));
    let (before, last) = stderr.trim_end().split_once('\n').unwrap();
    assert_eq!(before, "err");
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    for (member, expected) in
        [("exit_code", 3), ("sent", 3), ("failed", 0), ("refused", 0), ("left", 0), ("sent_again", 0)]
    {
        assert_eq!(summary[member], expected, "{member}: {summary:#}");
    }
    assert_eq!(summary["answers"], serde_json::json!({"200": 3}), "{summary:#}");
    assert!(summary["elapsed_s"].as_f64().unwrap() > 0.0 && summary["waited_s"].is_f64(), "{summary:#}");
    let host = &summary["hosts"][0];
    assert_eq!((host["host"].as_str(), host["sent"].as_u64()), (Some("127.0.0.1"), Some(3)), "{summary:#}");
    assert_eq!(host["limit"], "100/s", "{summary:#}");
    assert!(host["used_ratio"].as_f64().is_some_and(|used| used > 0.0 && used <= 1.1), "{summary:#}");
    assert_eq!(summary["unmatched_rules"][0]["rule"], "x.test", "{summary:#}");
}

#[test]
fn a_script_whose_interpreter_is_missing_is_told_from_one_that_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, _, stderr) = outcome(andante(&["run", "--", script.to_str().unwrap()]));
    assert_eq!(code, Some(127));
    assert!(stderr.contains("hint: the file is there") && !stderr.contains("PATH"), "{stderr}");
}
