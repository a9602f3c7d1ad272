//! `andante env`: one line in the worker's shell is all that it takes to be led to the proxy, wherever that listens.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{andante, file, outcome};
use crate::support::{
    Upstream,
    tls::{Interceptor, Server, TRUSTED},
};

/// `andante env` with `args`, and with `dir` for its data.
fn env(dir: &Path, args: &[&str]) -> Command {
    let mut command = andante(&[&["env"], args].concat());
    command.env("ANDANTE_DATA", dir).env_remove("JAVA_TOOL_OPTIONS");
    for name in super::ca::ROOTS.into_iter().chain(["SSL_CERT_DIR"]) {
        command.env_remove(name);
    }
    command
}

/// The printed variables of a successful command.
fn variables(mut command: Command) -> BTreeMap<String, String> {
    command.args(["--format", "json"]);
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

/// Standard output of a shell in `dir` that runs `script`.
fn shell(dir: &Path, script: &str) -> String {
    let mut sh = Command::new("sh");
    sh.args(["-euc", script]).env("ANDANTE", env!("CARGO_BIN_EXE_andante")).env("ANDANTE_DATA", dir);
    for name in ["CURL_CA_BUNDLE", "SSL_CERT_FILE", "NO_PROXY", "no_proxy"] {
        sh.env_remove(name);
    }
    sh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, stdout, stderr) = outcome(sh);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{script}: {stdout}");
    stdout
}

#[test]
fn address_is_that_of_the_flag_else_the_environment_else_the_file_else_the_default() {
    let (dir, toml) = (tempfile::tempdir().unwrap(), file("listen = \"127.0.0.1:3003\"\n"));
    let path = toml.path().to_str().unwrap();
    for (args, variable, address) in [
        (&[][..], None, "127.0.0.1:3128"),
        (&["--config", path], None, "127.0.0.1:3003"),
        (&["--config", path], Some("127.0.0.1:3002"), "127.0.0.1:3002"),
        (&["--config", path, "--listen", "127.0.0.1:3001"], Some("127.0.0.1:3002"), "127.0.0.1:3001"),
        (&["--config", path, "--proxy", "http://gw:80/"], Some("127.0.0.1:3002"), "gw:80"),
    ] {
        for command in [&["env"][..], &["ca", "env"]] {
            // `ca env` needs a CA.
            assert_eq!(outcome(andante(&["ca", "init", "--data", dir.path().to_str().unwrap()])).0, Some(0));
            let mut command = andante(&[command, args].concat());
            command.env("ANDANTE_DATA", dir.path());
            if let Some(address) = variable {
                command.env("ANDANTE_LISTEN", address);
            }
            let found = variables(command);
            for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
                assert_eq!(found[name], format!("http://{address}"), "{args:?} {name}");
            }
        }
    }
}

#[test]
fn listener_on_all_addresses_is_reached_on_loopback_and_needs_no_clients_here() {
    let dir = tempfile::tempdir().unwrap();
    for (listen, reached) in [("0.0.0.0:3131", "http://127.0.0.1:3131"), ("[::]:3131", "http://[::1]:3131")] {
        assert_eq!(variables(env(dir.path(), &["--listen", listen]))["https_proxy"], reached);
        let mut by_variable = env(dir.path(), &[]);
        by_variable.env("ANDANTE_LISTEN", listen);
        assert_eq!(variables(by_variable)["HTTP_PROXY"], reached);
    }
}

#[test]
fn port_that_is_chosen_at_the_start_has_to_be_named() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = outcome(env(dir.path(), &["--listen", "127.0.0.1:0"]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("hint: ") && stderr.contains("--proxy http://127.0.0.1:PORT"), "{stderr}");
    let (code, stdout, stderr) = outcome(env(dir.path(), &["--listen", "nowhere"]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
}

#[test]
fn errors_elsewhere_in_the_file_do_not_hide_the_address() {
    let (dir, toml) = (tempfile::tempdir().unwrap(), file("listen = \"127.0.0.1:3003\"\ndrian = \"3s\"\n"));
    let found = variables(env(dir.path(), &["--config", toml.path().to_str().unwrap()]));
    assert_eq!(found["HTTP_PROXY"], "http://127.0.0.1:3003");
}

#[test]
fn without_a_ca_there_are_proxy_variables_only_and_a_comment_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = outcome(env(dir.path(), &[]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("export NODE_USE_ENV_PROXY='1'\n") && !stdout.contains("SSL_CERT_FILE"), "{stdout}");
    let last = stdout.lines().last().unwrap();
    assert!(last.starts_with("# no CA variables: nothing is intercepted (\""), "{stdout}");
    // Also without quotes around it, which makes one line of all.
    for eval in ["eval \"$($ANDANTE env)\"", "eval $($ANDANTE env)"] {
        let seen = shell(dir.path(), &format!("{eval}; printf %s \"$http_proxy $ALL_PROXY ${{SSL_CERT_FILE-unset}}\""));
        assert_eq!(seen, "http://127.0.0.1:3128 http://127.0.0.1:3128 unset");
    }
}

#[test]
fn interception_without_a_ca_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let rule = file("[[rule]]\nhost = \"api.test\"\nhttps = \"intercept\"\n");
    let (code, stdout, stderr) = outcome(env(dir.path(), &["--config", rule.path().to_str().unwrap()]));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("https_proxy=") && !stdout.contains("SSL_CERT_FILE"), "{stdout}");
    assert!(stderr.starts_with("warning: ") && stderr.contains("`andante ca init`"), "{stderr}");
}

#[test]
fn shell_that_evaluates_it_is_paced_request_by_request() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]));
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let (listen, url) = (interceptor.andante.proxy(), format!("https://localhost:{}/", upstream.port()));
    let script = format!("export ANDANTE_LISTEN={listen}; eval \"$($ANDANTE env)\"; curl -sS {url}");
    assert_eq!(shell(interceptor.data(), &script), "ok");
    assert!(upstream.request().has("via"), "a tunnel was let through unseen");
    let comment = shell(interceptor.data(), "$ANDANTE env | tail -n 1");
    assert!(comment.starts_with("# CA variables: andante CA "), "{comment}");
}

#[test]
fn containers_reach_their_own_loopback_and_cluster_without_the_proxy() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(outcome(andante(&["ca", "init", "--data", dir.path().to_str().unwrap()])).0, Some(0));
    let text = |format: &str| {
        let args = ["--format", format, "--proxy", "http://gw:3128", "--at", "/etc/andante"];
        let (code, stdout, stderr) = outcome(env(dir.path(), &args));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
        stdout
    };
    let docker = text("docker");
    for line in [
        "https_proxy=http://gw:3128",
        "NO_PROXY=localhost,127.0.0.1,::1,169.254.169.254",
        "no_proxy=localhost,127.0.0.1,::1,169.254.169.254",
        "SSL_CERT_FILE=/etc/andante/bundle.pem",
    ] {
        assert!(docker.lines().any(|found| found == line), "no {line}: {docker}");
    }
    assert!(docker.contains(" -Dhttp.nonProxyHosts=localhost|"), "{docker}");
    assert!(!docker.contains('#'), "{docker}");
    let kubernetes = text("k8s");
    assert!(kubernetes.contains("- name: HTTP_PROXY\n  value: \"http://gw:3128\"\n"), "{kubernetes}");
    let map = text("configmap");
    assert!(map.starts_with("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: andante-env\ndata:\n"), "{map}");
    for line in [
        "  HTTPS_PROXY: \"http://gw:3128\"",
        "  NODE_USE_ENV_PROXY: \"1\"",
        "  NODE_EXTRA_CA_CERTS: \"/etc/andante/ca.pem\"",
        "  NO_PROXY: \"localhost,127.0.0.1,::1,169.254.169.254,.svc,.cluster.local\"",
    ] {
        assert!(map.lines().any(|found| found == line), "no {line}: {map}");
    }
    assert!(!fs::read_to_string(dir.path().join("ca-key.pem")).unwrap().is_empty() && !map.contains("PRIVATE"));
}

#[test]
fn address_that_only_this_machine_reaches_is_warned_of_for_containers() {
    let dir = tempfile::tempdir().unwrap();
    let of = |args: &[&str]| outcome(env(dir.path(), &[&["--format", "docker"], args].concat()));
    for listen in ["127.0.0.1:3128", "0.0.0.0:3128"] {
        let (code, stdout, stderr) = of(&["--listen", listen]);
        assert_eq!(code, Some(0));
        assert!(stdout.contains("HTTP_PROXY=http://127.0.0.1:3128\n"), "{stdout}");
        assert!(stderr.starts_with("warning: ") && stderr.contains("--proxy http://HOST:PORT"), "{stderr}");
    }
    let (code, stdout, stderr) = of(&["--listen", "127.0.0.1:3128", "--listen", "10.0.0.7:3128"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("HTTP_PROXY=http://10.0.0.7:3128\n"), "{stdout}");
}

#[test]
fn rule_for_loopback_keeps_loopback_behind_the_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let rule = file("[[rule]]\nhost = \"127.0.0.1:9100\"\nlimits = [\"10/s\"]\n");
    let mut command = env(dir.path(), &["--config", rule.path().to_str().unwrap()]);
    command.args(["--format", "docker", "--proxy", "http://gw:3128"]);
    let (_, stdout, _) = outcome(command);
    assert!(stdout.contains("\nNO_PROXY=169.254.169.254\n"), "{stdout}");
    let script = format!(
        "export NO_PROXY=localhost,intra.test; eval \"$($ANDANTE env --config {})\"; printf %s \"$NO_PROXY\"",
        rule.path().display()
    );
    assert_eq!(shell(dir.path(), &script), "intra.test");
}

#[test]
fn json_is_one_object_of_texts() {
    let dir = tempfile::tempdir().unwrap();
    let (_, stdout, _) = outcome(env(dir.path(), &["--format", "json"]));
    let object: Value = serde_json::from_str(&stdout).unwrap();
    assert!(object.as_object().unwrap().values().all(Value::is_string), "{object:#}");
}

/// Readers of a file are on the network of the shell, containers are not.
#[test]
fn hosts_without_a_proxy_are_in_each_file_that_workers_here_read() {
    let dir = tempfile::tempdir().unwrap();
    for (format, expected) in [
        ("dotenv", Some("NO_PROXY=intra.example,10.0.0.0/8\n")),
        ("json", Some("\"NO_PROXY\": \"intra.example,10.0.0.0/8\"")),
        ("sh", None),
        ("docker", None),
    ] {
        let mut command = env(dir.path(), &["--format", format, "--proxy", "http://gw:3128"]);
        command.env("NO_PROXY", "intra.example,10.0.0.0/8").env_remove("no_proxy");
        let (_, stdout, _) = outcome(command);
        assert_eq!(stdout.contains("intra.example,10.0.0.0/8"), expected.is_some(), "{format}: {stdout}");
        assert!(expected.is_none_or(|line| stdout.contains(line)), "{format}: {stdout}");
        assert!(format == "docker" || !stdout.contains("no_proxy="), "{format}: {stdout}");
    }
}

/// A company's proxy shows its certificates to each worker, whichever program has set the worker's variables.
#[test]
fn roots_that_a_variable_names_are_in_the_bundle_of_each_format() {
    let home = tempfile::tempdir().unwrap();
    let [dir, other] = ["data", "other"].map(|name| home.path().join(name));
    for dir in [&dir, &other] {
        assert_eq!(outcome(andante(&["ca", "init", "--data", dir.to_str().unwrap()])).0, Some(0));
    }
    let corporate = other.join("ca.pem");
    let mut bundles = std::collections::BTreeSet::new();
    for (command, format) in
        [("env", "sh"), ("env", "docker"), ("env", "k8s"), ("env", "configmap"), ("env", "dotenv"), ("env", "json")]
            .into_iter()
            .chain([("ca env", "dotenv"), ("ca env", "json"), ("ca env", "docker")])
    {
        let words: Vec<&str> = command.split(' ').chain(["--format", format, "--proxy", "http://gw:3128"]).collect();
        let mut env = andante(&words);
        env.env("ANDANTE_DATA", &dir).env("REQUESTS_CA_BUNDLE", &corporate);
        let (_, stdout, _) = outcome(env);
        let text = stdout.replace("name: SSL_CERT_FILE\n  value", "SSL_CERT_FILE");
        let line = text.lines().find(|line| line.contains("SSL_CERT_FILE")).unwrap();
        let at = line.find(dir.to_str().unwrap()).unwrap_or_else(|| panic!("{format}: {line}"));
        bundles.insert(line[at..].trim_end_matches(['"', '\'', ',']).to_owned());
    }
    let bundle = bundles.pop_first().unwrap();
    assert!(bundles.is_empty(), "{bundle} and {bundles:?}");
    let roots = fs::read_to_string(bundle).unwrap();
    for pem in [corporate, dir.join("ca.pem")] {
        assert!(roots.contains(&fs::read_to_string(pem).unwrap()));
    }
}
