//! Each expectation is a sentence of RFC 9111, or of the RFC that the test names.

use std::time::Duration;

use super::*;

/// 2023-11-14 22:13:20.
const NOW: u64 = 1_700_000_000;
const LIFETIME: (&str, &str) = ("cache-control", "max-age=60");

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

fn received(second: u64) -> Received {
    let since = Duration::from_secs(second);
    Received { at: Instant::START + since, time_of_day: Duration::from_secs(NOW) + since, delay: Duration::ZERO }
}

fn stored(status: u16, lines: &[(&str, &str)]) -> Option<StoredHead> {
    StoredHead::of(StatusCode::from_u16(status).unwrap(), &fields(lines), &received(0))
}

fn reuse(lines: &[(&str, &str)], asked: &[(&str, &str)], second: u64) -> Reuse {
    let now = Instant::START + Duration::from_secs(second);
    stored(200, lines).unwrap().reuse(&RequestDirectives::of(&fields(asked)), false, now)
}

/// A cookie begins a session, which belongs to one worker: coalesced requests do not share such an answer either.
#[test]
fn an_answer_with_a_cookie_is_not_stored_and_a_304_adds_none() {
    assert!(stored(200, &[LIFETIME, ("set-cookie", "sid=1")]).is_none());
    let renewed = stored(200, &[LIFETIME, ("etag", "\"a\"")]).unwrap();
    let renewed = renewed.freshened(&fields(&[("etag", "\"a\""), ("set-cookie", "sid=1")]), &received(10)).unwrap();
    assert!(!renewed.fields(Instant::START).contains_key(SET_COOKIE));
}

/// The limit is that of one answer of an upstream: fields of many 304s must not add up beyond it.
#[test]
fn fields_of_many_304s_do_not_add_up() {
    let mut head = stored(200, &[("etag", "\"a\""), LIFETIME]).unwrap();
    for round in 0..10 {
        let names: Vec<String> = (0..20).map(|number| format!("x-{round}-{number}")).collect();
        let mut new: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        new.push(("etag", "\"a\""));
        head = head.freshened(&fields(&new), &received(0)).unwrap_or(head);
    }
    assert!(head.fields(Instant::START).len() <= MAX_FIELDS + 1, "{head:?}");
}

/// §3.
#[test]
fn an_answer_is_stored_if_it_has_a_lifetime_or_a_validator_and_nothing_forbids_it() {
    assert!(stored(200, &[LIFETIME]).is_some());
    assert!(stored(200, &[("etag", "\"a\"")]).is_some());
    assert!(stored(200, &[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]).is_some());
    assert!(stored(200, &[("cache-control", "private, max-age=60")]).is_some());
    assert!(stored(200, &[("expires", "Tue, 14 Nov 2023 22:14:20 GMT")]).is_some());
    for lines in [
        &[][..],
        &[("cache-control", "public")],
        &[("cache-control", "max-age=0")],
        &[("cache-control", "s-maxage=60")],
        &[("cache-control", "no-cache, max-age=60")],
        &[("cache-control", "no-store, max-age=60"), ("etag", "\"a\"")],
        &[("last-modified", "yesterday")],
    ] {
        assert!(stored(200, lines).is_none(), "{lines:?}");
    }
}

/// §3; RFC 9110 §15.1; RFC 6585 §3 to §6.
#[test]
fn any_final_status_with_a_lifetime_is_stored_but_parts_and_those_that_must_not_be() {
    for status in [200, 203, 204, 299, 301, 302, 307, 404, 410, 499, 500, 503, 599] {
        assert!(stored(status, &[LIFETIME]).is_some(), "{status}");
    }
    for status in [206, 304, 428, 429, 431, 511] {
        assert!(stored(status, &[LIFETIME, ("etag", "\"a\"")]).is_none(), "{status}");
    }
    // Without a lifetime, only statuses that are storable by default.
    let validator = [("etag", "\"a\"")];
    assert!(stored(404, &validator).is_some());
    for status in [201, 302, 403, 500, 503] {
        assert!(stored(status, &validator).is_none(), "{status}");
    }
    assert!(stored(403, &[("etag", "\"a\""), ("cache-control", "private")]).is_some());
}

/// §5.2.2.3.
#[test]
fn must_understand_keeps_unknown_statuses_out() {
    let lines = [("cache-control", "max-age=60, must-understand")];
    assert!(stored(200, &lines).is_some());
    assert!(stored(599, &lines).is_none());
}

/// §4.2, §5.2.1.
#[test]
fn requests_narrow_and_widen_what_is_fresh() {
    let of = |asked: &str, second| reuse(&[LIFETIME], &[("cache-control", asked)], second);
    assert_eq!((of("x", 59), of("x", 60)), (Reuse::Fresh, Reuse::Stale));
    assert_eq!(
        (of("no-cache", 0), of("max-age=9", 9), of("max-age=9", 10)),
        (Reuse::NotAsAsked, Reuse::Fresh, Reuse::NotAsAsked)
    );
    assert_eq!((of("min-fresh=20", 40), of("min-fresh=20", 41)), (Reuse::Fresh, Reuse::NotAsAsked));
    assert_eq!((of("max-stale=5", 65), of("max-stale=5", 66)), (Reuse::Fresh, Reuse::Stale));
    assert_eq!(of("max-stale", 100_000), Reuse::Fresh);
    assert_eq!(reuse(&[LIFETIME], &[("pragma", "no-cache")], 0), Reuse::NotAsAsked);
}

/// §5.2.2.2, §5.2.2.4.
#[test]
fn an_api_forbids_to_use_what_is_stale_or_anything_without_asking() {
    let max_stale = [("cache-control", "max-stale")];
    assert_eq!(reuse(&[("cache-control", "max-age=60, must-revalidate")], &max_stale, 61), Reuse::Stale);
    let lines = [("cache-control", "max-age=60, no-cache"), ("etag", "\"a\"")];
    assert_eq!(reuse(&lines, &max_stale, 0), Reuse::Stale);
}

#[test]
fn a_rule_may_have_everything_validated() {
    let stored = stored(200, &[LIFETIME]).unwrap();
    assert_eq!(stored.reuse(&RequestDirectives::default(), true, Instant::START), Reuse::Stale);
}

/// §4.3.1.
#[test]
fn a_validation_asks_with_what_the_answer_has() {
    let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
    let mut asked = HeaderMap::new();
    assert!(stored(200, &[("etag", "W/\"a\""), ("last-modified", modified)]).unwrap().ask(&mut asked));
    assert_eq!(asked, fields(&[("if-none-match", "W/\"a\""), ("if-modified-since", modified)]));
    assert!(!stored(200, &[LIFETIME]).unwrap().ask(&mut HeaderMap::new()));
}

/// §3.2, §4.3.4.
#[test]
fn a_304_replaces_fields_but_not_those_that_describe_the_body() {
    let lines = [LIFETIME, ("etag", "\"a\""), ("x", "1"), ("y", "1"), ("content-length", "5"), ("age", "50")];
    let new =
        [("x", "2"), ("x", "3"), ("content-length", "9"), ("content-encoding", "gzip"), ("cache-control", "max-age=7")];
    let after = stored(200, &lines).unwrap().freshened(&fields(&new), &received(100)).unwrap();
    let (status, fields) = (after.status(), after.fields(Instant::START + Duration::from_secs(103)));
    let of = |name: &str| fields.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        (status, of("x"), of("y"), of("content-length")),
        (StatusCode::OK, vec!["2", "3"], vec!["1"], vec!["5"])
    );
    assert_eq!((fields.get("content-encoding"), of("age")), (None, vec!["3"]));
    let asked = RequestDirectives::default();
    let at = |second| Instant::START + Duration::from_secs(second);
    assert_eq!(after.reuse(&asked, false, at(106)), Reuse::Fresh);
    assert_eq!(after.reuse(&asked, false, at(108)), Reuse::Stale);
}

/// §4.3.4: none of the stored answers has the same validator.
#[test]
fn a_304_about_another_answer_freshens_nothing() {
    let stored = stored(200, &[("etag", "\"a\""), ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]).unwrap();
    let freshened = |lines: &[(&str, &str)]| stored.freshened(&fields(lines), &received(1)).is_some();
    assert!(freshened(&[]) && freshened(&[("etag", "\"a\"")]) && freshened(&[("etag", "W/\"a\"")]));
    assert!(freshened(&[("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]));
    assert!(!freshened(&[("etag", "\"b\"")]));
    assert!(!freshened(&[("last-modified", "Mon, 07 Nov 1994 08:49:37 GMT")]));
}

/// §4.3.2; RFC 9110 §13.1.2, §13.1.3.
#[test]
fn a_worker_that_has_the_answer_is_told_so() {
    let modified = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let tagged = stored(200, &[LIFETIME, ("etag", "W/\"a,b\""), modified]).unwrap();
    let plain = stored(200, &[LIFETIME, modified]).unwrap();
    for known in ["\"a,b\"", "W/\"a,b\"", "\"x\", W/\"a,b\"", "*"] {
        assert!(tagged.is_known_to(&fields(&[("if-none-match", known)])), "{known}");
    }
    assert!(!tagged.is_known_to(&fields(&[("if-none-match", "\"a\"")])));
    let since = |date: &'static str| ("if-modified-since", date);
    assert!(plain.is_known_to(&fields(&[since("Sunday, 06-Nov-94 08:49:37 GMT")])));
    assert!(plain.is_known_to(&fields(&[since("Mon, 07 Nov 1994 08:49:37 GMT")])));
    assert!(!plain.is_known_to(&fields(&[since("Sat, 05 Nov 1994 08:49:37 GMT")])));
    // The tag takes precedence over the date.
    assert!(!tagged.is_known_to(&fields(&[("if-none-match", "\"x\""), since("Mon, 07 Nov 1994 08:49:37 GMT")])));
    assert!(!plain.is_known_to(&HeaderMap::new()));
    // Without `Last-Modified`, `Date` counts, or else the time of arrival: both are later than that.
    assert!(!stored(200, &[LIFETIME]).unwrap().is_known_to(&fields(&[since("Mon, 07 Nov 1994 08:49:37 GMT")])));
    assert!(
        stored(404, &[LIFETIME, modified]).is_some_and(|gone| !gone.is_known_to(&fields(&[("if-none-match", "*")])))
    );
}
