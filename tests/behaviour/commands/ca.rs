//! `andante ca`: the steps by which a user makes workers trust it.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::{Command, Stdio},
};

use super::{andante, outcome};

/// Variables that may name roots, and must not come from the environment of the tests.
pub(super) const ROOTS: [&str; 14] = [
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
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
];

/// `andante ca` with `args`, and with `dir` for its data.
fn ca(dir: &Path, args: &[&str]) -> Command {
    let mut command = andante(&[&["ca"], args].concat());
    for name in ROOTS {
        command.env_remove(name);
    }
    command.env("ANDANTE_DATA", dir);
    command
}

/// Standard output of a successful `andante ca`.
fn told(dir: &Path, args: &[&str]) -> String {
    let (code, stdout, stderr) = outcome(ca(dir, args));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}: {stdout}");
    stdout
}

/// The value of `name` in a shell that has evaluated `script`, whose words are `andante ca env` and the like.
fn shell(dir: &Path, script: &str) -> String {
    let mut sh = Command::new("sh");
    sh.args(["-euc", script]).env("ANDANTE", env!("CARGO_BIN_EXE_andante")).env("ANDANTE_DATA", dir);
    for name in ROOTS.into_iter().chain(["JAVA_TOOL_OPTIONS", "PHP_INI_SCAN_DIR"]) {
        sh.env_remove(name);
    }
    sh.env("NO_PROXY", "intra.example").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, stdout, stderr) = outcome(sh);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{script}");
    stdout
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {text}")).trim()
}

#[test]
fn init_makes_a_ca_and_then_keeps_it() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("share/andante");
    let made = told(&dir, &["init"]);
    assert!(made.starts_with("made a CA\nsubject  andante CA "), "{made}");
    assert_eq!(line(&made, "hosts"), "any host");
    assert_eq!(fs::metadata(line(&made, "key")).unwrap().mode() & 0o777, 0o600);
    let pem = fs::read_to_string(line(&made, "trust")).unwrap();
    let again = told(&dir, &["init"]);
    assert_eq!(again, made.replace("made a CA", "there is a CA already"));
    assert_eq!(told(&dir, &["show"]), made.strip_prefix("made a CA\n").unwrap());
    assert_eq!(told(&dir, &["show", "--pem"]), pem);
    // A flag wins over the variable.
    let other = home.path().join("other");
    assert_ne!(line(&told(&dir, &["init", "--data", other.to_str().unwrap()]), "SHA-256"), line(&made, "SHA-256"));
}

#[test]
fn processes_that_start_at_once_have_the_same_ca() {
    let dir = tempfile::tempdir().unwrap();
    let processes: Vec<_> = (0..8).map(|_| ca(dir.path(), &["init"]).spawn().unwrap()).collect();
    let told = processes.into_iter().map(|process| super::told(process.wait_with_output().unwrap()));
    let mut fingerprints = Vec::new();
    let mut made = 0;
    for (code, stdout, stderr) in told {
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
        made += usize::from(stdout.starts_with("made"));
        fingerprints.push(line(&stdout, "SHA-256").to_owned());
    }
    fingerprints.dedup();
    assert_eq!((fingerprints.len(), made), (1, 1));
}

#[test]
fn init_binds_the_ca_to_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let bound = ["init", "--only", "api.example.com", "--only", "*.example.org"];
    let made = told(dir.path(), &bound);
    assert_eq!(line(&made, "hosts"), "api.example.com and below, example.org and below");
    assert!(told(dir.path(), &bound).starts_with("there is a CA already\n"));
    assert!(told(dir.path(), &["init"]).starts_with("there is a CA already\n"));
    let (code, stdout, stderr) = outcome(ca(dir.path(), &["init", "--only", "example.net"]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.starts_with("error: there is a CA already, for api.example.com and below"), "{stderr}");
    assert!(stderr.contains("\nhint: move "), "{stderr}");
    let (code, _, stderr) = outcome(ca(&dir.path().join("other"), &["init", "--only", "*"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("caused by: a CA cannot be bound to *\nhint: "), "{stderr}");
}

#[test]
fn without_a_ca_all_say_how_to_make_one() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["show"][..], &["env"], &["bundle"], &["trust", "--dry-run"]] {
        let (code, stdout, stderr) = outcome(ca(dir.path(), args));
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{args:?}");
        let cause = format!("caused by: there is no CA in {}\n", dir.path().display());
        assert!(stderr.contains(&cause) && stderr.contains("hint: make one with `andante ca init`"), "{stderr}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_not_in_order_comes_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    told(dir.path(), &["init"]);
    let key = dir.path().join("ca-key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, stderr) = outcome(ca(dir.path(), &["init"]));
    assert_eq!(code, Some(1));
    assert!(stderr.ends_with(&format!("hint: chmod 600 {}\n", key.display())), "{stderr}");
    let (code, _, stderr) = outcome(ca(&key, &["init"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("--data DIR") && stderr.contains(key.to_str().unwrap()), "{stderr}");
    let mut homeless = ca(dir.path(), &["show"]);
    for name in ["ANDANTE_DATA", "XDG_DATA_HOME", "HOME"] {
        homeless.env_remove(name);
    }
    let (code, _, stderr) = outcome(homeless);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("hint: name one with --data DIR or ANDANTE_DATA"), "{stderr}");
}

#[test]
fn a_shell_that_evaluates_env_has_all_that_clients_need() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("it's a $HOME");
    told(&dir, &["init"]);
    let show = |name: &str| shell(&dir, &format!("eval \"$($ANDANTE ca env)\"; printf %s \"${name}\""));
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "YARN_HTTPS_PROXY"]
    {
        assert_eq!(show(name), "http://127.0.0.1:3128", "{name}");
    }
    for name in ["NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY"] {
        assert_eq!(show(name), "1", "{name}");
    }
    assert_eq!(show("NO_PROXY"), "intra.example");
    for name in ROOTS {
        let adds = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"].contains(&name);
        let file = dir.join(if adds { "ca.pem" } else { "bundle.pem" });
        assert_eq!(show(name), file.to_str().unwrap(), "{name}");
        assert!(fs::read_to_string(file).unwrap().contains(&told(&dir, &["show", "--pem"])), "{name}");
    }
    let by_gateway = shell(&dir, "eval \"$($ANDANTE ca env --proxy http://gw:8080)\"; printf %s \"$https_proxy\"");
    assert_eq!(by_gateway, "http://gw:8080");
}

#[test]
fn roots_that_were_named_before_stay_trusted_however_often_it_is_evaluated() {
    let home = tempfile::tempdir().unwrap();
    let [dir, other] = ["data", "other"].map(|name| home.path().join(name));
    told(&dir, &["init"]);
    told(&other, &["init"]);
    let corporate = other.join("ca.pem");
    let script =
        "export PIP_CERT='CORPORATE'; for n in 1 2 3; do eval \"$($ANDANTE ca env)\"; done; echo $SSL_CERT_FILE";
    let bundle = shell(&dir, &script.replace("CORPORATE", corporate.to_str().unwrap()));
    let text = fs::read_to_string(bundle.trim()).unwrap();
    for pem in [corporate, dir.join("ca.pem")] {
        assert_eq!(text.matches(&fs::read_to_string(pem).unwrap()).count(), 1);
    }
    // Nor does another shell take them away.
    let plain = shell(&dir, "eval \"$($ANDANTE ca env)\"; echo $SSL_CERT_FILE");
    assert_ne!(plain, bundle);
    assert_eq!(fs::read_to_string(bundle.trim()).unwrap(), text);
}

#[test]
fn env_brings_java_and_php_files_of_their_own_and_keeps_what_they_were_told() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("my data");
    told(&dir, &["init"]);
    let script =
        "export JAVA_TOOL_OPTIONS=-Xmx1g PHP_INI_SCAN_DIR=/own; for n in 1 2; do eval \"$($ANDANTE ca env)\"; done;
        echo $JAVA_TOOL_OPTIONS; echo $PHP_INI_SCAN_DIR";
    let at = dir.display();
    let proxy = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128";
    let direct = "-Dhttp.nonProxyHosts=intra.example|*.intra.example";
    let store = format!("-Djavax.net.ssl.trustStore='{at}/bundle.p12' -Djavax.net.ssl.trustStoreType=PKCS12");
    assert_eq!(shell(&dir, script), format!("-Xmx1g {proxy} {direct} {store}\n/own:{at}\n"));
    assert!(fs::read_to_string(dir.join("andante.ini")).unwrap().contains("openssl.cafile = \"${SSL_CERT_FILE}\""));
    let text = told(&dir, &["env", "--format", "docker", "--at", "/etc/andante"]);
    assert!(text.contains(" -Djavax.net.ssl.trustStore=/etc/andante/bundle.p12 "), "{text}");
    assert!(text.contains("PHP_INI_SCAN_DIR=:/etc/andante\n"), "{text}");
}

#[test]
fn env_writes_the_formats_of_containers() {
    let dir = tempfile::tempdir().unwrap();
    told(dir.path(), &["init"]);
    let at = ["--at", "/etc/andante", "--proxy", "http://gw:3128"];
    let env = |format: &str| told(dir.path(), &[&["env", "--format", format], &at[..]].concat());
    for format in ["docker", "dotenv"] {
        let text = env(format);
        assert_eq!(text.lines().count(), 26, "{text}");
        for line in ["https_proxy=http://gw:3128", "DENO_CERT=/etc/andante/ca.pem", "PIP_CERT=/etc/andante/bundle.pem"]
        {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
    let object: serde_json::Value = serde_json::from_str(&env("json")).unwrap();
    assert_eq!(object.as_object().unwrap().len(), 26, "{object:#}");
    assert_eq!(
        (&object["https_proxy"], &object["PIP_CERT"]),
        (&"http://gw:3128".into(), &"/etc/andante/bundle.pem".into())
    );
    let text = env("k8s");
    assert!(text.contains("- name: SSL_CERT_FILE\n  value: \"/etc/andante/bundle.pem\"\n"), "{text}");
    assert!(dir.path().join("bundle.pem").exists());
    let (code, _, stderr) = outcome(ca(dir.path(), &["env", "--proxy", "gw:3128"]));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("http://127.0.0.1:3128"), "{stderr}");
}

#[test]
fn a_bundle_is_the_system_s_roots_and_ours() {
    let dir = tempfile::tempdir().unwrap();
    told(dir.path(), &["init"]);
    let text = told(dir.path(), &["bundle"]);
    assert!(text.contains(&told(dir.path(), &["show", "--pem"])));
    assert!(text.matches("BEGIN CERTIFICATE").count() > 1 && !text.contains("PRIVATE"));
    let out = dir.path().join("roots.pem");
    assert_eq!(told(dir.path(), &["bundle", "--out", out.to_str().unwrap()]), "");
    assert_eq!(fs::read_to_string(&out).unwrap(), text);
    let (code, _, stderr) = outcome(ca(dir.path(), &["bundle", "--out", "/nowhere/at/all.pem"]));
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: could not write /nowhere/at/all.pem\ncaused by: "), "{stderr}");
    // Variables that redirect OpenSSL do not hide the system's roots.
    let mut redirected = ca(dir.path(), &["bundle"]);
    redirected.env("SSL_CERT_FILE", "/nowhere/at/all.pem");
    let (code, stdout, stderr) = outcome(redirected);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.matches("BEGIN CERTIFICATE").count() > 1);
}

#[test]
fn trust_says_what_it_would_do() {
    let dir = tempfile::tempdir().unwrap();
    told(dir.path(), &["init"]);
    for (args, verb) in [(&["trust", "--dry-run"][..], "writes "), (&["trust", "--remove", "--dry-run"], "deletes ")] {
        let text = told(dir.path(), args);
        assert!(text.starts_with(verb) && text.contains("\nruns update-ca-"), "{text}");
        assert!(text.ends_with("nothing was done: this is a dry run\n"), "{text}");
        let file = text.lines().next().unwrap().strip_prefix(verb).unwrap();
        assert!(!Path::new(file).exists(), "{file}");
    }
}
