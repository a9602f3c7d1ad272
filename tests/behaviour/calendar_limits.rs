//! Limits that a calendar renews.

use crate::support::{Andante, Client, Upstream, rejected};

#[test]
fn what_a_month_allows_is_sent_and_the_rest_is_told_when_to_come_back() {
    let upstream = Upstream::ok();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{}\"\nlimits = [\"3/month from 5th in Europe/Berlin\"]\nmax-wait = \"1s\"\n",
        upstream.address()
    ));
    for _ in 0..3 {
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    }
    let limit = andante.status()["lanes"][0]["limits"][0].clone();
    assert_eq!(limit["limit"], "3/month from 5th in Europe/Berlin");
    assert_eq!((limit["used"].as_u64(), limit["room"].as_u64()), (Some(3), Some(0)));
    let renewed_in = limit["renewed_in_s"].as_f64().unwrap();
    // The longest month that is changed to winter time has an hour more than 31 days.
    assert!((0.0..=31.0 * 86_400.0 + 3600.0).contains(&renewed_in), "{limit}");
    let answer = Client::get(andante.proxy(), &upstream.url("/"));
    rejected(&answer, 429, "http_request_denied", "");
    // Two seconds after the renewal, less the second that it would have waited.
    let retry_after: f64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((retry_after - (renewed_in + 1.0)).abs() < 5.0, "{retry_after} {renewed_in}");
    assert_eq!(upstream.requests().len(), 3);
}
