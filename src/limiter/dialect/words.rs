//! A row of the table of dialects.

use crate::{counter::CountingWindow, limiter::Layout};

/// One row: what is sent under which names. Values, names of fields and bodies are templates, see
/// [`Facts::fill`](super::Facts::fill).
pub(super) struct DialectRow {
    /// What it is called on the command line.
    pub(super) name: &'static str,
    /// One line for `--help`: how it tells, and how it refuses.
    pub(super) help: &'static str,
    /// Sent with every answer.
    pub(super) always: &'static [(&'static str, &'static str)],
    /// Sent with a refusal besides.
    pub(super) refused: &'static [(&'static str, &'static str)],
    /// The status of a refusal.
    pub(super) status: u16,
    /// The body of a refusal.
    pub(super) complaint: &'static str,
    /// Further members of an accepted request's JSON object, each with a comma before it.
    pub(super) members: &'static str,
    /// How it counts by default.
    pub(super) window: CountingWindow,
    /// Which limits there are.
    pub(super) layout: Layout,
}

/// A bare 429: what rows differ from.
pub(super) const BARE: DialectRow = DialectRow {
    name: "",
    help: "",
    always: &[],
    refused: &[],
    status: 429,
    complaint: r#"{"error":"too many requests"}"#,
    members: "",
    window: CountingWindow::Sliding,
    layout: Layout::Single,
};
