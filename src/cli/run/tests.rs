//! Real commands around a real proxy.

use tokio::sync::Mutex;

use super::*;

/// A signal reaches every command of this process, so tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn code(command: &[&str]) -> u8 {
    let _turn = ONE_AT_A_TIME.lock().await;
    let options = RunOptions { quiet: true, json: false, command: command.iter().map(OsString::from).collect() };
    around(base(), options).await.unwrap_or_else(|trouble| trouble.code())
}

#[tokio::test]
async fn the_exit_code_is_the_commands() {
    assert_eq!(code(&["true"]).await, 0);
    assert_eq!(code(&["sh", "-c", "exit 42"]).await, 42);
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]).await, 128 + 9);
}

#[tokio::test]
async fn what_cannot_be_run_has_the_codes_of_shells() {
    assert_eq!(code(&["/nowhere/at/all"]).await, 127);
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(code(&[file.path().to_str().unwrap()]).await, 126);
    assert_eq!(code(&["/"]).await, 126);
}

#[tokio::test]
async fn the_command_finds_a_proxy_that_listens() {
    let script = r#"
        test "$http_proxy" = "$HTTP_PROXY" || exit 1
        test "$NODE_USE_ENV_PROXY" = 1 || exit 2
        case "$https_proxy" in http://127.0.0.1:[1-9]*) ;; *) exit 3 ;; esac
    "#;
    assert_eq!(code(&["sh", "-c", script]).await, 0);
}

#[tokio::test]
async fn signals_sent_to_andante_reach_the_command() {
    let script = "trap 'exit 7' USR2; kill -USR2 $PPID; while :; do sleep 0.01; done";
    assert_eq!(code(&["sh", "-c", script]).await, 7);
}

#[test]
fn only_what_could_be_helped_has_a_hint() {
    let trouble = |kind: io::ErrorKind| Trouble::Command { command: "x".into(), source: kind.into() };
    assert!(trouble(io::ErrorKind::NotFound).hint().is_some());
    assert!(trouble(io::ErrorKind::PermissionDenied).hint().is_some());
    assert!(trouble(io::ErrorKind::ArgumentListTooLong).hint().is_none());
    assert_eq!(trouble(io::ErrorKind::NotFound).to_string(), "cannot run \"x\"");
}
