//! What andante does, seen from outside: the real program, over real sockets.
//!
//! Tests are named after what they claim; those that begin with `r` and a number hold andante to what HTTP asks of a
//! proxy, family by family.

mod support;

mod answers;
mod calendar_limits;
mod commands;
mod flows;
mod gateway;
mod http2;
mod http_connect;
mod http_framing;
mod http_semantics;
mod http_targets;
mod http_upstream;
mod https;
mod lifecycle;
mod order;
mod reload;
mod scenario;
mod trying_again;
