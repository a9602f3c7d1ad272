//! A store for several andantes: a Redis, the real program.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{NamedTempFile, TempDir};

use super::{Andante, eventually, tls::Leaf};

/// A Redis that remembers nothing beyond its end, and is killed when dropped.
pub(crate) struct Redis {
    process: Child,
    address: SocketAddr,
    args: Vec<String>,
    /// Folder of the server's files, removed on drop.
    _folder: TempDir,
    /// Certificate and key of a server with TLS only.
    tls: Option<NamedTempFile>,
}

impl Redis {
    /// Starts one on a free port.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server on a free port with other arguments.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::begin(args, None)
    }

    /// Starts a server with TLS only, which shows `leaf`.
    pub(crate) fn secure(leaf: &Leaf) -> Self {
        Self::begin(&[], Some(leaf.file()))
    }

    /// A Sentinel, which watches over `server` and its replicas: two of them suffice to replace it.
    pub(crate) fn sentinel(server: &Self) -> Self {
        let (folder, address) = (TempDir::new().unwrap(), free());
        let file = folder.path().join("sentinel.conf");
        let watched = format!("{} {}", server.address.ip(), server.address.port());
        let settings = format!(
            "bind 127.0.0.1\nport {}\ndir {}\nsentinel monitor main {watched} 2\nsentinel down-after-milliseconds main \
             1000\nsentinel failover-timeout main 10000\nsentinel parallel-syncs main 2\n",
            address.port(),
            folder.path().display()
        );
        std::fs::write(&file, settings).unwrap();
        let args = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        Self::run(address, args, folder, None)
    }

    fn begin(args: &[&str], tls: Option<NamedTempFile>) -> Self {
        let (folder, address) = (TempDir::new().unwrap(), free());
        let (port, place) = (address.port().to_string(), folder.path().to_str().unwrap().to_owned());
        let mut all = vec!["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", &place];
        let file = tls.as_ref().map(|file| file.path().to_str().unwrap().to_owned());
        match &file {
            None => all.extend(["--port", &port]),
            Some(file) => {
                all.extend(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"]);
                all.extend(["--tls-cert-file", file, "--tls-key-file", file]);
            }
        }
        let args = all.into_iter().chain(args.iter().copied()).map(str::to_owned).collect();
        Self::run(address, args, folder, tls)
    }

    fn run(address: SocketAddr, args: Vec<String>, folder: TempDir, tls: Option<NamedTempFile>) -> Self {
        let redis = Self { process: Self::launch(&args), address, args, _folder: folder, tls };
        redis.wait();
        redis
    }

    /// Starts a server, and declares it a new store for a fleet.
    pub(crate) fn for_a_fleet() -> Self {
        Self::for_a_fleet_with(&[])
    }

    /// Starts a server, and declares it a new store by `fleet init` with `args`.
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

    /// Kills the server, whose data is lost.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again, empty.
    pub(crate) fn restart(&mut self) {
        self.process = Self::launch(&self.args);
        self.wait();
    }

    /// Reply to a command, whose arguments have no spaces in them.
    pub(crate) fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = [0; 1 << 14];
        let read = stream.read(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..read]).into_owned())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn launch(args: &[String]) -> Child {
        let mut command = Command::new("redis-server");
        command.args(args).stdout(Stdio::null());
        command.spawn().expect("redis-server (Debian package redis-server) is there")
    }

    fn wait(&self) {
        if self.tls.is_some() {
            eventually("the Redis", || TcpStream::connect(self.address).ok());
        } else {
            eventually("the Redis", || {
                self.ask("PING").filter(|answer| ["+PONG", "-NOAUTH"].iter().any(|said| answer.starts_with(said)))
            });
        }
    }
}

/// An address of loopback without a listener.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
