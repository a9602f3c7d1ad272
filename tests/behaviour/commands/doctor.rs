//! `andante doctor`: each problem is named with its remedy.

use std::net::TcpListener;

use rcgen::date_time_ymd;
use serde_json::Value;

use super::{andante, file, outcome};
use crate::support::{
    Andante, Connection, DeadPort, Redis, Upstream, eventually,
    tls::{Authority, TRUSTED},
};

const HERE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "off"];

/// Findings of `andante doctor` with these flags and variables, and its exit code.
fn found(flags: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, Vec<Value>) {
    let mut command = andante(&[&["doctor", "--json"], &HERE[..], flags].concat());
    command.envs(variables.iter().copied());
    let (code, stdout, stderr) = outcome(command);
    assert_eq!(stderr, "");
    (code, serde_json::from_str(&stdout).unwrap())
}

fn not_ok(found: &[Value]) -> Vec<&Value> {
    found.iter().filter(|finding| finding["ok"] == false).collect()
}

#[test]
fn a_machine_that_is_as_it_should_be_is_ok_and_requests_are_paced_each_way() {
    let (code, found) = found(&[], &[]);
    assert_eq!((code, not_ok(&found)), (Some(0), vec![]), "{found:#?}");
    for name in ["config", "port", "open files", "clock", "CA trust", "variables", "plain", "tunnel", "intercept"] {
        assert!(found.iter().any(|finding| finding["name"] == name), "{name}: {found:#?}");
    }
    let (code, text, _) = outcome(andante(&[&["doctor"], &HERE[..]].concat()));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("everything is ok\n") && text.contains("ok      intercept   3 requests"), "{text}");
}

#[test]
fn what_is_not_ok_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let held = DeadPort::reserve();
    let dead = held.address();
    let folder = tempfile::tempdir().unwrap();
    let config = file(&format!(
        "intercept = 'api.test'\ndata = '{0}'\nstate = '{0}/none/state'\nstore = 'redis://{dead}'\n\
         [[rule]]\nhost = 'api.test'\nlimits = '1/s'\n",
        folder.path().display()
    ));
    let mut command = andante(&["doctor", "--admin", "off", "--listen", &port, "--config"]);
    command.arg(config.path()).envs([("HTTP_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "api.test")]);
    let (code, text, _) = outcome(command);
    assert_eq!(code, Some(1), "{text}");
    for words in [
        format!("not ok  port        could not listen on {port}"),
        "ss -ltnp".into(),
        format!("not ok  state       could not write into {}/none", folder.path().display()),
        format!("not ok  store       could not ask redis://{dead}"),
        "not ok  CA trust    there is no CA in".into(),
        "andante ca init".into(),
        "without http_proxy, which is all that curl reads".into(),
        "HTTP_PROXY is http://127.0.0.1:1: andante listens on".into(),
        "HTTPS_PROXY is not".into(),
        "NO_PROXY has api.test: requests to api.test".into(),
        "ok      plain".into(),
    ] {
        assert!(text.contains(&words), "{words}\n{text}");
    }
    let hints = text.matches("-> do").count();
    assert_eq!(hints, text.matches("not ok  ").count(), "each says what to do: {text}");
}

/// The trial leaves nothing behind: the store is as new as before.
#[test]
fn a_store_that_executes_the_script_is_ok_and_a_new_one_is_said_to_be_new() {
    let redis = Redis::start();
    let said = || {
        let (code, found) = found(&["--store", &redis.url()], &[]);
        let store = found.iter().find(|finding| finding["name"] == "store").cloned().unwrap_or_default();
        assert!(code == Some(0) && store["ok"] == true, "{found:#?}");
        store
    };
    for _ in 0..2 {
        let store = said();
        assert!(store["detail"].as_str().unwrap().contains("has no fleet yet"), "{store}");
        assert!(store["hint"].as_str().unwrap().contains("andante fleet init"), "{store}");
        assert_eq!(redis.ask("DBSIZE").as_deref(), Some(":0\r\n"));
    }
    let (code, ..) = outcome(andante(&["fleet", "init", "--store", &redis.url()]));
    assert_eq!(code, Some(0));
    let store = said();
    assert!(
        store["detail"].as_str().unwrap().contains("and has the ledger of a fleet") && store["hint"].is_null(),
        "{store}"
    );
}

/// The commands that docs/fleet.md names suffice for a user of the store, and fewer do not.
#[test]
fn a_user_of_the_store_needs_the_documented_rights() {
    let redis = Redis::start();
    let rights = "+@read +@write +eval +evalsha +info +time +publish +subscribe";
    for (name, rights) in [("right", rights), ("wrong", "+eval +evalsha +info +time +publish +subscribe")] {
        let user = format!("ACL SETUSER {name} on >pass ~{{andante}}:* resetchannels &{{andante}}:* -@all {rights}");
        assert_eq!(redis.ask(&user).as_deref(), Some("+OK\r\n"));
    }
    let at = redis.address();
    let (code, found) = found(&["--store", &format!("redis://right:pass@{at}")], &[]);
    assert_eq!(code, Some(0), "{found:#?}");
    let (detail, hint) = store_at(&format!("redis://wrong:pass@{at}"));
    assert!(hint.contains("+@read +@write +eval"), "{detail}\n{hint}");
}

/// The finding of `doctor` about the store at `url`: the problem and the remedy.
fn store_at(url: &str) -> (String, String) {
    let (code, found) = found(&["--store", url], &[]);
    let store = found.iter().find(|finding| finding["name"] == "store").unwrap().clone();
    assert_eq!((code, &store["ok"]), (Some(1), &false.into()), "{url}: {store}");
    ["detail", "hint"].map(|name| store[name].as_str().unwrap().to_owned()).into()
}

/// Answers of Redis 6.2 and of servers that are none; a password that is wrong or missing.
#[test]
fn a_store_of_no_use_is_named_by_doctor_and_at_start_with_what_to_write() {
    let redis = Redis::start_with(&["--requirepass", "right"]);
    let at = redis.address();
    let old = Upstream::scripted(|mut connection| {
        while let Some(command) = resp_command(&mut connection) {
            let name = command.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
            connection.send(match &*name {
                "EVALSHA" => "-NOSCRIPT No matching script. Please use EVAL.\r\n",
                "EVAL" => "-ERR Error running script (call to f_8b0): @user_script:10: ERR syntax error\r\n",
                _ => "+OK\r\n",
            });
        }
    });
    let no_redis = Upstream::scripted(|mut connection| {
        let _ = connection.bytes(1);
        connection.send("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let silent = Upstream::scripted(|mut connection| while connection.bytes(1).is_ok() {});
    let authority = Authority::new("store");
    let (plain, secure) = (Redis::start(), Redis::secure(&authority.leaf(&["127.0.0.1"])));
    for (url, reason, remedy) in [
        (format!("redis://{at}"), "NOAUTH: it asks for a password", "redis://:PASSWORD@"),
        (format!("redis://:wrong@{at}"), "WRONGPASS", "redis://USER:PASSWORD@"),
        (format!("redis://{}", old.address()), "older than Redis 7", "Redis 7 or later"),
        (format!("redis://{}", no_redis.address()), "no Redis", "rediss://"),
        (format!("redis://{}", silent.address()), "no answer", "rediss://"),
        (format!("rediss://{}", plain.address()), "no TLS", "redis://"),
        (format!("redis://{}", secure.address()), "no answer", "rediss://"),
        (secure.url(), "certificate", "SSL_CERT_FILE"),
    ] {
        let started = Andante::serve(&["--store", &url]);
        let (detail, hint) = store_at(&url);
        assert!(detail.contains(reason) && hint.contains(remedy), "{url}: {detail}\n{hint}");
        assert!(!detail.contains("wrong@"), "{detail}");
        let line = eventually("the line about the store", || {
            let log = started.stderr();
            log.lines().find(|line| line.contains("cannot join the fleet")).map(str::to_owned)
        });
        assert!(line.contains(reason) && line.contains(remedy), "{url}: {line}");
        let status = started.status();
        assert!(status["fleet"]["hint"].as_str().is_some_and(|hint| hint.contains(remedy)), "{url}: {status}");
    }
}

#[test]
fn a_mistake_in_the_configuration_is_said_as_elsewhere() {
    let (code, _, stderr) = outcome(andante(&["doctor", "--limit", "a=1 per s"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("hint: write 1/s"), "{stderr}");
}

/// The next command that a client of Redis sends (RESP arrays of strings).
fn resp_command(connection: &mut Connection) -> Option<Vec<String>> {
    let mut line = || {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(connection.bytes(1).ok()?);
        }
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    };
    let count: usize = line()?.strip_prefix('*')?.parse().ok()?;
    (0..count).map(|_| line().and_then(|_| line())).collect()
}

#[test]
fn flags_of_an_andante_that_runs_are_said_not_to_be_read() {
    let andante_now = Andante::serve(&["--limit", "api.test=7/h"]);
    let (listen, admin) = (andante_now.proxy().to_string(), andante_now.admin().to_string());
    let (_, text, _) = outcome(andante(&["doctor", "--listen", &listen, "--admin", &admin]));
    let line = text.lines().next().unwrap_or_default();
    assert!(line.contains("the flags of the andante that runs here are not read"), "{text}");
}

#[test]
fn a_file_for_which_serve_does_not_start_is_found_by_check_and_doctor() {
    let token = file("short");
    let config = file(&format!("admin-token = '{}'\n", token.path().display()));
    let path = config.path().to_str().unwrap();
    let words = "it is too short: it has 5 characters";
    let (code, _, stderr) = outcome(andante(&[&["serve", "--config", path], &HERE[..]].concat()));
    assert!(code == Some(1) && stderr.contains(words), "{stderr}");
    let (code, _, stderr) = outcome(andante(&["check", path]));
    assert!(code == Some(1) && stderr.contains(words), "{stderr}");
    let (code, found) = found(&["--config", path], &[]);
    let files: Vec<_> = found.iter().filter(|finding| finding["name"] == "files").collect();
    assert!(code == Some(1) && files.len() == 1 && files[0]["detail"].as_str().unwrap().contains(words), "{found:#?}");
}

#[test]
fn an_authority_that_has_expired_is_found_by_check_and_doctor() {
    let expired = TRUSTED.sign(&["corp.test"], |params| params.not_after = date_time_ymd(2021, 2, 3));
    let pem = expired.file();
    let config = file(&format!("upstream-ca = '{}'\n", pem.path().display()));
    let path = config.path().to_str().unwrap();
    let (code, _, stderr) = outcome(andante(&["check", path]));
    assert!(code == Some(1) && stderr.contains("expired on 2021-02-03"), "{stderr}");
    let (code, found) = found(&["--config", path], &[]);
    let files: Vec<_> = found.iter().filter(|finding| finding["name"] == "files").collect();
    assert!(code == Some(1) && files.len() == 1, "{found:#?}");
    assert!(files[0]["detail"].as_str().unwrap().contains("expired on 2021-02-03"), "{found:#?}");
}

#[test]
fn an_access_log_that_cannot_be_written_is_found_by_check_and_doctor_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    for place in ["none/access.log", ""] {
        let log = folder.path().join(place);
        let config = file(&format!("access-log = '{}'\n", log.display()));
        let path = config.path().to_str().unwrap();
        let (code, _, stderr) = outcome(andante(&[&["serve", "--config", path], &HERE[..]].concat()));
        assert!(code == Some(1) && stderr.contains("could not open the access log"), "{stderr}");
        let (code, _, stderr) = outcome(andante(&["check", path]));
        assert!(code == Some(1) && stderr.contains("could not open the access log"), "{place}: {stderr}");
        assert!(stderr.contains("hint: name a file in a folder that is there"), "{stderr}");
        let (code, found) = found(&["--config", path], &[]);
        let files: Vec<_> = found.iter().filter(|finding| finding["name"] == "files").collect();
        assert!(code == Some(1) && files.len() == 1, "{found:#?}");
        assert!(files[0]["detail"].as_str().unwrap().contains("could not open the access log"), "{found:#?}");
    }
    let log = folder.path().join("access.log");
    let config = file(&format!("access-log = '{}'\n", log.display()));
    assert_eq!(outcome(andante(&["check", config.path().to_str().unwrap()])).0, Some(0));
    assert!(!log.exists(), "a check makes no file");
}
