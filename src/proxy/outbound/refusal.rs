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
    let (host, obstacle) = (host.to_owned(), lane.obstacle_of(refusal).map(Box::new));
    let rule = refusal.rule().unwrap_or(&lane.policy().name).clone();
    let (why, cause) = (refusal.to_string(), refusal.cause());
    Error::Refused { host, why, cause, rule, obstacle, retry_after: refusal.retry_after() }
}
