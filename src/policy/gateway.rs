//! Gateway routes: paths of ours that stand for an API.

use std::sync::Arc;

use super::Origin;

/// A path that stands for an API, for clients that take a base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// What the paths of requests begin with: `/openai`. Never ends in `/`.
    pub path: Arc<str>,
    /// Whose API it is.
    pub to: Origin,
    /// What comes before the rest of the path there: `/v1`, or nothing. Never ends in `/`.
    pub base: Arc<str>,
}
