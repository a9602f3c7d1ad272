//! The limit that delays a request most, for traces.

use andante_limit::Ready;

use super::Lane;
use crate::{request::AdmitRequest, state::Bottleneck};

impl Lane {
    /// The bottleneck of a waiting request that asked with `ask`.
    pub fn bottleneck(&self, ask: &AdmitRequest) -> Bottleneck {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        match state.store_ready(now) {
            Ready::Now => state.bottleneck(now, ask),
            Ready::At(_) | Ready::OnEvent => state.whole_lane("store".to_owned()),
        }
    }
}
