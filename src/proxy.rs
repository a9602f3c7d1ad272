//! The proxy: from a worker's connection to the upstream's answer.
//!
//! `stack` shows the way of a request, top to bottom. The sub-modules are layers, and each one knows only the layers
//! before it: `message` (fields and bodies), `outbound` (connections to upstreams), `call` with `session` and
//! `exchange` (a request at each stage of its way), `steps`, `explain` (their effect on a request), `stack`, `inbound`
//! (workers' connections).

mod cache;
mod call;
mod client_aborts;
mod client_connection;
mod context;
mod drain;
mod exchange;
mod explain;
mod failure_log;
mod inbound;
mod incidents;
mod log_throttle;
mod message;
mod outbound;
mod protocol;
mod recent;
mod replays;
mod request_memory;
mod request_stats;
mod request_trace;
mod retry_log;
mod session;
mod settings;
mod sharing;
mod shown_url;
mod signatures;
mod stack;
mod steps;
mod takeover;

pub use context::{Access, Proxy, ProxyParts};
pub use explain::{ExplainContext, Explained, ExplainedRule, explain, explain_running};
pub use inbound::serve;
pub use incidents::{Incident, Incidents};
pub use outbound::pool::Pool;
pub use settings::NewSettings;
pub(crate) use steps::keyed_hash::{new_secret, set_secret};
pub use steps::{access_log::ACCESS, claim::reweigh_waiting};
