//! Refusals of four sorts: those that waiting does not help, an API without capacity, refusals in disguise, and those that a
//! rule declares.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{OK, ask, ms, now, timed};
use crate::support::{Andante, Client, Message, Upstream};

const JSON: &str = "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// An answer with this status, these fields and this body.
fn answer(status: u16, fields: &str, body: &str) -> String {
    let kind = if body.starts_with('<') { "text/xml" } else { "application/json" };
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

/// An upstream that answers this to its first request, and 200 to all others.
fn first(answer: String) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_| if count.fetch_add(1, Ordering::AcqRel) == 0 { answer.clone() } else { OK.to_owned() })
}

/// An upstream that refuses the requests with `bad` in their path by this answer, and serves all others.
fn refusing_bad(answer: String) -> Upstream {
    Upstream::answering(move |request| {
        let line = String::from_utf8_lossy(&request.head).into_owned();
        if line.contains("bad") { answer.clone() } else { OK.to_owned() }
    })
}

fn post(andante: &Andante, upstream: &Upstream, path: &str) -> Message {
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url(path), upstream.address());
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{JSON}"));
    client.answer()
}

fn incidents(andante: &Andante) -> Vec<Value> {
    let all = andante.status()["incidents"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|incident| incident["kind"] == "waiting_does_not_help").collect()
}

#[test]
fn a_refusal_that_waiting_does_not_help_is_passed_on_at_once_and_others_go_on() {
    let too_large = r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 36278. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}"#;
    let spend = r#"{"type":"error","error":{"details":{"error_code":"enforced_spend_limit_reached"},"type":"rate_limit_error","message":"This request would exceed your account's monthly spend limit."}}"#;
    let nothing = r#"{"message":"Rate limit exceeded","type":"rate_limited","code":"1300"}"#;
    let day = r#"[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#;
    let left =
        "x-ratelimit-limit-tokens: 30000\r\nx-ratelimit-remaining-tokens: 29000\r\nx-ratelimit-reset-tokens: 2s\r\n";
    let zero = "x-ratelimit-limit-req-minute: 0\r\nx-ratelimit-remaining-req-minute: 0\r\n";
    for (status, fields, body) in [
        (429, left, too_large),
        (429, "Retry-After: 3\r\n", too_large),
        (429, "Retry-After: 600\r\n", spend),
        (429, zero, nothing),
        (403, "", day),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), refusing_bad(answer(status, fields, body)));
        let since = now();
        for round in 0..10 {
            let refused = post(&andante, &upstream, "/v1/bad");
            assert_eq!((refused.status(), refused.text().as_str()), (status, body), "{round}");
            assert_eq!(post(&andante, &upstream, "/v1/good").status(), 200, "{body}");
        }
        assert!(now().since(since) < ms(2000), "{body}: {:?}", now().since(since));
        assert_eq!(upstream.requests().len(), 20, "each was sent once: {body}");
        let lane = &andante.status()["lanes"][0];
        assert!(lane["gate"].is_null() && lane["limits"] == json!([]), "{lane:#}");
        let told =
            andante.stderr().lines().filter(|line| line.contains("WARN") && line.contains("waiting does not")).count();
        assert_eq!(told, 1, "{}", andante.stderr());
        let incidents = incidents(&andante);
        assert_eq!((incidents.len(), incidents[0]["total"].as_u64()), (1, Some(10)), "{incidents:#?}");
    }
}

/// AWS services other than Bedrock's inference report a quota of resources by the same error: "You have reached the
/// limit of 200 schedules." Asking again does not help.
#[test]
fn a_quota_of_resources_is_passed_on_at_once_and_that_of_an_inference_is_waited_out() {
    const QUOTA: &str = "x-amzn-errortype: ServiceQuotaExceededException\r\n";
    for (status, fields, body) in [
        (402, QUOTA, r#"{"message":"You have reached the limit of 200 schedules."}"#),
        (400, QUOTA, r#"{"message":"You have reached the limit of 200 schedules."}"#),
        (
            400,
            "",
            r#"{"__type":"com.amazonaws.scheduler#ServiceQuotaExceededException","code":"ServiceQuotaExceededException"}"#,
        ),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), refusing_bad(answer(status, fields, body)));
        let seen = post(&andante, &upstream, "/bad");
        assert_eq!((seen.status(), seen.text().as_str()), (status, body));
        // Had it been waited out, it would have been sent again: three requests.
        assert_eq!((post(&andante, &upstream, "/good").status(), upstream.requests().len()), (200, 2), "{body}");
        assert_eq!(incidents(&andante)[0]["total"], json!(1), "{body}");
    }
    let upstream =
        first(answer(400, QUOTA, r#"{"message":"Your request exceeds the service quota for your account."}"#));
    let seen = post(&Andante::serve(&[]), &upstream, "/model/anthropic.claude-v2/converse");
    assert_eq!((seen.status(), upstream.requests().len()), (200, 2));
}

#[test]
fn a_cap_with_a_date_lets_requests_of_its_kind_wait_and_no_others() {
    let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2035-01-01 at 00:00 UTC."}}"#;
    let (andante, upstream) = (Andante::serve(&[]), refusing_bad(answer(400, "", body)));
    assert_eq!(post(&andante, &upstream, "/bad").status(), 400, "at once");
    let next = post(&andante, &upstream, "/bad");
    assert_eq!(next.status(), 429, "{next:?}");
    assert_eq!(next.json()["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    let retry_after: u64 = next.field("retry-after").unwrap().parse().unwrap();
    // A request may wait for two hours, so Retry-After is two hours short of the day's end.
    assert!((79_000..=86_401).contains(&retry_after), "it is tried once a day: {retry_after}");
    assert_eq!(post(&andante, &upstream, "/good").status(), 200);
    assert_eq!(upstream.requests().len(), 2, "the second one was not sent");
}

#[test]
fn a_request_that_an_overloaded_api_has_not_done_is_sent_again_and_teaches_no_rate() {
    let openai = r#"{"error":{"code":"server_is_overloaded","message":"Our servers are currently overloaded.","param":null,"type":"service_unavailable_error"}}"#;
    let groq =
        r#"{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded","code":"capacity_exceeded"}}"#;
    let bedrock = r#"{"message":"Your request exceeds the service quota for your account."}"#;
    let gemini =
        r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#;
    for (status, fields, body) in [
        (503, "", openai),
        (503, "", gemini),
        (529, "", r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        (529, "", ""),
        (498, "", groq),
        (
            400,
            "x-amzn-errortype: ServiceQuotaExceededException:http://internal.amazon.com/coral/com.amazon.bedrock/\r\n",
            bedrock,
        ),
    ] {
        let count = AtomicUsize::new(0);
        let refusal = answer(status, fields, body);
        let upstream = Upstream::answering(move |_| {
            if count.fetch_add(1, Ordering::AcqRel).is_multiple_of(5) { refusal.clone() } else { OK.to_owned() }
        });
        let andante = Andante::serve(&[]);
        for _ in 0..12 {
            assert_eq!(post(&andante, &upstream, "/v1").status(), 200, "{status} {body}");
        }
        let lane = &andante.status()["lanes"][0];
        assert_eq!((upstream.requests().len(), &lane["limits"]), (15, &json!([])), "{status} {lane:#}");
        assert!(andante.metrics().contains("reason=\"overloaded\""));
    }
}

#[test]
fn refusals_in_disguise_are_sent_again() {
    let soap = "<soapenv:Envelope><soapenv:Body><soapenv:Fault><faultcode>soapenv:Server.userException</faultcode><faultstring>SuiteTalk concurrent request limit exceeded. Request blocked.</faultstring><detail><platformFaults:exceededConcurrentRequestLimitFault><platformFaults:code>WS_CONCUR_SESSION_DISALLWD</platformFaults:code></platformFaults:exceededConcurrentRequestLimitFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>";
    for (status, body) in [
        (200, r#"{"status":"0","message":"NOTOK","result":"Max calls per sec rate limit reached (5/sec)"}"#),
        (
            200,
            r#"{"requestId":"a#1","success":false,"errors":[{"code":"606","message":"Max rate limit '5' exceeded with in '1' secs"}]}"#,
        ),
        (200, r#"{"error":{"code":429,"message":"Unable to complete operation.","details":["Too many requests."]}}"#),
        (200, r#"{"Note":"Our standard API call frequency is 5 calls per minute and 500 calls per day."}"#),
        (200, r#"{"code":99991400,"msg":"request trigger frequency limit"}"#),
        (200, r#"[{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"capacity"}}]"#),
        (
            400,
            r#"{"error":{"code":"SSS_REQUEST_LIMIT_EXCEEDED","message":"Concurrent request limit exceeded. Request blocked."}}"#,
        ),
        (500, soap),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), first(answer(status, "", body)));
        let seen = post(&andante, &upstream, "/api");
        assert_eq!((seen.status(), seen.text().as_str()), (200, "ok"), "{body}");
        assert_eq!(upstream.requests().len(), 2, "{body}");
    }
}

#[test]
fn content_that_speaks_of_limits_is_passed_on_untouched() {
    for (status, body) in [
        (200, r#"{"choices":[{"message":{"content":"{\"error\":{\"code\":\"rate_limit_exceeded\"}}"}}],"error":null}"#),
        (200, r#"{"message":"Too many requests; rate limit exceeded","id":7}"#),
        (
            200,
            r#"[{"jsonrpc":"2.0","id":1,"result":"0x1"},{"jsonrpc":"2.0","id":2,"error":{"code":429,"message":"x"}}]"#,
        ),
        (
            200,
            r#"{"responses":[{"id":"1","status":429,"body":{"error":{"code":"TooManyRequests"}}},{"id":"2","status":200,"body":{}}]}"#,
        ),
        (500, r#"{"error":{"code":"rate_limit_exceeded","message":"what we use refused us, in the middle"}}"#),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), first(answer(status, "", body)));
        let seen = post(&andante, &upstream, "/api");
        assert_eq!((seen.status(), seen.text().as_str()), (status, body));
        assert_eq!(upstream.requests().len(), 1, "{body}");
    }
}

/// An upstream that sends the head of a stream and these pieces of it, each after such a pause in milliseconds.
fn streaming(pieces: &'static [(u64, &'static str)]) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            if count.fetch_add(1, Ordering::AcqRel) > 0 {
                connection.send(OK);
                continue;
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            for (pause, piece) in pieces {
                std::thread::park_timeout(ms(*pause));
                connection.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
            }
            connection.send("0\r\n\r\n");
        }
    })
}

#[test]
fn a_stream_that_begins_with_a_refusal_is_asked_for_again() {
    const OVERLOADED: &str = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    const CREATED: &str =
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n";
    const FAILED: &str = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"Please try again in 100ms.\"}}}\n\n";
    for pieces in [&[(0, OVERLOADED)][..], &[(400, OVERLOADED)], &[(0, CREATED), (50, FAILED)]] {
        let (andante, upstream) = (Andante::serve(&[]), streaming(pieces));
        let seen = post(&andante, &upstream, "/v1/responses");
        assert_eq!((seen.status(), seen.text().as_str()), (200, "ok"), "{pieces:?}");
        assert_eq!(upstream.requests().len(), 2);
    }
}

#[test]
fn a_stream_that_begins_with_output_is_passed_on_as_it_comes() {
    const DELTA: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"rate_limit_exceeded\"}}]}\n\n";
    const ERROR: &str = "data: {\"error\":{\"code\":429}}\n\n";
    let (andante, upstream) = (Andante::serve(&[]), streaming(&[(0, DELTA), (1500, ERROR)]));
    let since = now();
    let mut client = ask(&andante, &upstream, "POST", JSON);
    client.until("delta");
    assert!(now().since(since) < ms(700), "the first event was held back");
    client.until("\"code\":429");
    assert_eq!(upstream.requests().len(), 1, "what came after output is the worker's");
}

#[test]
fn what_a_rule_declares_to_be_a_refusal_is_sent_again_and_shown() {
    for (declared, status, fields, body) in [
        ("body.error.code = TOO_MANY", 200, "", r#"{"error":{"code":"TOO_MANY"},"data":{"x":1}}"#),
        ("status = 498", 498, "", "<p>slow down</p>"),
        ("body ~ 'daily limit'", 422, "", r#"{"message":"The Daily Limit of this key"}"#),
        ("status = 404", 404, "Retry-After: 1\r\n", "{}"),
        ("body ~ 'unknown plan'", 400, "", r#"{"error":"rate limit exceeded for unknown plan"}"#),
        (
            "body.errors.path = createOrder",
            200,
            "",
            r#"{"data":null,"errors":[{"path":["createOrder"],"extensions":{"code":"THROTTLED"}}]}"#,
        ),
        ("status = 500", 500, "", "{}"),
        ("status = 404 and header.x-reason = quota", 404, "X-Reason: quota\r\n", "{}"),
    ] {
        let upstream = first(answer(status, fields, body));
        let config = format!("[[rule]]\nhost = \"{}\"\nrefused = [\"{declared}\"]\n", upstream.address());
        let andante = Andante::with_config(&config);
        let seen = post(&andante, &upstream, "/api");
        assert_eq!((seen.status(), upstream.requests().len()), (200, 2), "{declared}: {seen:?}");
    }
    let upstream = first(answer(404, "", r#"{"error":{"code":"NOT_FOUND"}}"#));
    let config = format!("[[rule]]\nhost = \"{}\"\nrefused = \"body.error.code = TOO_MANY\"\n", upstream.address());
    let andante = Andante::with_config(&config);
    assert_eq!((timed(&andante, &upstream, "GET", "\r\n").0.status(), upstream.requests().len()), (404, 1));
}
