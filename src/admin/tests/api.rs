//! Changes by the API.

use serde_json::Value;

use super::*;

const TOKEN: &str = "0123456789abcdef";

async fn world() -> AdminServer {
    AdminServer::with_token(vec![lane("api", "a", 5, (1, 9))], Token::new(TOKEN).ok()).await
}

/// A POST of `body` to `path` with these fields in addition to those of an authorized client.
fn post(path: &str, fields: &str, body: &str) -> String {
    format!(
        "POST /api/v1/{path} HTTP/1.1\r\n{fields}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn authorized() -> String {
    format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n")
}

#[tokio::test]
async fn a_change_needs_the_token() {
    let world = world().await;
    for (fields, status) in [
        ("Host: localhost\r\n".to_owned(), 401),
        ("Host: localhost\r\nAuthorization: Bearer 0123456789abcdeX\r\n".to_owned(), 401),
        (format!("Host: localhost\r\nAuthorization: Basic {TOKEN}\r\n"), 401),
        (authorized(), 200),
    ] {
        let reply = world.ask(&post("pause", &fields, "{}")).await;
        assert_eq!(reply.status, status, "{fields}");
        assert_eq!(reply.head.contains("\r\nwww-authenticate: bearer"), status == 401);
    }
    assert_eq!(*world.state.steered.lock(), [(LaneChoice::All, Steering::Pause(None))]);
    let without = AdminServer::new(vec![lane("api", "a", 5, (1, 9))]).await;
    let reply = without.ask(&post("pause", &authorized(), "{}")).await;
    assert_eq!(reply.status, 403);
    assert!(reply.body.contains("admin-token"), "{}", reply.body);
    assert!(without.state.steered.lock().is_empty());
}

#[tokio::test]
async fn reads_beyond_loopback_need_the_token_and_without_one_the_answer_names_its_key() {
    let world = AdminServer::at("0.0.0.0:0", Vec::new(), None).await;
    for request in [
        "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        post("explain", "Host: localhost\r\n", "{}"),
    ] {
        let reply = world.ask(&request).await;
        assert_eq!(reply.status, 403, "{request}");
        assert!(reply.body.contains("reading /api/v1 needs a token"), "{}", reply.body);
        assert!(reply.body.contains("admin-token") && !reply.body.contains("changes are off"), "{}", reply.body);
    }
    let change = world.ask(&post("pause", "Host: localhost\r\n", "{}")).await;
    assert!(change.status == 403 && change.body.contains("changes are off"), "{}", change.body);
    let with_token = AdminServer::at("0.0.0.0:0", Vec::new(), Token::new(TOKEN).ok()).await;
    assert_eq!(with_token.get("/api/v1/status").await.status, 401);
    let authorized = format!("GET /api/v1/status HTTP/1.1\r\n{}\r\n", authorized());
    assert_eq!(with_token.ask(&authorized).await.status, 200);
}

#[tokio::test]
async fn pages_of_others_change_nothing_though_they_had_the_token() {
    let world = world().await;
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    for fields in [
        "Host: evil.example\r\n".to_owned(),
        format!("Host: {}\r\nOrigin: http://evil.example\r\n", world.at),
        format!("Host: {}\r\nOrigin: null\r\n", world.at),
        format!("Host: {}\r\nSec-Fetch-Site: cross-site\r\n", world.at),
    ] {
        let reply = world.ask(&post("pause", &format!("{fields}{token}"), "{}")).await;
        assert_eq!(reply.status, 403, "{fields}");
    }
    assert!(world.state.steered.lock().is_empty());
}

#[tokio::test]
async fn a_change_says_of_which_lane_it_is_and_for_how_long() {
    let world = world().await;
    for (path, body, status) in [
        ("pause", r#"{"rule": "api", "host": "a", "for": "10m"}"#, 200),
        ("resume", r#"{"rule": "api", "host": "a"}"#, 200),
        ("resume", r#"{"host": "a"}"#, 200),
        ("resume", "{}", 200),
        ("resume", r#"{"host": "elsewhere"}"#, 404),
        ("pause", r#"{"rule": "api", "host": "elsewhere"}"#, 404),
        ("pause", r#"{"rule": "api"}"#, 400),
        ("pause", r#"{"for": "soon"}"#, 400),
        ("resume", r#"{"for": "10m"}"#, 400),
        ("pause", r#"{"hots": "a"}"#, 400),
        ("pause", "[]", 400),
        ("pause", "", 400),
        ("stop", "{}", 404),
    ] {
        let reply = world.ask(&post(path, &authorized(), body)).await;
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.body);
        let kind = if status == 200 { "application/json" } else { "application/problem+json" };
        assert!(reply.head.contains(kind), "{}", reply.head);
    }
    let name: LaneName = "api a".parse().unwrap();
    let length = Some(Duration::from_secs(600));
    let expected = [
        (LaneChoice::One(name.clone()), Steering::Pause(length)),
        (LaneChoice::One(name), Steering::Resume),
        (LaneChoice::OfHost("a".into()), Steering::Resume),
        (LaneChoice::All, Steering::Resume),
    ];
    assert_eq!(*world.state.steered.lock(), expected);
    let form = format!(
        "POST /api/v1/pause HTTP/1.1\r\n{}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}",
        authorized()
    );
    assert_eq!(world.ask(&form).await.status, 415);
    let long = format!("{{\"rule\": \"{}\"}}", "a".repeat(20_000));
    assert_eq!(world.ask(&post("pause", &authorized(), &long)).await.status, 400);
}

#[tokio::test]
async fn every_path_of_the_description_is_there_and_no_other_method_is() {
    let world = world().await;
    let reply = world.get("/api/v1/openapi.json").await;
    let description: Value = serde_json::from_str(&reply.body).unwrap();
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 12);
    for (path, methods) in paths {
        let allowed = if methods.get("get").is_some() { "GET" } else { "POST" };
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let body = match (method, path.as_str()) {
                ("GET", _) => "",
                (_, "/api/v1/explain") => r#"{"url": "http://a/"}"#,
                (_, "/api/v1/plan") => r#"{"limits": "10/s", "requests": 5}"#,
                (_, "/api/v1/limit") => r#"{"rule": "api", "limits": "1/s", "for": "10m"}"#,
                (_, "/api/v1/weights") => r#"{"rule": "api", "weights": ["batch=2"]}"#,
                (_, "/api/v1/drop" | "/api/v1/first") => r#"{"rule": "api", "host": "a", "client": "::1"}"#,
                _ => "{}",
            };
            let request = format!(
                "{method} {path} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                authorized(),
                body.len()
            );
            let reply = world.ask(&request).await;
            assert_eq!(reply.status, if method == allowed { 200 } else { 405 }, "{method} {path}: {}", reply.body);
        }
    }
}

#[tokio::test]
async fn a_question_needs_the_token_only_where_reading_does() {
    let world = world().await;
    let question = r#"{"url": "http://a/", "client": "10.0.0.1"}"#;
    let reply = world.ask(&post("explain", "Host: localhost\r\n", question)).await;
    assert_eq!(reply.status, 200);
    let explained: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(explained["seen"], "GET http://a/ 10.0.0.1");
    for wrong in [r#"{"url": "a"}"#, r#"{"method": "GET"}"#, r#"{"url": "http://a/", "hots": 1}"#, "[]"] {
        assert_eq!(world.ask(&post("explain", "Host: localhost\r\n", wrong)).await.status, 400, "{wrong}");
    }
    let foreign = world.ask(&post("explain", "Host: localhost\r\nOrigin: http://evil.example\r\n", question)).await;
    assert_eq!(foreign.status, 403);
}

#[tokio::test]
async fn every_change_needs_the_token_and_says_what_it_is() {
    let world = world().await;
    for (path, good, bad) in [
        (
            "limit",
            r#"{"rule": "api", "limits": "1/s, in-flight 2", "for": "10m"}"#,
            r#"{"rule": "api", "limits": "1/s"}"#,
        ),
        (
            "limit",
            r#"{"rule": "api", "limits": "5/min", "for": "1h"}"#,
            r#"{"rule": "api", "limits": "much", "for": "1h"}"#,
        ),
        (
            "limit",
            r#"{"rule": "api", "limits": "1/s, 5 admin-tokens/s", "for": "1h"}"#,
            r#"{"rule": "api", "limits": "1/s, 5 admin-tokns/s", "for": "1h"}"#,
        ),
        ("weights", r#"{"rule": "api", "weights": ["batch=2"]}"#, r#"{"rule": "api", "weights": ["batch"]}"#),
        ("drop", r#"{"rule": "api", "host": "a", "client": "::1"}"#, r#"{"rule": "api", "host": "a"}"#),
        ("first", r#"{"rule": "api", "host": "a", "client": "::1", "flow": "1f"}"#, "{}"),
        ("forget", "{}", r#"{"for": "10m"}"#),
        ("drain", "{}", r#"{"rule": "api"}"#),
    ] {
        let before = world.state.steered.lock().len();
        assert_eq!(world.ask(&post(path, "Host: localhost\r\n", good)).await.status, 401, "{path}");
        assert_eq!(world.ask(&post(path, &authorized(), bad)).await.status, 400, "{path}");
        assert_eq!(world.state.steered.lock().len(), before, "{path}");
        let reply = world.ask(&post(path, &authorized(), good)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        assert_eq!(world.state.steered.lock().last().unwrap().1.as_str(), path);
    }
    let unknown = r#"{"rule": "none", "limits": "1/s", "for": "10m"}"#;
    assert_eq!(world.ask(&post("limit", &authorized(), unknown)).await.status, 404);
}
