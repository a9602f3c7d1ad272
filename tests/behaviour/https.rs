//! HTTPS: bytes that enter tunnels, and requests that leave, seen from both ends.

use crate::support::{
    Andante, Upstream,
    tls::{Server, TRUSTED},
};

mod addresses;
mod certificates;
mod handshakes;
mod hosts;
mod names;
mod parents;
mod requests;
mod run;
mod secrets;
mod server_names;
mod tunnel_ends;
mod turns;
mod upstreams;

/// An upstream that andante believes, at any name of loopback that tests use.
pub(crate) fn secure() -> Upstream {
    Upstream::secure_ok(server(&["http/1.1"]))
}

/// How it speaks TLS.
fn server(alpn: &[&str]) -> Server {
    Server::new(&TRUSTED.leaf(&["localhost", "a.localhost", "b.localhost", "127.0.0.1"]), alpn)
}

/// The address of an upstream with the name `localhost`.
pub(crate) fn localhost(upstream: &Upstream) -> String {
    format!("localhost:{}", upstream.port())
}

/// Number of tunnels with this `outcome`.
fn intercepted(andante: &Andante, outcome: &str) -> u64 {
    let label = format!("outcome=\"{outcome}\"");
    let metrics = andante.metrics();
    let lines =
        metrics.lines().filter(|line| line.starts_with("andante_interceptions_total{") && line.contains(&label));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}
