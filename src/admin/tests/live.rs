//! The live page and its stream.

use serde_json::Value;

use super::*;

/// Events that a page receives.
struct Events {
    stream: TcpStream,
    read: String,
}

impl Events {
    async fn open(world: &AdminServer, query: &str) -> Self {
        let mut stream = TcpStream::connect(world.at).await.unwrap();
        let request = format!("GET /events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream, read: String::new() }
    }

    /// The next event of this name; `None` at the end.
    async fn next(&mut self, name: &str) -> Option<Value> {
        let start = format!("event: {name}\ndata: ");
        loop {
            if let Some((_, rest)) = self.read.split_once(&start)
                && let Some((json, rest)) = rest.split_once("\n\n")
            {
                let (json, rest) = (serde_json::from_str(json).unwrap(), rest.to_owned());
                self.read = rest;
                return Some(json);
            }
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer).await.unwrap();
            if read == 0 {
                return None;
            }
            self.read += str::from_utf8(&buffer[..read]).unwrap();
        }
    }
}

fn hosts(turn: &Value) -> Vec<&str> {
    let mut hosts: Vec<_> =
        turn["lanes"].as_array().unwrap().iter().map(|lane| lane["host"].as_str().unwrap()).collect();
    hosts.sort_unstable();
    hosts
}

#[tokio::test]
async fn browsers_get_the_page_and_scripts_a_text() {
    let world = AdminServer::new(Vec::new()).await;
    let page = world
        .ask("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\r\n")
        .await;
    assert_eq!(page.status, 200);
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    let policy = page.head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = world.ask("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n").await;
    assert!(text.head.contains("content-type: text/plain") && text.body.contains("/metrics"));
    for reply in [page, text] {
        assert!(reply.head.contains("vary: accept"), "{}", reply.head);
    }
    let script = world.get("/page/main.js").await;
    assert!(
        script.head.contains("content-type: text/javascript") && script.head.contains("nosniff"),
        "{}",
        script.head
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_is_shown_all_lanes_first_and_then_those_that_change() {
    let world = AdminServer::new(vec![lane("api", "a", 5, (1, 9)), lane("api", "b", 0, (0, 10))]).await;
    let mut events = Events::open(&world, "").await;
    let first = events.next("turn").await.unwrap();
    assert_eq!((first["whole"].as_bool(), hosts(&first)), (Some(true), vec!["a", "b"]));
    assert_eq!(first["news"][0]["text"], "<b>paused</b>");
    let quiet = events.next("turn").await.unwrap();
    // Lane a gets older, but the age of its oldest request is not known here, so nothing of the
    // lane changes.
    assert_eq!((quiet["whole"].as_bool(), hosts(&quiet), &quiet["news"]), (Some(false), vec![], &Value::Array(vec![])));
    *world.state.lanes.lock() = vec![lane("api", "a", 4, (2, 8))];
    let changed = loop {
        let turn = events.next("turn").await.unwrap();
        if !hosts(&turn).is_empty() {
            break turn;
        }
    };
    assert_eq!((hosts(&changed), &changed["gone"]), (vec!["a"], &serde_json::json!(["api b"])));
    let mut late = Events::open(&world, "").await;
    assert_eq!(hosts(&late.next("turn").await.unwrap()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_opened_lane_is_told_of_in_full() {
    let world = AdminServer::new(vec![lane("a rule", "a:8080", 5, (1, 9))]).await;
    let mut events = Events::open(&world, "?lane=a%20rule%20a%3A8080").await;
    let opened = events.next("lane").await.unwrap();
    assert_eq!((&opened["name"], &opened["detail"]["lane"]["waiting"]), (&"a rule a:8080".into(), &5.into()));
    let mut unknown = Events::open(&world, "?lane=a%20rule%20elsewhere").await;
    assert_eq!(unknown.next("lane").await.unwrap()["detail"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn one_page_too_many_is_refused_until_another_one_closes() {
    let world = AdminServer::new(Vec::new()).await;
    let mut open = Vec::new();
    for _ in 0..32 {
        let mut events = Events::open(&world, "").await;
        events.next("turn").await.unwrap();
        open.push(events);
    }
    assert_eq!(world.get("/events").await.status, 503);
    assert_eq!(world.get("/readyz").await.status, 200);
    open.pop();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(Events::open(&world, "").await.next("turn").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_page_outlives_the_time_of_other_answers_if_it_is_read() {
    let world = AdminServer::new(vec![lane("api", "a", 5, (1, 9))]).await;
    let mut events = Events::open(&world, "").await;
    for turn in 0..100 {
        assert!(events.next("turn").await.is_some(), "ended after {turn} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_read_is_hung_up_on() {
    let long = "a".repeat(300_000);
    let world = AdminServer::new(vec![lane("api", &long, 0, (0, 1))]).await;
    let events = Events::open(&world, "").await;
    // The row changes each second, so that the buffers on the way fill up.
    for waiting in 0..300 {
        world.state.lanes.lock()[0].waiting = waiting;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let before = world.state.turns.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.state.turns.load(Ordering::Relaxed), before, "somebody is still told");
    drop(events);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_worked_out_while_nobody_looks() {
    let world = AdminServer::new(vec![lane("api", "a", 5, (1, 9))]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.state.turns.load(Ordering::Relaxed), 0);
    let mut events = Events::open(&world, "?lane=api%20a").await;
    let history = events.next("lane").await.unwrap()["history"]["waiting"].clone();
    let history = history.as_array().unwrap();
    // A sample every 5 s, from the very start.
    assert!((12..=13).contains(&history.len()), "{history:?}");
    assert!(history.iter().all(|waiting| *waiting == 5));
}

#[tokio::test(start_paused = true)]
async fn page_opened_late_is_sent_the_history_and_then_each_sample() {
    let world = AdminServer::new(vec![lane("api", "a", 5, (1, 9))]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut events = Events::open(&world, "").await;
    let whole = events.next("history").await.unwrap();
    let waiting = whole["total"]["waiting"].as_array().unwrap();
    assert!(whole["whole"] == true && (12..=13).contains(&waiting.len()), "{whole}");
    let mut number = whole["number"].as_u64().unwrap();
    // The samples that follow continue the first ones, whatever was taken in between.
    for _ in 0..3 {
        let next = events.next("history").await.unwrap();
        let count = next["total"]["waiting"].as_array().unwrap().len() as u64;
        let newest = next["number"].as_u64().unwrap();
        assert!(next["whole"] == false && newest - count <= number && newest > number, "{number}: {next}");
        number = newest;
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_nobody_looked_is_no_pace() {
    let world = AdminServer::new(vec![lane("api", "a", 5, (1, 9))]).await;
    let mut events = Events::open(&world, "").await;
    events.next("turn").await.unwrap();
    drop(events);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // A thousand requests in a thousand seconds: 1/s, long ago.
    world.state.turns.fetch_add(1000, Ordering::Relaxed);
    world.state.lanes.lock()[0].sent_total = 1000;
    let turn = Events::open(&world, "").await.next("turn").await.unwrap();
    assert_eq!(turn["lanes"][0]["pace"], 0.0);
}

#[tokio::test]
async fn stopping_ends_the_streams() {
    let mut world = AdminServer::new(Vec::new()).await;
    let mut events = Events::open(&world, "").await;
    events.next("turn").await.unwrap();
    let _ = world.stop.take().unwrap().send(());
    while events.next("turn").await.is_some() {}
    world.server.await.unwrap();
}
