//! The error of a request that its lane refuses.

use crate::{
    error::Error,
    lane::{Lane, Refusal},
};

/// The error of a request for `host` that `lane` has refused.
pub(crate) fn error(host: &str, lane: &Lane, refusal: &Refusal) -> Error {
    if *refusal == Refusal::DroppedByOperator {
        return Error::DroppedByOperator;
    }
    if *refusal == Refusal::HandedOver {
        return Error::Draining { retry_after: refusal.retry_after() };
    }
    let (host, obstacle) = (host.to_owned(), lane.obstacle().map(Box::new));
    let rule = refusal.rule().unwrap_or(&lane.policy().name).clone();
    Error::Refused { host, why: refusal.to_string(), rule, obstacle, retry_after: refusal.retry_after() }
}
