//! The limit that delays a request most, for traces.

use super::Lane;
use crate::{request::AdmitRequest, state::Bottleneck};

impl Lane {
    /// The bottleneck of a waiting request that asked with `ask`.
    pub fn bottleneck(&self, ask: &AdmitRequest) -> Bottleneck {
        let (now, store_lost) = (self.clock.now(), self.lost_store().is_some());
        let mut state = self.shared.state.lock();
        if store_lost { state.whole_lane("store".to_owned()) } else { state.bottleneck(now, ask) }
    }
}
