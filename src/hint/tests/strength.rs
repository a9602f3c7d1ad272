//! Strength of refusals: a known code at its place, or words alone.

use std::time::Duration;

use super::hint;
use crate::{Cause, Hint, Hopeless, Strength};

/// Strength of a refusal, and whether something was done.
fn refused(answer: &str) -> Option<(Strength, bool)> {
    let Hint { cause, strength, done, .. } = hint(answer);
    (cause != Cause::None).then_some((strength, done))
}

#[test]
fn documented_refusals_were_not_done() {
    for answer in [
        r#"200 | {"errors":[{"message":"Throttled"}],"extensions":{"cost":{}}}"#,
        r#"200 | {"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}"#,
        r#"200 | {"errors":[{"message":"Complexity budget exhausted","path":[],"extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","status_code":429}}]}"#,
        r#"200 | {"error_code":"ComplexityException","status_code":429,"error_message":"Complexity budget exhausted","error_data":{},"errors":["Complexity budget exhausted"],"account_id":"1"}"#,
        r#"200 | {"status":"0","message":"NOTOK","result":"Max calls per sec rate limit reached (5/sec)"}"#,
        r#"200 | {"status":"0","message":"NOTOK","result":"Max rate limit reached, please use API Key for higher rate limit"}"#,
        r#"200 | {"requestId":"a#1","success":false,"errors":[{"code":"606","message":"Max rate limit '5' exceeded with in '1' secs"}]}"#,
        r#"200 | {"requestId":"a#1","success":false,"errors":[{"code":"615","message":"Concurrent access limit reached"}]}"#,
        r#"200 | {"error":{"code":429,"message":"Unable to complete operation.","details":["Too many requests."]}}"#,
        r#"200 | {"Note":"Thank you for using Alpha Vantage! Our standard API call frequency is 5 calls per minute."}"#,
        r#"200 | {"code":99991400,"msg":"request trigger frequency limit"}"#,
        r#"200 | {"errcode":45011,"errmsg":"api minute-quota reach limit, must slower"}"#,
        r#"200 | {"status":"0","info":"CUQPS_HAS_EXCEEDED_THE_LIMIT","infocode":"10021"}"#,
        r#"200 | {"success":false,"error":{"code":106,"type":"rate_limit_reached","info":"x"}}"#,
        r#"200 | {"code":429,"message":"You have run out of API credits for the current minute.","status":"error"}"#,
        r#"200 | {"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"x"}}"#,
        r#"200 | {"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"daily request count exceeded, request rate limited","data":{"rate":{"backoff_seconds":30}}}}"#,
        r#"200 | [{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"x"}}]"#,
        r#"200 | {"responses":[{"id":"1","status":429,"body":{"error":{"code":"TooManyRequests"}}}]}"#,
        r#"200 | {"error":["EAPI:Rate limit exceeded"]}"#,
        r#"200 | {"error":["EService:Throttled: 1780315230"]}"#,
        r#"200 | {"ok":false,"error":"ratelimited"}"#,
        r#"200 | {"error":{"error_code":6,"error_msg":"Too many requests per second","request_params":[]}}"#,
        r#"200 | {"error":29,"message":"Rate limit exceeded"}"#,
        r#"200 | {"error":{"type":"Exception","message":"Quota limit exceeded","code":4}}"#,
        r#"200 | {"error":{"code":"ratelimited","info":"You've exceeded your rate limit."}}"#,
        r#"200 | retry-after: 5 | {"error":{"code":"maxlag","info":"Waiting for 10.64.48.1: 8.55 seconds lagged.","lag":8.55}}"#,
        r#"200 | retry-after: 5 | {"error":{"code":"maxlag","info":"x"},"docref":"See https://x/api.php","servedby":"mw1386"}"#,
        r#"200 | {"error":{"code":"ratelimited","info":"x"},"responses":[]}"#,
        r#"200 | {"error_message":"x","results":[],"status":"OVER_QUERY_LIMIT"}"#,
        r#"400 | {"__type":"ThrottlingException","message":"Rate exceeded"}"#,
        r#"400 | {"error":{"code":"SSS_REQUEST_LIMIT_EXCEEDED","message":"x"}}"#,
        r#"400 | {"errors":[{"extensions":{"code":"RATELIMITED"}}]}"#,
        r#"403 | [{"message":"ConcurrentRequests (Concurrent API Requests) Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#,
        r#"403 | {"error":{"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}],"code":403}}"#,
        r#"403 | {"message":"You have exceeded a secondary rate limit."}"#,
        r#"403 | {"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 01:30:00."}"#,
        r#"503 | {"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
        r#"503 | [{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}]"#,
        "503 | envoy overloaded",
        "503 | <Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
        "503 | <?xml version=\"1.0\"?><Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>",
        "400 | <ErrorResponse xmlns=\"x\"><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>",
        "500 | <soap:Envelope><soap:Body><soap:Fault><faultcode>sf:REQUEST_LIMIT_EXCEEDED</faultcode></soap:Fault></soap:Body></soap:Envelope>",
        "500 | <e:Envelope><e:Body><e:Fault><faultcode>x</faultcode><detail><p:exceededConcurrentRequestLimitFault><p:code>WS_CONCUR_SESSION_DISALLWD</p:code></p:exceededConcurrentRequestLimitFault></detail></e:Fault></e:Body></e:Envelope>",
        "529",
    ] {
        assert_eq!(refused(answer), Some((Strength::Code, false)), "{answer}");
    }
    for answer in ["429", "418", "403 | retry-after: 60", "503 | retry-after: 5", "420 | rate limited"] {
        assert_eq!(refused(answer), Some((Strength::Head, false)), "{answer}");
    }
}

#[test]
fn words_alone_are_weak() {
    for answer in [
        r#"200 | {"code":1,"msg":"Ticket \"Rate limit exceeded\" created"}"#,
        r#"200 | {"status":"error","title":"Too many requests","message":"Too many requests on host a","type":"alert"}"#,
        r#"200 | {"code":429,"error":"","msg":"Too Many Requests","description":"what it means"}"#,
        r#"400 | {"error":"unknown command: rate limit exceeded, please retry after 86400 seconds"}"#,
        r#"400 | {"error":{"code":"invalid","message":"may not contain: rate limit exceeded"}}"#,
        r#"400 | {"error":"invalid","input":{"code":"THROTTLED","retry_after":86400}}"#,
        r#"403 | {"error":{"message":"Page Too Many Requests is private"}}"#,
        "401 | Rate Limit Exceeded",
        r#"503 | {"error":"order 17 was created; the mail server is overloaded"}"#,
        r#"503 | {"error":"order 17 was created; retry the mail in 5 seconds"}"#,
        "500 | <soap:Envelope><soap:Body><soap:Fault><faultcode>soap:Server</faultcode><detail><order><id>17</id><state>created</state><mailCode>THROTTLED</mailCode></order></detail></soap:Fault></soap:Body></soap:Envelope>",
        "500 | <soap:Envelope><soap:Body><soap:Fault><detail><mailCode>THROTTLED</mailCode></detail></soap:Fault></soap:Body></soap:Envelope>",
        r#"500 | {"error":{"code":"rate_limit_exceeded","message":"x"}}"#,
        r#"500 | {"error":{"code":"rate_limit_exceeded","message":"no <Fault> in <Envelope>"}}"#,
        r#"503 | [{"error":{"message":"The model is overloaded"}},{"id":17}]"#,
        r#"503 | {"error":"order 17 was created; mail later","retry_after":3600}"#,
        r#"400 | {"error":"order 17 was created; mail later","retry_after":3600}"#,
        r#"400 | {"error":{"message":"mail later","details":{"retryDelay":"3600s"}}}"#,
        "400 | <html><body>cannot parse <Error><Code>SlowDown</Code></Error></body></html>",
        "503 | <Error><Code>Bad</Code><Message><![CDATA[<Error><Code>SlowDown</Code></Error>]]></Message></Error>",
        "503 | <!-- <Error><Code>SlowDown</Code></Error> --><Error><Code>Bad</Code></Error>",
        "503 | <p>cannot parse</p><Error><Code>SlowDown</Code></Error>",
        "503 | <Code>SlowDown</Code>",
        "503 | the envoy overloaded nothing",
    ] {
        assert_eq!(refused(answer), Some((Strength::Words, false)), "{answer}");
        assert!(hint(answer).wait.is_none_or(|wait| wait <= Duration::from_secs(60)), "{answer}");
    }
}

#[test]
fn overload_in_words_alone_is_hearsay() {
    for answer in [
        r#"400 | {"orderId":17,"mail":{"code":"overloaded"}}"#,
        r#"403 | {"orderId":17,"mail":{"code":"server_busy"}}"#,
        r#"200 | {"success":false,"code":"overloaded","errors":[{"message":"no mail for order 17"}]}"#,
    ] {
        assert!(hint(answer).is_hearsay(), "{answer}");
    }
    let unavailable = hint(r#"503 | {"orderId":17,"mail":{"code":"overloaded"}}"#);
    assert_eq!((unavailable.cause, unavailable.is_hearsay()), (Cause::Overload, false), "its status refuses");
}

#[test]
fn quoted_markup_refuses_nothing() {
    for answer in [
        "400 | cannot parse <Code>SlowDown</Code>",
        "400 | cannot parse <Error><Code>SlowDown</Code></Error>",
        "400 | <Error><Code>Bad</Code><Message><![CDATA[<Error><Code>SlowDown</Code></Error>]]></Message></Error>",
        "400 | <!-- <Error><Code>SlowDown</Code></Error> --><Error><Code>Bad</Code></Error>",
        "400 | <p>cannot parse</p><Error><Code>SlowDown</Code></Error>",
    ] {
        assert_eq!(refused(answer), None, "{answer}");
    }
}

#[test]
fn a_refusal_of_a_part_is_a_result() {
    for answer in [
        r#"200 | {"data":null,"errors":[{"path":["createOrder","invoice","pdf"],"extensions":{"code":"THROTTLED"}}]}"#,
        r#"200 | {"data":{"b":null},"errors":[{"message":"x","path":["b"],"extensions":{"code":"RATE_LIMITED"}}]}"#,
        r#"200 | {"data":null,"errors":[{"path":["a","x"],"extensions":{"code":"INTERNAL"}},{"path":["a","y"],"extensions":{"code":"THROTTLED"}}]}"#,
        r#"200 | {"data":{"a":{"id":1}},"errors":[{"path":["b"],"extensions":{"code":"THROTTLED"}}]}"#,
        r#"200 | [{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"rate limit"}},{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"execution reverted after transfer"}}]"#,
        r#"200 | {"responses":[{"id":"1","status":429,"body":{"error":{"code":"x"}}}],"saved":5}"#,
        r#"200 | {"error":["EService:Throttled: 1780315230"],"result":{"txid":["X"]}}"#,
        r#"200 | {"items":[{"id":1}],"quota_max":300,"quota_remaining":294,"backoff":2}"#,
        r#"400 | {"success":true,"error":{"code":"THROTTLED"}}"#,
    ] {
        assert_eq!(refused(answer), Some((Strength::Code, true)), "{answer}");
    }
}

#[test]
fn results_that_speak_of_a_limit_refuse_nothing() {
    for body in [
        r#"{"code":1,"msg":"Ticket \"Rate limit exceeded\" created","success":true}"#,
        r#"{"success":true,"code":1,"message":"saved note: rate limit exceeded","error":""}"#,
        r#"{"ok":true,"error":null,"message":"rate limit exceeded"}"#,
        r#"{"success":false,"status":"created","errors":["SMTP: too many requests"],"count":1}"#,
        r#"{"requestId":"a","success":false,"errors":[{"code":"606","message":"Max rate limit '100' exceeded with in '20' secs"}],"count":7}"#,
        r#"{"code":201,"msg":"Alert 'Too many requests' created"}"#,
        r#"{"Note":"about our api rate limit: see the wiki"}"#,
        r#"{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Rate limit exceeded"}}"#,
        r#"{"id":"run_1","status":"failed","last_error":{"code":"rate_limit_exceeded","message":"x"},"error":null}"#,
    ] {
        assert_eq!(refused(&format!("200 | {body}")), None, "{body}");
    }
}

#[test]
fn a_quoted_cap_has_no_end() {
    let quoted = hint(
        r#"400 | {"error":"unknown command: You have reached your specified API usage limits. You will regain access on 2030-01-01."}"#,
    );
    assert_eq!((quoted.cause, quoted.hopeless), (Cause::None, None));
    let cap = "You have reached your specified API usage limits. You will regain access on 2030-01-01.";
    for body in [
        format!(r#"{{"error":"x","input":{{"message":"{cap}"}}}}"#),
        format!(r#"{{"error":{{"message":"x","input":{{"error":"{cap}"}}}}}}"#),
    ] {
        assert_eq!(refused(&format!("400 | {body}")), None, "{body}");
    }
    let own =
        hint(&format!(r#"400 | {{"type":"error","error":{{"type":"invalid_request_error","message":"{cap}"}}}}"#));
    assert!(own.hopeless == Some(Hopeless::Cap) && own.wait > Some(Duration::from_secs(86_400)), "{own:?}");
    let quoted = hint(r#"403 | {"error":"no page 'rate limit exceeded: daily limit, resets on 2030-01-01'"}"#);
    assert_eq!((quoted.hopeless, quoted.wait), (Some(Hopeless::Cap), None));
}
