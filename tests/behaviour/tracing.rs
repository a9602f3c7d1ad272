//! Traces: one server span a request, one span a wait, one client span a try, in the trace of the worker; and metrics that
//! are pushed. The expectations are those of W3C Trace Context, OTLP and the semantic conventions for HTTP.

mod context;
mod export;
mod spans;

use crate::support::{Andante, Client, Collector, Message};

/// The span of a worker, as it tells it.
const WORKER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// An andante that exports to `collector` at once, with `flags`.
fn traced(collector: &Collector, flags: &[&str]) -> Andante {
    traced_with(&collector.url(), flags, &[])
}

/// An andante that exports to `url` at once, with `flags` and `variables`.
fn traced_with(url: &str, flags: &[&str], variables: &[(&str, &str)]) -> Andante {
    let mut command = Andante::command();
    command.env("OTEL_BSP_SCHEDULE_DELAY", "10").envs(variables.iter().copied());
    Andante::launched(&mut command, &[&["--otlp", url], flags].concat())
}

/// `GET url` with these fields.
fn get(andante: &Andante, url: &str, fields: &str) -> Message {
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    Client::ask(andante.proxy(), format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
