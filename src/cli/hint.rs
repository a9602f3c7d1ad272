//! `andante hint`: shows andante's conclusions from one answer.

mod raw;

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Read, Write as _},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use self::raw::Raw;
use super::{Failure, json_text, serve, terminal};
use crate::{
    config::{Config, Sources},
    hint::{self, Answer, Bucket, Glance, Hint, Hopeless, Signal},
    policy::RefusedAnswer,
};

/// Shows andante's conclusions from one answer: whether to wait, how long, and for what
///
/// Reads an HTTP answer in its raw form: status line, fields, an empty line, and the body if there is one. Prints one
/// JSON object: times in seconds, null for values that the answer does not report. `buckets` are the budgets that the
/// answer describes, the binding one first; its numbers are repeated at the top.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The answer; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Time of the answer, for resets that are times of day [default: now]
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    now: Option<Duration>,
    /// Condition that makes an answer a refusal, as in the key `refused` of a rule; may be repeated
    #[arg(long, value_name = "PLACE = VALUE", value_parser = declared)]
    refused: Vec<RefusedAnswer>,
    /// Configuration file, whose rules may declare refusals by `refused`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  curl -si https://api.example.com/ | andante hint
  andante hint answer.txt
  andante hint --now 2026-08-03T08:31:12Z answer.txt
      an answer of another day
  andante hint --refused 'body.error.code = TOO_MANY' answer.txt
  andante hint --config andante.toml answer.txt
      with what rules declare to be refusals

Exit codes: 0 understood, 1 no HTTP answer, or it could not be read, 2 wrong usage.";

/// Longest answer: a longer one was not meant.
const LONGEST: u64 = 1024 * 1024;

/// Prints the conclusion.
///
/// # Errors
/// If the answer cannot be read or is invalid, or output finds no reader.
pub fn run(args: &Args) -> Result<(), Failure> {
    let text = read(args)?;
    let raw = Raw::parse(&text).map_err(|error| {
        Failure::new(format!("could not understand {}", args.name()))
            .because(error)
            .hinting("give an answer as `curl -si` prints it: \"HTTP/1.1 429 Too Many Requests\", fields, an empty line, the body")
    })?;
    let arrived =
        args.now.unwrap_or_else(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    let hint = conclude(&raw, &args.declared()?, arrived);
    let line = json_text::line(&Conclusion::of(&hint));
    writeln!(io::stdout().lock(), "{line}").map_err(Failure::writing)
}

/// Concludes from an answer that came at `arrived` the same as the proxy, where these refusals are `declared`.
fn conclude(raw: &Raw<'_>, declared: &[RefusedAnswer], arrived: Duration) -> Hint {
    let glance = Glance::of(&raw.headers);
    // `curl --compressed` takes the coding off, and leaves the field.
    let decoded = glance.decode(Cow::Borrowed(raw.body)).filter(|body| !body.is_empty());
    let body = decoded.as_deref().unwrap_or(raw.body);
    let answer = Answer { status: raw.status, headers: &raw.headers, body: Some(body), arrived };
    // The events of a stream are no words of the API.
    let tested = Some(body).filter(|_| !hint::is_stream(raw.status, &glance));
    let mut hint = hint::read(&answer);
    if RefusedAnswer::matches_any(declared, raw.status, &raw.headers, tested) && hint.yields_to_rule(raw.status) {
        hint = hint::read_refused(&answer);
    }
    hint
}

fn read(args: &Args) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let done = if args.is_stdin() {
        io::stdin().lock().take(LONGEST).read_to_end(&mut text)
    } else {
        File::open(&args.file).and_then(|file| file.take(LONGEST).read_to_end(&mut text))
    };
    match done {
        Ok(_) => Ok(text),
        Err(error) => {
            let failure = Failure::new(format!("could not read {}", args.name())).because(error);
            Err(failure.hinting("name a file with an HTTP answer, or - for standard input"))
        }
    }
}

fn declared(text: &str) -> Result<RefusedAnswer, String> {
    text.parse()
}

fn instant(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a time of day, found {text:?}; write \"2026-08-03T08:31:12Z\"");
    hint::time_of_day(text).ok_or_else(wrong)
}

// === impl Args ===

impl Args {
    fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Refusals that the flags and the configuration's rules declare.
    fn declared(&self) -> Result<Vec<RefusedAnswer>, Failure> {
        let mut declared = self.refused.clone();
        if let Some(file) = &self.config {
            let sources = Sources { file: serve::config_file(Some(file)), ..Sources::default() };
            let (config, _) = Config::load(&sources).map_err(|problems| {
                terminal::problems(&problems);
                Failure::new(format!("could not read the rules of {}", file.display()))
                    .hinting("correct what is named above; andante check says the same")
            })?;
            declared.extend(config.rules.iter().flat_map(|rule| rule.refused.clone()));
        }
        Ok(declared)
    }

    fn name(&self) -> String {
        if self.is_stdin() { "standard input".to_owned() } else { self.file.display().to_string() }
    }
}

/// The printed object.
#[derive(Debug, Serialize)]
struct Conclusion<'a> {
    signal: Signal,
    limit: Option<JsonNumber>,
    remaining: Option<JsonNumber>,
    reset_s: Option<JsonNumber>,
    window_s: Option<JsonNumber>,
    retry_after_s: Option<JsonNumber>,
    wait_s: Option<JsonNumber>,
    scope: Option<&'a str>,
    dialect: &'static str,
    /// Reason why waiting does not help, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Hopeless>,
    buckets: Vec<ShownBucket<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownBucket<'a> {
    name: Option<&'a str>,
    requests: bool,
    limit: Option<JsonNumber>,
    remaining: Option<JsonNumber>,
    reset_s: Option<JsonNumber>,
    window_s: Option<JsonNumber>,
}

/// A whole number without a fraction, or a number with one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum JsonNumber {
    Whole(u64),
    Broken(f64),
}

// === impl Conclusion ===

impl<'a> Conclusion<'a> {
    fn of(hint: &'a Hint) -> Self {
        let buckets: Vec<ShownBucket<'_>> = hint.buckets.iter().map(ShownBucket::of).collect();
        let first = buckets.first();
        Self {
            signal: hint.signal,
            limit: first.and_then(|first| first.limit),
            remaining: first.and_then(|first| first.remaining),
            reset_s: first.and_then(|first| first.reset_s),
            window_s: first.and_then(|first| first.window_s),
            retry_after_s: hint.retry_after.map(JsonNumber::seconds),
            wait_s: hint.wait.map(JsonNumber::seconds),
            scope: hint.scope.as_deref(),
            dialect: hint.dialect.as_str(),
            reason: hint.hopeless,
            buckets,
        }
    }
}

// === impl ShownBucket ===

impl<'a> ShownBucket<'a> {
    fn of(bucket: &'a Bucket) -> Self {
        Self {
            name: bucket.name.as_deref(),
            requests: bucket.requests,
            limit: bucket.limit.map(JsonNumber::of),
            remaining: bucket.remaining.map(JsonNumber::of),
            reset_s: bucket.reset.map(JsonNumber::seconds),
            window_s: bucket.window.map(JsonNumber::seconds),
        }
    }
}

// === impl JsonNumber ===

impl JsonNumber {
    fn of(number: f64) -> Self {
        // Hints are neither negative nor beyond the whole numbers of either type.
        if number.fract() == 0.0 { Self::Whole(number as u64) } else { Self::Broken(number) }
    }

    fn seconds(of: Duration) -> Self {
        Self::of(of.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(answer: &str) -> String {
        let raw = Raw::parse(answer.as_bytes()).unwrap();
        let arrived = instant("2026-04-27T12:00:10.5Z").unwrap();
        serde_json::to_string(&Conclusion::of(&conclude(&raw, &[], arrived))).unwrap()
    }

    #[test]
    fn the_conclusion_is_one_line_of_json() {
        assert_eq!(
            line(
                "HTTP/2 429\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1.5s\n"
            ),
            r#"{"signal":"throttled","limit":60,"remaining":0,"reset_s":1.5,"window_s":null,"retry_after_s":null,"wait_s":1.5,"scope":null,"dialect":"openai","buckets":[{"name":"requests","requests":true,"limit":60,"remaining":0,"reset_s":1.5,"window_s":null}]}"#
        );
        assert_eq!(
            line("HTTP/1.1 200 OK\r\n\r\n"),
            r#"{"signal":"ok","limit":null,"remaining":null,"reset_s":null,"window_s":null,"retry_after_s":null,"wait_s":0,"scope":null,"dialect":"none","buckets":[]}"#
        );
    }

    #[test]
    fn a_body_that_curl_has_decoded_is_read() {
        for coding in ["gzip", "br"] {
            let read = line(&format!(
                "HTTP/1.1 400 Bad\r\ncontent-encoding: {coding}\r\n\r\n{{\"error\":{{\"code\":\"THROTTLED\"}}}}"
            ));
            assert!(read.starts_with(r#"{"signal":"backoff""#), "{coding}: {read}");
        }
    }

    #[test]
    fn a_declaration_counts_as_it_does_for_the_proxy() {
        let read = |declared: &str, answer: &str| {
            let raw = Raw::parse(answer.as_bytes()).unwrap();
            conclude(&raw, &[declared.parse().unwrap()], Duration::ZERO)
        };
        // By its status it may have been done in part: the rule decides, and not `Retry-After`.
        let declared = read("status = 500", "HTTP/1.1 500 Oops\r\nretry-after: 5\r\n\r\n");
        assert_eq!(declared.strength, hint::Strength::Code);
        let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"text\":\"daily limit\"}\n\n";
        assert_eq!(
            read("body ~ 'daily limit'", stream).signal,
            Signal::Ok,
            "a stream's events are no words of the API"
        );
    }

    #[test]
    fn the_time_of_day_may_be_another_one_than_now() {
        assert_eq!(instant("1970-01-01T00:01:00Z"), Ok(Duration::from_secs(60)));
        assert!(instant("yesterday").unwrap_err().contains("write \"2026-"));
    }
}
