use super::*;
use crate::Limits;

fn limits(text: &str) -> Limits {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Quoted texts of a hint, except additions to a limit.
fn quoted(hint: &str) -> Vec<&str> {
    hint.split('"').skip(1).step_by(2).filter(|text| !text.starts_with(' ')).collect()
}

#[test]
fn what_is_suggested_is_read_and_means_the_same() {
    for (text, meant) in [
        ("500 a min", "500/min"),
        ("500 requests per minute", "500/min"),
        ("90000 tokens per minute", "90000 tokens/min"),
        ("90k tokens/min", "90000 tokens/min"),
        ("1e6 tokens/min", "1000000 tokens/min"),
        ("1.5M tokens a day", "1500000 tokens/d"),
        ("90,000 input-tokens/min", "90000 input-tokens/min"),
        ("90000tokens/min", "90000 tokens/min"),
        ("1 000/min", "1000/min"),
        ("10 Requests/s", "10/s"),
        ("10 GB/min", "10 gb/min"),
        ("at most 20 in a second", "20/s"),
        ("5 in 10 minutes", "5/10min"),
        ("10r/s", "10/s"),
        ("10req/s", "10/s"),
        ("10rps", "10/s"),
        ("600 RPM", "600/min"),
        ("1.5/s", "3/2s"),
        ("0.5/s", "1/2s"),
        (".5/s", "1/2s"),
        ("0.25 tokens/s", "1 tokens/4s"),
        ("2.5 rps", "5/2s"),
        ("7.5/min", "15/2min"),
        ("1/2.5s", "1/2500ms"),
        ("2 per 0.5s", "2/500ms"),
        ("10 requests per 1.5 min", "10/90s"),
        ("5/1h30m", "5/90min"),
        ("1 per 2s", "1/2s"),
        ("every 2s", "1/2s"),
        ("1 every 2 seconds", "1/2s"),
        ("100 every 30 seconds", "100/30s"),
        ("10 requests in 1 second", "10/s"),
        ("10/mo", "10/month"),
        ("10/year", "10/366d"),
        ("5 per fortnight", "5/14d"),
        ("10/s with burst=20", "10/s burst 20"),
        ("10/s burst20", "10/s burst 20"),
        ("2/s (burst 5)", "2/s burst 5"),
        ("10 per second with bursts of 20", "10/s burst 20"),
        ("2 per minute burst 4", "2/min burst 4"),
        ("10 per s burst 20 strict", "10/s burst 20 strict"),
        ("10 per s strict", "10/s strict"),
        ("20/s in-flight 5", "20/s,in-flight 5"),
        ("20/s in-flight=5", "20/s,in-flight 5"),
        ("3 per minute and 5 concurrent", "3/min,in-flight 5"),
        ("10/s;500/min", "10/s,500/min"),
        ("10/s; 500/min; in-flight 5", "10/s,500/min,in-flight 5"),
        ("10/s and 500/min", "10/s,500/min"),
        ("10/s 500/min", "10/s,500/min"),
    ] {
        let hint = text.parse::<Limits>().expect_err(text).hint().to_owned();
        let [suggested] = quoted(&hint)[..] else { panic!("{text}: {hint}") };
        assert_eq!(limits(suggested), limits(meant), "{text}: {hint}");
        assert_eq!(hint.contains("commas stand between limits"), suggested.contains(','), "{text}: {hint}");
    }
}

/// Each way to write a number, a unit and a window, in all combinations.
#[test]
fn every_spelling_of_a_limit_means_the_same() {
    let counts = [("10", 10), ("1k", 1000), ("2,500", 2500), ("1e3", 1000), ("max 7", 7), ("up to 7", 7)];
    let units = [("", ""), (" requests", ""), (" calls", ""), (" tokens", " tokens")];
    let between = ["/", " / ", " per ", " a ", " every ", " in each "];
    let windows = [("s", "s"), ("sec", "s"), ("minute", "min"), ("Hour", "h"), ("day", "d"), ("30 seconds", "30s")];
    let ends = [("", ""), (" burst 3", " burst 3"), (" burst=3", " burst 3"), (" strict", " strict")];
    for (count, so_many) in counts {
        for (unit, of) in units {
            for between in between {
                for (window, per) in windows {
                    for (end, with) in ends {
                        let text = format!("{count}{unit}{between}{window}{end}");
                        let meant = limits(&format!("{so_many}{of}/{per}{with}"));
                        match text.parse::<Limits>() {
                            Ok(read) => assert_eq!(read, meant, "{text}"),
                            Err(_) => {
                                let hint = suggest(&text);
                                assert_eq!(quoted(&hint).len(), 1, "{text}: {hint}");
                                assert_eq!(limits(quoted(&hint)[0]), meant, "{text}: {hint}");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A word that is not understood may change the meaning, and some of these texts mean two things.
#[test]
fn nothing_is_suggested_for_what_may_mean_something_else() {
    for text in [
        "",
        "many",
        "one per second",
        "0 a minute",
        "-5/s",
        "0.5",
        "0.0001/s",
        "1e12/s",
        "1 per 0s",
        "10.000/day",
        "10-20/s",
        "10+/s",
        "10/s or 500/min",
        "10 a minute or 2 a second",
        "10/s/ip",
        "10/s per ip",
        "10 per second per key",
        "1/4/s",
        "3/2s burst 4 with jitter",
        "90000 input tokens per minute",
        "500 burst 20",
        "500 strict",
    ] {
        let hint = suggest(text);
        assert!(hint.starts_with("write \"500/min\", "), "{text}: {hint}");
        quoted(&hint).into_iter().for_each(|form| drop(limits(form)));
    }
}

#[test]
fn without_a_window_there_is_one_to_choose() {
    for (text, last) in [("500", "500/month"), ("500 points", "500 points/month"), ("1/2", "1/2month")] {
        let hint = suggest(text);
        assert_eq!(quoted(&hint).len(), 5, "{hint}");
        quoted(&hint).into_iter().for_each(|form| drop(limits(form)));
        assert!(hint.ends_with(&format!(" or \"{last}\"")), "{hint}");
    }
}

#[test]
fn what_has_its_limit_elsewhere_is_shown_behind_one() {
    for (text, example) in [("burst 20", "10/s burst 20"), ("strict", "10/s strict")] {
        assert_eq!(suggest(text), format!("write it behind its limit, as in \"{example}\""));
        limits(example);
    }
    for text in ["unlimited", "None", "0"] {
        assert!(suggest(text).starts_with("leave the limit out"), "{text}");
    }
}

#[test]
fn how_many_at_once_is_understood_as_people_write_it() {
    for text in [
        "5 in-flight",
        "5 in flight",
        "5 requests at once",
        "5 concurrent requests",
        "5 Concurrent",
        "inflight 5",
        "In-Flight 5",
        "concurrency 5",
        "max 5 in-flight",
        "at most 5 at once",
        "in-flight: 5",
    ] {
        assert_eq!(suggest_in_flight(text).as_deref(), Some("write \"in-flight 5\""), "{text}");
    }
    for text in ["5 in-flight-tokens/min", "5/s", "in-flight 5", "5000/day in UTC", "5 concurrent per minute"] {
        assert_eq!(suggest_in_flight(text), None, "{text}");
    }
}

/// A place that takes one rate of requests gets no other suggestion.
#[test]
fn one_rate_is_suggested_where_one_is_read() {
    use crate::Rate;
    let hint = |text: &str| text.parse::<Rate>().unwrap_err().hint().to_owned();
    assert_eq!("10 req/s".parse::<Rate>().unwrap(), "10/s".parse().unwrap());
    assert_eq!("600 / 15 min".parse::<Rate>().unwrap(), "600/15min".parse().unwrap());
    assert_eq!(hint("10 per second"), "write \"10/s\"");
    for text in ["10/s burst 5", "10/s strict", "10 tokens per second", "10/s;5/min", "in-flight 5"] {
        let hint = hint(text);
        quoted(&hint).into_iter().for_each(|form| assert!(form.parse::<Rate>().is_ok(), "{form}"));
    }
    assert!(hint("10 tokens/s").contains("requests alone"));
}
