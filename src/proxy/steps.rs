//! The steps of a request, in the order of [`stack`](super::stack). A step knows the steps below it only as a service.

pub(crate) mod access_log;
pub(crate) mod ask;
mod cache;
pub(super) mod claim;
mod coalesce;
pub(crate) mod costs;
pub(crate) mod count;
pub(crate) mod credential;
pub(crate) mod draws;
pub(crate) mod forward;
mod idempotency;
mod include_usage;
pub(crate) mod keyed_hash;
#[cfg(test)]
mod largest_heads;
mod look;
pub(crate) mod read;
pub(crate) mod respond;
pub(crate) mod retry;
mod same_request;
pub(crate) mod share;
mod shared_call;
pub(crate) mod tunnel;
pub(crate) mod wait;
pub(crate) mod whole_body;
