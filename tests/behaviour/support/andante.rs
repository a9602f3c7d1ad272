//! The program under test.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::{Client, Log, Message, PATIENCE, eventually};

/// A running `andante serve`, which is killed when dropped.
pub(crate) struct Andante {
    child: Child,
    listen: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    stderr: Log,
    _config: Option<NamedTempFile>,
}

impl Andante {
    /// Starts `andante serve` with `args`, on free ports unless they name addresses, and waits until it is ready.
    pub(crate) fn serve(args: &[&str]) -> Self {
        Self::start(args, None)
    }

    /// Starts andante with the configuration file `toml`.
    pub(crate) fn with_config(toml: &str) -> Self {
        Self::with_config_and(toml, &[])
    }

    /// Starts andante with `args`, which win over the configuration file `toml`.
    pub(crate) fn with_config_and(toml: &str, args: &[&str]) -> Self {
        Self::start(args, Some(Self::file(toml)))
    }

    /// Starts andante with `args` and the log level `level`.
    pub(crate) fn logging(level: &str, args: &[&str]) -> Self {
        Self::launch(Self::command().env("ANDANTE_LOG", level), args, None)
    }

    /// Starts andante with `args`, the log level `level` and the configuration file `toml`.
    pub(crate) fn logging_with_config(level: &str, toml: &str, args: &[&str]) -> Self {
        Self::launch(Self::command().env("ANDANTE_LOG", level), args, Some(Self::file(toml)))
    }

    /// Starts andante with a `variable` of the environment.
    pub(crate) fn with_environment(variable: &str, value: &str) -> Self {
        Self::launch(Self::command().env(variable, value), &[], None)
    }

    /// Starts andante with a `variable` of the environment and the configuration file `toml`.
    pub(crate) fn with_environment_and_config(variable: &str, value: &str, toml: &str) -> Self {
        Self::launch(Self::command().env(variable, value), &[], Some(Self::file(toml)))
    }

    /// Starts andante by `command`, whose environment may have more variables.
    pub(crate) fn launched(command: &mut Command, args: &[&str]) -> Self {
        Self::launch(command, args, None)
    }

    /// Starts andante through `program`, which runs its arguments as a command.
    pub(crate) fn started_by(program: &[&str]) -> Self {
        let mut command = Self::clean(program[0]);
        command.args(&program[1..]).arg(env!("CARGO_BIN_EXE_andante"));
        Self::launch(&mut command, &[], None)
    }

    /// `andante`, without environment variables that could change its behaviour.
    pub(crate) fn command() -> Command {
        Self::clean(env!("CARGO_BIN_EXE_andante"))
    }

    fn clean(program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy().to_ascii_lowercase();
            if text.starts_with("andante_") || text.starts_with("otel_") || text.ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        command
    }

    fn file(toml: &str) -> NamedTempFile {
        let mut file = NamedTempFile::with_suffix(".toml").unwrap();
        file.write_all(toml.as_bytes()).unwrap();
        file
    }

    fn start(args: &[&str], config: Option<NamedTempFile>) -> Self {
        Self::launch(&mut Self::command(), args, config)
    }

    fn launch(command: &mut Command, args: &[&str], config: Option<NamedTempFile>) -> Self {
        super::alone::beside();
        // The state of an earlier test must not count.
        command.arg("serve").env("ANDANTE_STATE", "off");
        for flag in ["--listen", "--admin"] {
            if !args.contains(&flag) {
                command.args([flag, "127.0.0.1:0"]);
            }
        }
        if let Some(config) = &config {
            command.arg("--config").arg(config.path());
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();

        let stderr = Log::of(child.stderr.take().unwrap());
        let (sender, ready) = mpsc::channel();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = sender.send(line);
            // Whatever else it says is read, so that it never blocks on saying it.
            let _ = stdout.read_to_end(&mut Vec::new());
        });

        let mut andante = Self { child, listen: Vec::new(), admin: None, stderr, _config: config };
        let line = ready.recv_timeout(PATIENCE).unwrap_or_default();
        // With a log in JSON the line is JSON as well.
        let json: Option<Value> = serde_json::from_str(&line).ok();
        let line = json.and_then(|json| json["message"].as_str().map(str::to_owned)).unwrap_or(line);
        let Some((listen, admin)) = line.trim().split_once(", admin ") else {
            let _ = andante.child.kill();
            let _ = andante.child.wait();
            panic!("not ready: {line:?}\n{}", andante.stderr());
        };
        let addresses = |text: &str| -> Vec<SocketAddr> {
            text.split("http://").skip(1).map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
        };
        andante.listen = addresses(listen);
        andante.admin = addresses(admin).pop();
        andante
    }

    /// Where workers connect: the first address.
    pub(crate) fn proxy(&self) -> SocketAddr {
        self.listen[0]
    }

    /// Where workers connect: all addresses.
    pub(crate) fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// Where the admin pages are.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.expect("admin is off")
    }

    /// An admin page.
    pub(crate) fn page(&self, path: &str) -> Message {
        let at = self.admin();
        Client::ask(at, format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"))
    }

    /// The content of `/status`.
    pub(crate) fn status(&self) -> Value {
        self.page("/status").json()
    }

    /// The content of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        self.page("/metrics").text()
    }

    /// Waits until `/status` is such that `wanted`, and returns it.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..1000 {
            last = self.status();
            if wanted(&last) {
                return last;
            }
            thread::park_timeout(super::PAUSE);
        }
        panic!("the status never became what it should be: {last:#}");
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Processor time used so far, in ticks of 10 ms; proc_pid_stat(5), `utime` and `stime`.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid().as_raw_nonzero())).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        eventually("andante's end", || self.child.try_wait().unwrap())
    }

    /// Text that andante has written to standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }
}

impl Drop for Andante {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("andante said:\n{}", self.stderr());
        }
    }
}
