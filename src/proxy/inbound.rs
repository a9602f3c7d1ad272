//! Workers' connections: detects the protocol, serves it to its end, and then serves the tunnel or protocol to which a
//! request has switched.

mod both_ways;
mod detect;
mod http1;
mod http2;
mod intercept;
mod message_end;
mod relay;
mod request_line;
mod rewrite_errors;
mod server_name;
mod socket;
mod takeover;
mod tunnel;
mod turn_lanes;
mod turn_relay;
mod turn_reports;
mod watchdog;

pub use detect::serve;
