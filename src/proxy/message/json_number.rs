//! Reads a whole number or a text from a member of a JSON object of which only the beginning may be known.

use crate::policy::MemberPath;

/// Value of the first member at `path` of the object `json`, if it is a whole number that ends within the known part.
pub(crate) fn at(json: &[u8], path: &MemberPath) -> Option<u32> {
    number(value(json, path)?)
}

/// Value of the first member at `path` of the object `json`, if it is a text without escapes that ends within the known
/// part.
pub(crate) fn text_at<'a>(json: &'a [u8], path: &MemberPath) -> Option<&'a str> {
    let value = value(json, path)?.strip_prefix(b"\"")?;
    let (text, _) = text(value, 0)?;
    std::str::from_utf8(text).ok().filter(|text| !text.contains('\\'))
}

/// Bytes of the object `json` from the value of its first member at `path` on. Text cannot imitate a member: a quote
/// inside a text has a backslash before it, and a member is a text before a colon.
fn value<'a>(json: &'a [u8], path: &MemberPath) -> Option<&'a [u8]> {
    let names = path.names();
    let (mut depth, mut within) = (0, 0);
    let mut at = skip_space(json, 0);
    if json.get(at) != Some(&b'{') {
        return None;
    }
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return None;
                }
                within = within.min(depth - 1);
            }
            b'"' => {
                let (text, end) = text(json, at)?;
                at = end;
                let colon = skip_space(json, at);
                // Objects in which the first `within` names are members stand at one depth each.
                if json.get(colon) != Some(&b':') || depth != within + 1 || text != names[within].as_bytes() {
                    continue;
                }
                let value = skip_space(json, colon + 1);
                if within + 1 == names.len() {
                    return json.get(value..);
                }
                within += usize::from(json.get(value) == Some(&b'{'));
                at = value;
            }
            _ => {}
        }
    }
    None
}

/// The text that begins at `from`, behind its quote, as written, and the position after it.
fn text(json: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let mut at = from;
    loop {
        match json.get(at)? {
            b'"' => return Some((&json[from..at], at + 1)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The whole number at the beginning of `json`, if its end is known.
fn number(json: &[u8]) -> Option<u32> {
    let digits = json.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = json.get(digits).is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}'));
    let digits = std::str::from_utf8(&json[..digits]).ok().filter(|digits| ends && !digits.is_empty())?;
    Some(digits.parse().unwrap_or(u32::MAX))
}

fn skip_space(json: &[u8], from: usize) -> usize {
    let space = |byte: &&u8| byte.is_ascii_whitespace();
    from + json.iter().skip(from).take_while(space).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::clock::assert_linear;

    fn path(text: &str) -> MemberPath {
        text.parse().unwrap()
    }

    fn max_tokens(json: &str) -> Option<u32> {
        at(json.as_bytes(), &path("max_tokens"))
    }

    #[test]
    fn the_first_member_of_the_object_itself_says_it() {
        for (json, found) in [
            (r#"{"max_tokens":5}"#, Some(5)),
            (" \n{ \"model\" : \"m\" , \"max_tokens\" : 4096 , \"n\":1}", Some(4096)),
            (r#"{"max_tokens":7,"max_tokens":9}"#, Some(7)),
            (r#"{"max_tokens":99999999999}"#, Some(u32::MAX)),
            (r#"{"tools":[{"max_tokens":1}],"max_tokens":2}"#, Some(2)),
            (r#"{"nested":{"max_tokens":1,"a":{"max_tokens":1}},"max_tokens":2}"#, Some(2)),
            (r#"{"prompt":"\"max_tokens\": 5","max_tokens":2}"#, Some(2)),
            (r#"{"prompt":"a \\","max_tokens":2}"#, Some(2)),
            (r#"{"prompt":"{\"max_tokens\":5,","max_tokens":2}"#, Some(2)),
            (r#"{"prompt":"max_tokens","max_tokens":2}"#, Some(2)),
            (r#"{"stop":["max_tokens"],"max_tokens":2}"#, Some(2)),
        ] {
            assert_eq!(max_tokens(json), found, "{json}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_the_object_says_nothing() {
        for json in [
            "",
            "{",
            "{}",
            "null",
            "max_tokens=5",
            "[{\"max_tokens\":5}]",
            "[\"max_tokens\",5]",
            r#""max_tokens":5"#,
            r#"{"prompt":"\"max_tokens\": 5"}"#,
            r#"{"prompt":"say \"max_tokens\":5, please"}"#,
            r#"{"messages":[{"max_tokens":5}]}"#,
            r#"{"max_tokens":null}"#,
            r#"{"max_tokens":-5}"#,
            r#"{"max_tokens":5.5}"#,
            r#"{"max_tokens":5e3}"#,
            r#"{"max_tokens":"5"}"#,
            r#"{"max_tokens":[5]}"#,
            r#"{"max_tokens"}{"max_tokens":5}"#,
            r#"{} {"max_tokens":5}"#,
            r#"{"a":1}}{"max_tokens":5}"#,
        ] {
            assert_eq!(max_tokens(json), None, "{json}");
        }
    }

    #[test]
    fn a_member_of_a_member_is_found_there_alone() {
        let found = |json: &str| at(json.as_bytes(), &path("generationConfig.maxOutputTokens"));
        assert_eq!(found(r#"{"maxOutputTokens":1,"generationConfig":{"x":{},"maxOutputTokens":800}}"#), Some(800));
        assert_eq!(found(r#"{"generationConfig":{"x":{"maxOutputTokens":1}},"maxOutputTokens":2}"#), None);
        assert_eq!(found(r#"{"generationConfig":[{"maxOutputTokens":1}]}"#), None);
        assert_eq!(found(r#"{"x":{"generationConfig":{"maxOutputTokens":1}}}"#), None);
        assert_eq!(found(r#"{"generationConfig":5,"y":{"maxOutputTokens":1}}"#), None);
    }

    #[test]
    fn text_of_the_object_itself_is_found_and_one_with_escapes_is_not() {
        for (json, found) in [
            (r#"{"messages":[{"input":{"model":"T"}}],"model":"gpt-4o-mini","stream":true}"#, Some("gpt-4o-mini")),
            (r#"{ "model" : "m" "#, Some("m")),
            (r#"{"model":"cut o"#, None),
            (r#"{"model":"a\"b"}"#, None),
            (r#"{"model":5}"#, None),
            (r#"{"model":"#, None),
        ] {
            assert_eq!(text_at(json.as_bytes(), &path("model")), found, "{json}");
        }
    }

    #[test]
    fn what_is_cut_off_says_nothing() {
        let whole = r#"{"prompt":"an \"escaped\" one","max_tokens": 4096}"#;
        for end in 0..whole.len() - 1 {
            assert_eq!(max_tokens(&whole[..end]), None, "{}", &whole[..end]);
        }
        assert_eq!(max_tokens(&whole[..whole.len()]), Some(4096));
    }

    /// The size of a request's body that a rule may have read.
    #[test]
    fn long_body_is_looked_through_in_linear_time() {
        for text in ["[", "{", "\"\"   ", "\"max_tokens\"", "\"a\":{", "\"\\", "\"max_tokens\": 1", " ", "1", "}{"] {
            let body = |bytes: usize| format!("{{{}", text.repeat(bytes / text.len()));
            assert_linear(text, 256 * 1024, body, |body| _ = at(body.as_bytes(), &path("a.max_tokens")));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = "(max_tokens|\"max_tokens\": 5,|\\\\|\"|[{}:,\\[\\]]|[a-z ]){0,4}";
        let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), text.prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 4, move |inner| {
            let name = prop_oneof![Just("max_tokens".to_owned()), "[a-z\"\\\\{}]{0,3}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_what_a_parser_finds(inner in value(), own in prop::option::of(any::<u32>()), pretty: bool) {
            let mut object = json!({ "a": inner, "z": inner });
            if let Some(own) = own {
                object["max_tokens"] = own.into();
            }
            let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
            prop_assert_eq!(max_tokens(&text.unwrap()), own);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop::sample::select(&b"{}[]\":,\\max_tokens5 "[..]), 0..60)) {
            let _ = (at(&bytes, &path("max_tokens")), at(&bytes, &path("a.x")), text_at(&bytes, &path("max_tokens")));
        }
    }
}
