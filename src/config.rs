//! The checked configuration: everything that andante runs on, free of contradictions. Starts nothing.

mod answers;
pub mod authorities;
mod check;
mod diagnostic;
pub mod duration;
pub mod expiry;
mod files;
mod fleet;
mod gateways;
pub mod keys;
mod layer;
mod load;
mod model;
mod otlp;
mod reader;
mod rules;
pub mod schema;
mod source;
pub mod synonyms;
#[cfg(test)]
mod tests;
pub mod token_file;
mod value;

pub use self::{
    diagnostic::{Diagnostic, Place, Severity},
    fleet::{FleetConfig, StoreLayout, StoreUrl},
    load::Checked,
    model::{AccessLog, Clients, Config, Dns, LogFormat, StatePlace, Timeouts},
    otlp::{OtlpConfig, OtlpEndpoint, OtlpUrl},
    source::{File, Settings, Sources},
    value::listen_address,
};
