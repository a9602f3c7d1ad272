//! Behaviour of andante, seen from outside: the real program, over real sockets.
//!
//! A test's name is its claim. The files that begin with `http_` check the requirements of HTTP for a proxy.

mod support;

mod answers;
mod cache;
mod calendar_limits;
mod coalesce;
mod commands;
mod concurrency;
mod costs;
mod deduplicate;
mod fleet;
mod flows;
mod gateway;
mod http2;
mod http_connect;
mod http_framing;
mod http_semantics;
mod http_targets;
mod http_upstream;
mod https;
mod idempotency;
mod lifecycle;
mod memory;
mod order;
mod problem_types;
mod query;
mod reload;
mod rule_bounds;
mod rules;
mod scenario;
mod state;
mod tracing;
mod transparency;
mod trying_again;
