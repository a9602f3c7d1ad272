//! Gateway routes: paths of andante that stand for an API.

use std::sync::Arc;

use super::Origin;

/// A path that stands for an API, for clients that take a base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Prefix of the requests' paths: `/openai`. Never ends in `/`.
    pub path: Arc<str>,
    /// Origin of the API.
    pub to: Origin,
    /// Prefix of the paths at the API: `/v1`, or nothing. Never ends in `/`.
    pub base: Arc<str>,
}
