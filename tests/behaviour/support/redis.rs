//! A store for several andantes: a Redis, the real program.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::{Andante, eventually, tls::Leaf};

/// A Redis that remembers nothing beyond its end, and is killed when dropped.
pub(crate) struct Redis {
    process: Child,
    address: SocketAddr,
    /// Its certificate and key, if it speaks nothing but TLS.
    tls: Option<NamedTempFile>,
}

impl Redis {
    /// Starts one on a free port.
    pub(crate) fn start() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let redis = Self { process: Self::launch(address, None), address, tls: None };
        redis.wait();
        redis
    }

    /// One that speaks nothing but TLS, and shows `leaf`.
    pub(crate) fn secure(leaf: &Leaf) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file = leaf.file();
        let redis = Self { process: Self::launch(address, Some(&file)), address, tls: Some(file) };
        redis.wait();
        redis
    }

    /// The same, and declares it a new store for a fleet.
    pub(crate) fn for_a_fleet() -> Self {
        Self::for_a_fleet_with(&[])
    }

    /// The same, with other arguments.
    pub(crate) fn for_a_fleet_with(args: &[&str]) -> Self {
        let redis = Self::start();
        let done = Andante::command().args(["fleet", "init", "--store", &redis.url()]).args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        redis
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "rediss" } else { "redis" }, self.address)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Kills it. What it knew is lost.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again, empty.
    pub(crate) fn restart(&mut self) {
        self.process = Self::launch(self.address, self.tls.as_ref());
        self.wait();
    }

    /// What it answers to a command without arguments.
    pub(crate) fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = [0; 1024];
        let read = stream.read(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..read]).into_owned())
    }

    fn launch(address: SocketAddr, tls: Option<&NamedTempFile>) -> Child {
        let (mut command, port) = (Command::new("redis-server"), address.port().to_string());
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        match tls.map(|file| file.path().to_str().unwrap()) {
            None => command.args(["--port", &port]),
            Some(file) => command.args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"]).args([
                "--tls-cert-file",
                file,
                "--tls-key-file",
                file,
            ]),
        };
        command.stdout(Stdio::null()).spawn().expect("redis-server (Debian package redis-server) is there")
    }

    fn wait(&self) {
        if self.tls.is_some() {
            eventually("the Redis", || TcpStream::connect(self.address).ok());
        } else {
            eventually("the Redis", || self.ask("PING").filter(|answer| answer.starts_with("+PONG")));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
