//! Asks APIs of OpenAI's style to report a stream's usage: `"stream_options": {"include_usage": true}` (OpenAI, *Create
//! chat completion*). Without the option a stream does not report its tokens, and its usage stays unknown.

use http::{
    HeaderMap, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::whole_body;
use crate::{error::Error, proxy::call::Call};

/// Fields with a digest or a signature of the body, which must not be changed then.
const OF_BODY: [&str; 6] =
    ["content-md5", "digest", "content-digest", "repr-digest", "signature-input", "x-amz-content-sha256"];

/// The members that matter, as written in the body.
#[derive(Deserialize)]
struct Streaming<'a> {
    stream: Option<bool>,
    #[serde(borrow)]
    stream_options: Option<&'a RawValue>,
}

/// Adds the option to the body of `call`, if the body asks for a stream of completions and does not mention usage
/// itself.
pub(super) async fn ask(call: &mut Call) -> Result<(), Error> {
    let (request, fields) = (&call.request, call.request.headers());
    // Other endpoints refuse the option, or report usage anyway.
    let completes = *request.method() == Method::POST && request.uri().path().ends_with("/completions");
    if !completes || !may_change(fields) || whole_body::read(call).await?.is_none() {
        return Ok(());
    }
    let body = call.request.body_mut();
    let Some(asking) = body.whole().and_then(|body| with_usage(body)) else { return Ok(()) };
    let length = asking.len();
    body.replace(asking.into());
    let fields = call.request.headers_mut();
    if fields.contains_key(CONTENT_LENGTH) {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}

/// Returns whether a body with these fields is JSON that may be changed.
fn may_change(fields: &HeaderMap) -> bool {
    let of = |name| fields.get(name).map(|value| value.as_bytes().to_ascii_lowercase());
    let plain = of(CONTENT_ENCODING).is_none_or(|coding| matches!(&*coding, b"" | b"identity"));
    let json = of(CONTENT_TYPE).is_some_and(|kind| kind.windows(4).any(|part| part == b"json"));
    let signed = of(AUTHORIZATION).is_some_and(|said| said.starts_with(b"aws4-"));
    plain && json && !signed && !OF_BODY.iter().any(|name| fields.contains_key(*name))
}

/// `body` with the option, and all other bytes unchanged. `None` if the body asks for no stream, or mentions usage.
fn with_usage(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let Streaming { stream: Some(true), stream_options } = serde_json::from_str(text).ok()? else { return None };
    let (at, added) = match stream_options.map(RawValue::get).filter(|options| *options != "null") {
        Some(options) => {
            let members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(options).ok()?;
            if members.contains_key("include_usage") {
                return None;
            }
            let inside = options.as_ptr().addr() - text.as_ptr().addr() + 1;
            (inside, if members.is_empty() { r#""include_usage":true"# } else { r#""include_usage":true,"# })
        }
        // Also behind an existing `null`: of two members the last counts.
        None => (text.rfind('}')?, r#","stream_options":{"include_usage":true}"#),
    };
    let (before, after) = body.split_at_checked(at)?;
    Some([before, added.as_bytes(), after].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(body: &str) -> Option<Value> {
        with_usage(body.as_bytes()).map(|body| serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn the_option_is_added_to_a_stream_that_lacks_it() {
        for (body, options) in [
            (r#"{"model":"m","stream":true}"#, json!({"include_usage": true})),
            ("{\"stream\" : true , \"stream_options\": null }\n", json!({"include_usage": true})),
            (r#"{"stream_options":{},"stream":true}"#, json!({"include_usage": true})),
            (r#"{"stream_options": { "x": 1 },"stream":true}"#, json!({"include_usage": true, "x": 1})),
            (r#"{"messages":[{"content":"}"}],"stream":true}"#, json!({"include_usage": true})),
        ] {
            assert_eq!(asked(body).unwrap()["stream_options"], options, "{body}");
        }
    }

    #[test]
    fn a_body_that_wants_no_stream_or_says_something_of_usage_stays_as_it_is() {
        for body in [
            r#"{"model":"m"}"#,
            r#"{"stream":false}"#,
            r#"{"stream":true,"stream_options":{"include_usage":false}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"stream":true,"stream_options":7}"#,
            r#"["stream"]"#,
            r#"{"stream":true"#,
            "",
        ] {
            assert_eq!(asked(body), None, "{body}");
        }
    }

    #[test]
    fn all_else_stays_byte_for_byte() {
        let body = r#"{ "n": 1.0e3, "stream": true, "x": "\u00e4" }"#;
        let asking = String::from_utf8(with_usage(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(asking, r#"{ "n": 1.0e3, "stream": true, "x": "\u00e4" ,"stream_options":{"include_usage":true}}"#);
    }

    #[test]
    fn what_is_compressed_signed_or_no_json_may_not_change() {
        let may = |lines: &[(&'static str, &'static str)]| {
            may_change(&lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
        };
        assert!(may(&[("content-type", "application/json; charset=utf-8"), ("authorization", "Bearer x")]));
        for lines in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/json"), ("content-encoding", "gzip")],
            &[("content-type", "application/json"), ("content-digest", "sha-256=:x:")],
            &[("content-type", "application/json"), ("authorization", "AWS4-HMAC-SHA256 Credential=x")],
        ] {
            assert!(!may(lines), "{lines:?}");
        }
    }
}
