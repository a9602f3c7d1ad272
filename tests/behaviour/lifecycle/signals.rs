//! Signals that many programs take for "reload" or "reopen the log" do not end a proxy that others depend on.

use std::{
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::waiting;
use crate::support::{Andante, Client, Upstream, eventually};

#[test]
fn a_reload_signal_does_not_end_serve_that_has_no_file_and_the_log_says_how_to_restart() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--limit", &format!("{}=1/s", upstream.address())]);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    // A restart would cost this one its place.
    let mut queued = Client::connect(andante.proxy());
    queued.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    andante.wait_for(|status| waiting(status) == 1);
    for (signal, name) in [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        andante.signal(signal);
        let said = format!("signal=\"{name}\"");
        let line = eventually("a line about the signal", || {
            andante.stderr().lines().find(|line| line.contains(&said)).map(str::to_owned)
        });
        assert!(line.contains("WARN") && line.contains("SIGTERM"), "{line}");
    }
    let log = andante.stderr();
    assert!(log.lines().any(|line| line.contains("SIGHUP") && line.contains("not reloaded")), "{log}");
    assert_eq!(queued.answer().status(), 200);
}

#[test]
fn a_broken_pipe_does_not_end_serve() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&[]);
    andante.signal(Signal::PIPE);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
}

#[test]
fn a_terminal_that_goes_takes_serve_with_it() {
    let (terminal, proxy) = in_a_terminal("exec $ANDANTE");
    drop(terminal);
    eventually("the proxy to end", || TcpStream::connect(proxy).is_err().then_some(()));
}

#[test]
fn under_nohup_serve_outlives_its_terminal() {
    let (terminal, proxy) = in_a_terminal("trap '' HUP; echo pid $$; exec $ANDANTE");
    let pid = terminal.pid.expect("the script says it");
    drop(terminal);
    let upstream = Upstream::ok();
    for _ in 0..20 {
        assert_eq!(Client::get(proxy, &upstream.url("/")).status(), 200);
    }
    kill_process(pid, Signal::KILL).unwrap();
}

/// A terminal, which is gone when this is dropped.
struct Terminal {
    script: Child,
    pid: Option<Pid>,
}

/// Runs `command` on a terminal of its own; `$ANDANTE` starts a proxy, whose address is returned.
fn in_a_terminal(command: &str) -> (Terminal, SocketAddr) {
    let serve = format!("{} serve --listen 127.0.0.1:0 --admin off", env!("CARGO_BIN_EXE_andante"));
    let mut script = Command::new("script")
        .args(["-qfec", command, "/dev/null"])
        .env("ANDANTE", serve)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script(1) is there");
    let (mut pid, mut proxy) = (None, None);
    for line in BufReader::new(script.stdout.take().unwrap()).lines().map_while(Result::ok) {
        pid = pid.or_else(|| line.strip_prefix("pid ").and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?)));
        if let Some((_, rest)) = line.split_once("listening on http://") {
            proxy = rest.split(',').next().and_then(|address| address.parse().ok());
            break;
        }
    }
    (Terminal { script, pid }, proxy.expect("a ready line"))
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
