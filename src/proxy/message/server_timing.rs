//! andante's part of an answer's time, for browsers and tools: W3C Server Timing.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{in_order, quoted_list::quoted_members};
use crate::proxy::request_stats::Wait;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// andante's metrics: the time that a request waited, and the forecast when it came.
const OUR_METRICS: [&str; 2] = ["andante", "andante-expected"];

/// Sets the time that the request has waited, in milliseconds as in W3C Server Timing, and as a second metric the
/// forecast when it came. Replaces metrics of the same names.
pub(crate) fn set(fields: &mut HeaderMap, wait: Wait) {
    remove(fields);
    add(fields, wait);
}

/// Adds the metrics where there is no such field yet.
pub(crate) fn add(fields: &mut HeaderMap, wait: Wait) {
    fields.append(SERVER_TIMING, value(wait));
}

fn value(wait: Wait) -> HeaderValue {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (Wait { time, expected, ahead }, [waited, promised]) = (wait, OUR_METRICS);
    if time.is_zero() {
        return HeaderValue::from_static("andante;dur=0");
    }
    let waited = format!("{waited};dur={:.1}", ms(time));
    let promised = expected.map(|expected| format!(", {promised};dur={:.1};desc=\"{ahead} ahead\"", ms(expected)));
    HeaderValue::try_from(waited + &promised.unwrap_or_default()).expect("visible ASCII")
}

/// Removes andante's metrics from `Server-Timing`.
pub(crate) fn remove(fields: &mut HeaderMap) {
    if !fields.contains_key(SERVER_TIMING) {
        return;
    }
    let is_ours = |metric: &&[u8]| {
        let name = metric.split(|byte| *byte == b';').next().unwrap_or_default();
        OUR_METRICS.iter().any(|ours| name.trim_ascii().eq_ignore_ascii_case(ours.as_bytes()))
    };
    let has_ours = |line: &HeaderValue| quoted_members(line.as_bytes()).iter().any(is_ours);
    if !fields.get_all(SERVER_TIMING).iter().any(has_ours) {
        return;
    }
    let lines: Vec<HeaderValue> = fields.get_all(SERVER_TIMING).into_iter().cloned().collect();
    in_order::remove(fields, |name| name == SERVER_TIMING);
    for line in lines {
        let metrics = quoted_members(line.as_bytes());
        if !metrics.iter().any(is_ours) {
            fields.append(SERVER_TIMING, line);
            continue;
        }
        let others: Vec<&[u8]> = metrics.into_iter().filter(|metric| !is_ours(metric)).collect();
        if let Ok(others) = HeaderValue::from_bytes(&others.join(&b", "[..]))
            && !others.is_empty()
        {
            fields.append(SERVER_TIMING, others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(lines: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let lines =
            lines.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value)));
        let mut fields = HeaderMap::from_iter(lines);
        remove(&mut fields);
        fields.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    #[test]
    fn other_fields_and_metrics_keep_their_order() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let others = [("a", "1"), ("server-timing", "db;dur=5"), ("b", "2"), ("c", "3")];
        assert_eq!(removed(&others), others.map(|(name, value)| field(name, value)));
        let ours = [("a", "1"), ("server-timing", "andante;dur=1, db;dur=5"), ("b", "2"), ("c", "3")];
        let expected = [field("a", "1"), field("b", "2"), field("c", "3"), field("server-timing", "db;dur=5")];
        assert_eq!(removed(&ours), expected);
    }
}
