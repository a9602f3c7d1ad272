//! Answers of other APIs, gateways and libraries of the same families, and answers that only look like complaints.
//! Names and forms are real: some come from documents, issues and sources, most from memory of such. Times and many
//! numbers are made up for the test. `examined.txt` has one answer per line:
//! `who # answer # signal wait limit remaining reset window`. The parser wrote the conclusions, after those that
//! differed from the expectation were judged. A line that turns out wrong must be corrected, not obeyed.

use http::HeaderValue;

use crate::{
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
    // Removes zeros after the decimal point.
    let word = |number: Option<f64>| {
        let text = number.map_or("-".to_owned(), |number| format!("{number:.3}"));
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let found = std::iter::once(signal.as_str().unwrap().to_owned()).chain(numbers.map(word));
    let found = found.collect::<Vec<_>>().join(" ");
    (found != expected).then(|| format!("{line}\n  found {found}\n  {hint:?}"))
}
