use super::*;

fn refuses(declared: &str, status: u16, body: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("x-reason", "Quota".parse().unwrap());
    let answer: RefusedAnswer = declared.parse().unwrap();
    assert_eq!(answer.to_string().parse::<RefusedAnswer>().as_ref(), Ok(&answer), "as it is shown");
    RefusedAnswer::matches_any(&[answer], StatusCode::from_u16(status).unwrap(), &headers, Some(body.as_bytes()))
}

#[test]
fn an_answer_of_which_all_tests_hold_is_a_refusal() {
    for (declared, status, body) in [
        ("status = 498", 498, ""),
        ("body.error.code = TOO_MANY", 200, r#"{"error":{"code":"TOO_MANY"}}"#),
        ("body.error.code=17", 200, r#"{"error":{"code":17}}"#),
        ("body.errors.code = '606'", 200, r#"{"errors":[{"code":"1"},{"code":"606"}]}"#),
        ("body.success = false and body ~ 'daily limit'", 200, r#"{"success":false,"m":"Daily Limit"}"#),
        ("body ~ \"rock and roll\"", 200, "Rock and Roll"),
        ("header.x-reason ~ quota and status = 403", 403, ""),
        ("header.X-Reason = Quota", 200, ""),
        ("body ~ don't retry and status = 429", 429, "Please don't retry"),
        ("status = 429 AND body ~ x", 429, "x"),
        ("body.code = 'a' and  status = 429", 429, r#"{"code":"a"}"#),
        ("body.m = \"it's\"", 200, r#"{"m":"it's"}"#),
        ("body ~ it's \"so\"", 200, "it's \"so\""),
        ("body ~ 'this or that'", 200, "this or that"),
        ("body.a = 17", 200, r#"{"a":17.0}"#),
        ("body.a = 17.0", 200, r#"{"a":17}"#),
        ("body.a = '17'", 200, r#"{"a":17}"#),
        ("body.a = 1e3", 200, r#"{"a":1000}"#),
        ("body.a = 12345678901234567890123", 200, r#"{"a":12345678901234567890123}"#),
        ("body.a = 18446744073709551615", 200, r#"{"a":18446744073709551615}"#),
        ("body.a = null", 200, r#"{"a":null}"#),
    ] {
        assert!(refuses(declared, status, body), "{declared}");
    }
    for (declared, status, body) in [
        ("status = 498", 200, ""),
        ("body.error.code = TOO_MANY", 200, r#"{"error":{"code":"TOO_MANY_COOKS"}}"#),
        ("body.error.code = TOO_MANY", 200, "TOO_MANY"),
        ("body.success = false and body ~ 'daily limit'", 200, r#"{"success":true,"m":"daily limit"}"#),
        ("header.x-reason = quota", 200, ""),
        ("body.a = 18446744073709551615", 200, r#"{"a":18446744073709551614}"#),
        ("body.a = 17", 200, r#"{"a":"17.0"}"#),
    ] {
        assert!(!refuses(declared, status, body), "{declared}");
    }
}

#[test]
fn a_declaration_that_cannot_be_meant_is_answered_with_what_to_write() {
    let hint = |text: &str| text.parse::<RefusedAnswer>().unwrap_err();
    for text in ["", "498", "status", "code = 5", "body. = 5", "header.= a", "body.a =", "body ~ ''"] {
        assert!(hint(text).starts_with("write \"body.error.code = TOO_MANY\""), "{text}");
    }
    assert_eq!(hint("status = 4xx"), "write a status of three digits: \"status = 498\", not \"4xx\"");
    assert!(hint("body = limit").contains("write \"body ~ 'limit'\""));
    for text in ["body.a == 5", "body.code != 0", "body.code >= 5", "body.code =~ x", "body.a<=5"] {
        assert!(hint(text).starts_with("write one ="), "{text}");
    }
    for text in ["body.errors.0.code = 17", "body.7 = 1"] {
        assert!(hint(text).starts_with("write no index"), "{text}");
    }
    for text in ["body ~ 'abc' or body ~ 'xyz'", "body ~ abc OR body ~ xyz", "status = 429 or status = 498"] {
        assert!(hint(text).starts_with("write each alternative"), "{text}");
    }
    for text in ["body.a = '17' junk", "body.a = 'it's'", "body ~ 'x'y and status = 429"] {
        assert!(hint(text).starts_with("nothing but"), "{text}");
    }
    for text in ["body.a = \"17", "header.x = 'a and status = 429"] {
        assert!(hint(text).starts_with("close the quote"), "{text}");
    }
    for text in ["body ~ x and", "and body ~ x", "body.a . b = 5", "body.error\\.code = 17", "body.a! = 5"] {
        assert!(hint(text).starts_with("write"), "{text}");
    }
}

#[test]
fn an_index_into_a_list_is_answered_with_the_place_without_it() {
    for (text, expected) in [
        ("body.errors[0].code = 5", "write \"body.errors.code = 5\""),
        ("body.errors[].code ~ x", "write \"body.errors.code ~ x\""),
        ("body.errors[*] = 5", "write \"body.errors = 5\""),
        ("body['error']['code'] = 5", "write \"body.error.code = 5\""),
        ("body[0].code = 5", "write \"body.code = 5\""),
        ("status = 403 and body.errors[0].code = 5", "write \"body.errors.code = 5\""),
    ] {
        let hint = text.parse::<RefusedAnswer>().unwrap_err();
        assert!(hint.starts_with(expected), "{text}: {hint}");
    }
    let of: RefusedAnswer = "body.errors.code ~ 'a[0]'".parse().unwrap();
    let body = br#"{"errors":[{"code":"a[0]"}]}"#;
    assert!(RefusedAnswer::matches_any(&[of], StatusCode::OK, &HeaderMap::new(), Some(body)));
}

#[test]
fn only_a_success_status_without_another_test_takes_every_success() {
    for (text, takes) in [
        ("status = 200", true),
        ("status = 403", false),
        ("status = 200 and body ~ limit", false),
        ("body.success = false", false),
    ] {
        assert_eq!(text.parse::<RefusedAnswer>().unwrap().takes_success(), takes, "{text}");
    }
}

#[test]
fn a_body_is_asked_for_only_if_the_head_fits() {
    let of: RefusedAnswer = "status = 200 and body.code = 5".parse().unwrap();
    assert!(of.asks_for_body(StatusCode::OK, &HeaderMap::new()));
    assert!(!of.asks_for_body(StatusCode::NOT_FOUND, &HeaderMap::new()));
    assert!(
        !RefusedAnswer::matches_any(&[of], StatusCode::OK, &HeaderMap::new(), None),
        "of a body that was not read nothing is known"
    );
}
