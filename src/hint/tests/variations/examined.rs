//! Answers of other APIs, gateways and libraries of the same families; and answers that look like complaints and are none.
//! Names and forms are theirs, some looked up in documents, issues and sources, most from memory of such; times and many
//! numbers are made up for the test. One a line in `examined.txt`:
//! `who # answer # signal wait limit remaining reset window`. The conclusions were written by the parser, after those that
//! differed from what had been expected were judged: a line that turns out wrong is to be corrected, not obeyed.

use http::HeaderValue;

use crate::hint::{
    Answer, read,
    tests::{NOON, parts},
    wants_body,
};

const ANSWERS: &str = include_str!("examined.txt");

#[test]
fn answers_that_nobody_had_in_mind_are_understood() {
    let wrong: Vec<String> = ANSWERS.lines().filter(|line| !line.starts_with("//")).filter_map(difference).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn difference(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split(" # ").collect();
    let [_, answer, expected] = fields[..] else { panic!("{line}") };
    let (status, mut headers, body) = parts(answer);
    let body = body.filter(|body| {
        let kind = match body.first() {
            Some(b'{' | b'[') => "application/json",
            Some(b'<') => "application/xml",
            _ => "text/plain",
        };
        headers.insert("content-type", HeaderValue::from_static(kind));
        headers.insert("content-length", body.len().into());
        wants_body(status, &headers)
    });
    let hint = read(&Answer { status, headers: &headers, body, arrived: NOON });
    let first = hint.buckets.first();
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    let numbers = [
        seconds(hint.wait),
        first.and_then(|bucket| bucket.limit),
        first.and_then(|bucket| bucket.remaining),
        seconds(first.and_then(|bucket| bucket.reset)),
        seconds(first.and_then(|bucket| bucket.window)),
    ];
    let signal = serde_json::to_value(hint.signal).unwrap();
    // Without zeros behind the point.
    let word = |number: Option<f64>| {
        let text = number.map_or("-".to_owned(), |number| format!("{number:.3}"));
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let found = std::iter::once(signal.as_str().unwrap().to_owned()).chain(numbers.map(word));
    let found = found.collect::<Vec<_>>().join(" ");
    (found != expected).then(|| format!("{line}\n  found {found}\n  {hint:?}"))
}
