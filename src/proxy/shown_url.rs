//! URLs as logs and traces may show them: without possible credentials.

use std::borrow::Cow;

/// Segments of a path that are at least this long may be keys.
const LIKE_A_KEY: usize = 20;
/// Replaces a value, as in the semantic conventions of OpenTelemetry.
const REDACTED: &str = "REDACTED";
/// Further parts of a query are not shown.
const MAX_QUERY_PARTS: usize = 32;

/// `path` as it may be logged: without segments that look like a key, as some APIs have in their paths. A user name and
/// password of a URL in it are also removed, in any escaping.
pub(crate) fn without_secrets(path: &str) -> Cow<'_, str> {
    let colons = [":", "%3A", "%3a"];
    let users = ["@", "%40"].into_iter().filter_map(|at| path.rsplit_once(at));
    let users = users.filter(|(before, _)| colons.iter().any(|colon| before.contains(colon)));
    let path = match users.max_by_key(|(before, _)| before.len()) {
        Some((_, after)) => format!("…@{after}").into(),
        None => Cow::Borrowed(path),
    };
    if !path.split('/').any(is_like_a_key) {
        return path;
    }
    let shown: Vec<&str> = path.split('/').map(|segment| if is_like_a_key(segment) { "…" } else { segment }).collect();
    shown.join("/").into()
}

/// A long mix of upper case, lower case and digits is random. Identifiers in one case (UUIDs, hashes) pass.
fn is_like_a_key(segment: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| segment.bytes().any(|byte| kind(&byte));
    segment.len() >= LIKE_A_KEY && has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// The query of a URL as it may be shown: its names, without their values.
pub(crate) fn without_values(query: &str) -> String {
    let parts = query.split('&').take(MAX_QUERY_PARTS).map(|part| match part.split_once('=') {
        Some((name, _)) => format!("{}={REDACTED}", without_secrets(name)),
        // The part may be a key itself.
        None => REDACTED.to_owned(),
    });
    parts.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_logged_without_what_may_be_a_key() {
        for (path, shown) in [
            ("/", "/"),
            ("/repos/rust-lang/rust/issues/1", "/repos/rust-lang/rust/issues/1"),
            ("/v1/jobs/0b5e3f1c-6c1d-4b36-9b57-2f0e1c6a7d11", "/v1/jobs/0b5e3f1c-6c1d-4b36-9b57-2f0e1c6a7d11"),
            // core.telegram.org/bots/api#authorizing-your-bot, api.slack.com/messaging/webhooks
            ("/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/getMe", "/…/getMe"),
            ("/services/T00000000/B00000000/aXb1XXXXXXXXXXXXXXXXXXXX", "/services/T00000000/B00000000/…"),
            ("/http://me:hunter2@api.test/v1", "…@api.test/v1"),
            ("/https:/me:hunter2@api.test/v1", "…@api.test/v1"),
            ("/https%3A//me:hunter2@api.test/v1", "…@api.test/v1"),
            ("/https%3a//me%3Ahunter2%40api.test/v1", "…@api.test/v1"),
            ("/@user/posts", "/@user/posts"),
            ("/@x/http%3A//me:hunter2%40api.test", "…@api.test"),
            ("/a:b@c/http://me:hunter2%40api.test", "…@api.test"),
        ] {
            assert_eq!(without_secrets(path), shown);
        }
    }

    #[test]
    fn a_query_is_shown_without_its_values() {
        assert_eq!(without_values("key=hunter2&page=2&flag&sig="), "key=REDACTED&page=REDACTED&REDACTED&sig=REDACTED");
    }
}
