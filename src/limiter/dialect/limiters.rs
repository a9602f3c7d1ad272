//! Limiters that operators put in front of their own APIs. Most report nothing, and are known by how they count.

use super::{
    ietf::SECONDS,
    words::{BARE, DialectRow},
};
use crate::{counter::CountingWindow, limiter::Layout};

const LIMIT: (&str, &str) = ("x-ratelimit-limit", "$limit");
const REMAINING: (&str, &str) = ("x-ratelimit-remaining", "$remaining");

pub(super) const ROWS: &[DialectRow] = &[
    // === known by their answers ===
    DialectRow { name: "503", help: "a bare 503, as nginx and HAProxy refuse", status: 503, ..BARE },
    DialectRow {
        name: "503-retry-after",
        help: "503 with Retry-After: 1, whenever the next one would be accepted",
        refused: &[("retry-after", "1")],
        status: 503,
        ..BARE
    },
    // slowapi with `headers_enabled` sends a reset and a wait with every answer: <https://github.com/laurentS/slowapi>.
    DialectRow {
        name: "late-reset",
        help: "slowapi: X-RateLimit-Reset in epoch seconds with decimals, a second late; Retry-After always; fixed windows",
        always: &[LIMIT, REMAINING, ("x-ratelimit-reset", "$reset.epoch_late"), ("retry-after", "$reset.s_late")],
        window: CountingWindow::Fixed,
        ..BARE
    },
    // === known by their counting window ===
    DialectRow {
        name: "no-burst",
        help: "a bare 429; requests must be W/N apart (GCRA of burst 1, nginx's limit_req without burst)",
        window: CountingWindow::Gcra,
        ..BARE
    },
    DialectRow {
        name: "token-bucket",
        help: "a bare 429; a token bucket of N, refilled N per W",
        window: CountingWindow::Bucket,
        ..BARE
    },
    DialectRow {
        name: "sliding-counter",
        help: "a bare 429; this window's count and the last one's, weighted (Cloudflare, Flask-Limiter)",
        window: CountingWindow::SlidingCounter,
        ..BARE
    },
    DialectRow {
        name: "concurrency-503",
        help: "a bare 503; at most N in flight at once, whatever W is",
        status: 503,
        window: CountingWindow::Concurrency,
        ..BARE
    },
    // === known by their layout of limits ===
    DialectRow {
        name: "two-limits",
        help: concat!(
            "two stacked express-rate-limits: N per W, then five times that rate per second; the last one asked ",
            "writes X-RateLimit-*; Retry-After"
        ),
        always: &[LIMIT, REMAINING, ("x-ratelimit-reset", "$reset.epoch")],
        refused: &[SECONDS],
        window: CountingWindow::Fixed,
        layout: Layout::Stacked,
        ..BARE
    },
    DialectRow {
        name: "per-route",
        help: "a bare 429; POST has a limit of its own, a fifth of N per W",
        layout: Layout::PerRoute,
        ..BARE
    },
    DialectRow {
        name: "per-key",
        help: "a bare 429; each Authorization or X-Api-Key has N per W of its own",
        layout: Layout::PerKey,
        ..BARE
    },
];
