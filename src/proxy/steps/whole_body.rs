//! Reads all of a request's body before its turn, if the request's rule compares requests by their bodies or changes
//! them.

use crate::{
    error::Error,
    proxy::{call::Call, message::incoming_body::Fingerprint},
};

/// Size of the largest body that is read: larger ones stream, and are not compared.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

/// Reads the body of `call`, and returns its fingerprint. `None` if the body is too large, has trailers, or there is no
/// memory for it.
pub(super) async fn read(call: &mut Call) -> Result<Option<Fingerprint>, Error> {
    let (memory, progress) = (call.exchange.proxy.replay_memory.clone(), call.exchange.progress.clone());
    let body = call.request.body_mut();
    if body.fingerprint().is_none() {
        progress.awaits_answer();
        body.read_ahead(MOST_BYTES, &memory).await.map_err(|source| Error::Body { source })?;
        progress.awaits_answer();
    }
    Ok(call.request.body().fingerprint())
}
