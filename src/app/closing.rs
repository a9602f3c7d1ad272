//! What ends after the last request.

use tokio::task::JoinHandle;

use super::{fleet::Talking, keeping::Writer};
use crate::otlp::Exporting;

/// The parts of a process that end after its last request.
pub(super) struct Closing {
    /// Talks to the store that budgets are shared by.
    pub(super) talking: Option<Talking>,
    /// Writes what outlives this process.
    pub(super) writer: Option<Writer>,
    /// Exports traces and metrics.
    pub(super) exporting: Option<Exporting>,
    /// The admin pages, which show the drain too.
    pub(super) pages: Option<JoinHandle<()>>,
}

impl Closing {
    /// Ends them in order. Nothing may leave any more.
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
