//! Refusals that our own limits do not explain: another program uses the same quota.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::OK;
use crate::support::{Andante, Client, Upstream};

const REFUSED: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After-Ms: 20\r\nContent-Length: 4\r\n\r\nsoon";

/// Refuses every second request, as if other programs used the remaining quota.
fn shared() -> Upstream {
    let next = AtomicUsize::new(0);
    Upstream::answering(move |_| if next.fetch_add(1, Ordering::AcqRel).is_multiple_of(2) { REFUSED } else { OK })
}

/// Log lines about repeated refusals, after `count` requests one after the other.
fn said(flags: &[&str], upstream: &Upstream, count: usize) -> Vec<String> {
    let andante = Andante::serve(flags);
    for _ in 0..count {
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    }
    let log = andante.stderr();
    log.lines().filter(|line| line.contains("refused again and again")).map(str::to_owned).collect()
}

#[test]
fn refusals_below_our_own_limit_that_come_again_and_again_are_told_of_once() {
    let upstream = shared();
    let limit = format!("{}=5/100ms", upstream.address());
    let lines = said(&["--limit", &limit], &upstream, 10);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("limits=\"5/100ms"), "{lines:?}");
    for word in ["host=127.0.0.1", "times=3", "another andante", "a part of the limit"] {
        assert!(lines[0].contains(word), "{word}: {lines:?}");
    }
}

#[test]
fn where_no_limit_was_set_there_is_none_to_blame() {
    let upstream = shared();
    assert_eq!(said(&[], &upstream, 12), [""; 0]);
}
