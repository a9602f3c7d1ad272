//! Parts of the process that end after its last request.

use tokio::task::JoinHandle;

use super::{fleet::Talking, keeping::Writer};
use crate::otlp::Exporting;

/// The parts of a process that end after its last request.
pub(super) struct Closing {
    /// Task that talks to the store that shares budgets.
    pub(super) talking: Option<Talking>,
    /// Writer of the persisted state.
    pub(super) writer: Option<Writer>,
    /// Exporter of traces and metrics.
    pub(super) exporting: Option<Exporting>,
    /// The admin pages, which show the drain too.
    pub(super) pages: Option<JoinHandle<()>>,
}

impl Closing {
    /// Ends the parts in order. No request may leave any more.
    pub(super) async fn finish(self) {
        let Self { talking, writer, exporting, pages } = self;
        if let Some(talking) = talking {
            talking.finish().await;
        }
        if let Some(writer) = writer {
            writer.finish().await;
        }
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        if let Some(pages) = pages {
            pages.abort();
        }
    }
}
