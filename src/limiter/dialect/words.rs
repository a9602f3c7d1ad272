//! Row type of the dialect tables.

use crate::{counter::CountingWindow, limiter::Layout};

/// Row of a dialect table. Names and values of header fields, `complaint` and `members` are templates, see
/// [`Facts::fill`](super::Facts::fill).
pub(super) struct DialectRow {
    /// Name on the command line.
    pub(super) name: &'static str,
    /// Line for `--help`: how the API reports its limit, and how it refuses.
    pub(super) help: &'static str,
    /// Header fields of every answer.
    pub(super) always: &'static [(&'static str, &'static str)],
    /// Further header fields of a refusal.
    pub(super) refused: &'static [(&'static str, &'static str)],
    /// Status of a refusal.
    pub(super) status: u16,
    /// Body of a refusal.
    pub(super) complaint: &'static str,
    /// Further members of an accepted request's JSON object, each with a comma before it.
    pub(super) members: &'static str,
    /// Counting window by default.
    pub(super) window: CountingWindow,
    /// Limits that the API derives from its rate.
    pub(super) layout: Layout,
}

/// Row of a bare 429: the other rows override parts of it.
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
