//! An API that enforces its limit: `andante mock`, the real program.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, ChildStdout, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Andante, Client, Message};

/// A running `andante mock`, which is killed when dropped.
pub(crate) struct Mock {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Mock {
    /// Starts `andante mock` with `args` on a free port, and waits until it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = Andante::command();
        command.args(["mock", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdout, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        stdout.read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        Self { child, stdout, address: address.unwrap_or_else(|| panic!("not ready: {line:?}")) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:1234` and `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Statistics of the mock so far.
    pub(crate) fn stats(&self) -> Value {
        let ask = "GET /__mock/stats HTTP/1.1\r\nHost: mock\r\nConnection: close\r\n\r\n";
        Client::ask(self.address, ask).json()
    }

    /// Sends a request to a control page, which must grant it. Returns the answer.
    pub(crate) fn control(&self, method: &str, page: &str, body: &str) -> Value {
        let answer = self.try_control(method, page, body);
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.json()
    }

    /// Asks one of its control pages for something.
    pub(crate) fn try_control(&self, method: &str, page: &str, body: &str) -> Message {
        let length = body.len();
        let ask = format!("{method} /__mock/{page} HTTP/1.1\r\nHost: mock\r\nContent-Length: {length}\r\n\r\n{body}");
        Client::ask(self.address, ask)
    }

    /// Ends it by `signal`; returns how it ended, and its last words.
    pub(crate) fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut report = String::new();
        self.stdout.read_to_string(&mut report).unwrap();
        (self.child.wait().unwrap(), report)
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
