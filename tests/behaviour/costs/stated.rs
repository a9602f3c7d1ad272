//! Bounds on the cost that a request states itself: `max-cost`, and amounts of 0.

use serde_json::Value;

use super::ask;
use crate::support::{Andante, Message, Upstream, rejected};

/// An upstream, and an andante with these rules for it. `HOST` stands for the address of the upstream.
fn ruled(rules: &str) -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let andante = Andante::with_config(&rules.replace("HOST", &upstream.address().to_string()));
    (upstream, andante)
}

fn state(andante: &Andante, upstream: &Upstream, cost: &str) -> Message {
    ask(andante, upstream, &format!("Andante-Cost: {cost}\r\n"))
}

fn used(status: &Value, limit: usize) -> u64 {
    status["lanes"][0]["limits"][limit]["used"].as_u64().unwrap()
}

/// A tenth of the smallest limit of each unit: of 500/min and 40/s, 4; of 1,000 and 5,000 tokens, 100.
#[test]
fn stated_cost_above_a_tenth_of_the_smallest_limit_is_refused_with_the_bound_and_its_key() {
    let limits = "[\"40/s burst 40\", \"500/min burst 500\", \"1000 tokens/h burst 1000\", \"5000 tokens/day in UTC\"]";
    let (upstream, andante) = ruled(&format!("[[rule]]\nhost = \"HOST\"\nlimits = {limits}\n"));
    for fits in ["4", "tokens=100", "requests=4, tokens=100"] {
        assert_eq!(state(&andante, &upstream, fits).status(), 200, "{fits}");
    }
    let sent = upstream.requests().len();
    for (above, stated, most, of) in [
        ("5", "5 requests", "state 4 at most", "of 40"),
        ("requests=40", "40 requests", "state 4 at most", "of 40"),
        ("tokens=101", "101 tokens", "state 100 at most", "of 1000"),
        ("requests=4, tokens=1000", "1000 tokens", "state 100 at most", "of 1000"),
    ] {
        let refused = state(&andante, &upstream, above);
        rejected(&refused, 400, "http_request_error", stated);
        for part in [most, of, "max-cost"] {
            assert!(refused.text().contains(part), "{above}: {part} in {}", refused.text());
        }
    }
    assert_eq!(upstream.requests().len(), sent, "a refused request takes nothing");
}

#[test]
fn limit_below_ten_allows_a_stated_cost_of_one() {
    let (upstream, andante) = ruled("[[rule]]\nhost = \"HOST\"\nlimits = [\"9/s\", \"3 tokens/s\"]\n");
    assert_eq!(state(&andante, &upstream, "requests=1, tokens=1").status(), 200);
    assert_eq!(state(&andante, &upstream, "2").status(), 400);
    assert_eq!(state(&andante, &upstream, "tokens=2").status(), 400);
}

#[test]
fn max_cost_of_a_rule_bounds_the_units_that_it_names() {
    let (upstream, andante) = ruled(
        "[[rule]]\nhost = \"HOST\"\nlimits = [\"100/s burst 100\", \"1000 tokens/h burst 1000\"]\nmax-cost = 40\n\
         [[rule]]\nhost = \"HOST\"\nheader = \"X-Large\"\nmax-cost = \"tokens=300\"\n",
    );
    let ask =
        |cost: &str, fields: &str| ask(&andante, &upstream, &format!("Andante-Cost: {cost}\r\n{fields}")).status();
    assert_eq!((ask("40", ""), ask("41", "")), (200, 400), "a number is one of requests");
    assert_eq!((ask("tokens=100", ""), ask("tokens=101", "")), (200, 400), "the default for a unit not named");
    let large = "X-Large: 1\r\n";
    assert_eq!((ask("tokens=300", large), ask("tokens=301", large)), (200, 400), "the first rule that names the unit");
    assert_eq!((ask("40", large), ask("41", large)), (200, 400), "the own rule bounds requests");
}

/// Its limits are those that the request draws on: 20 of a path's 200 an hour, 500 where the host's own do not hold.
#[test]
fn default_bound_is_by_the_limits_that_the_request_draws_on() {
    let (upstream, andante) = ruled(
        "[[rule]]\nhost = \"HOST\"\nlimits = [\"1000/h burst 1000\"]\n\
         [[rule]]\nhost = \"HOST\"\nheader = \"X-Narrow\"\nlimits = [\"200/h burst 200\"]\n\
         [[rule]]\nhost = \"HOST\"\nheader = \"X-Apart\"\nonly = true\nlimits = [\"5000/h burst 5000\"]\n",
    );
    let ask = |cost: u32, fields: &str| ask(&andante, &upstream, &format!("Andante-Cost: {cost}\r\n{fields}")).status();
    assert_eq!((ask(100, ""), ask(101, "")), (200, 400));
    assert_eq!((ask(20, "X-Narrow: 1\r\n"), ask(21, "X-Narrow: 1\r\n")), (200, 400));
    assert_eq!((ask(500, "X-Apart: 1\r\n"), ask(501, "X-Apart: 1\r\n")), (200, 400));
}

#[test]
fn cost_that_the_operator_configures_is_not_bounded() {
    let (upstream, andante) = ruled(
        "[[rule]]\nhost = \"HOST\"\nlimits = [\"100/s burst 50\", \"1000 tokens/h burst 1000\"]\ncost = \"tokens=400\"\n\
         max-cost = \"tokens=1\"\n",
    );
    assert_eq!(ask(&andante, &upstream, "").status(), 200);
    assert_eq!(state(&andante, &upstream, "1").status(), 200, "the rule's cost completes it");
    assert_eq!(used(&andante.status(), 1), 800);
}

/// Each answer reports 50 tokens. Without a stated amount a tenth of the limit is reserved at first: of 100, 10.
#[test]
fn stated_zero_of_a_unit_that_answers_report_counts_as_not_stated() {
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nX-Tokens: 50\r\nContent-Length: 0\r\n\r\n");
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "[[rule]]\nhost = \"{host}\"\nlimits = [\"1000/s burst 1000\", \"100 tokens/h burst 100\"]\nusage = [\"tokens=header:X-Tokens\"]\n"
    ));
    for (answer, used_then) in [(200, 50), (200, 100), (429, 100)] {
        assert_eq!(state(&andante, &upstream, "tokens=0").status(), answer);
        andante.wait_for(|status| used(status, 1) == used_then);
    }
}

/// Nothing else limits such a request: it takes 1 of the unit, as one that states nothing.
#[test]
fn stated_zero_does_not_evade_a_rule_that_counts_that_unit_alone() {
    for (rules, narrower) in [
        ("[[rule]]\nhost = \"HOST\"\nlimits = [\"2 hits/h burst 2\"]\n", ""),
        (
            "[[rule]]\nhost = \"HOST\"\nlimits = [\"1000/s burst 1000\"]\n\
             [[rule]]\nhost = \"HOST\"\nheader = \"X-Counted\"\nlimits = [\"2 hits/h burst 2\"]\n",
            "X-Counted: 1\r\n",
        ),
    ] {
        let (upstream, andante) = ruled(rules);
        for answer in [200, 200, 429] {
            let status = ask(&andante, &upstream, &format!("Andante-Cost: hits=0\r\n{narrower}")).status();
            assert_eq!(status, answer, "{rules}");
        }
    }
}

/// A rule that says so itself means it: `cost = "tokens=0"` for requests that take none.
#[test]
fn zero_that_the_operator_configures_holds() {
    let (upstream, andante) = ruled(
        "[[rule]]\nhost = \"HOST\"\nlimits = [\"1000/s burst 1000\", \"1 tokens/h burst 1\"]\ncost = \"tokens=0\"\n\
         usage = [\"tokens=header:X-Tokens\"]\n",
    );
    for stated in ["tokens=0", "1", "tokens=1", "tokens=0"] {
        assert_eq!(state(&andante, &upstream, stated).status(), 200, "{stated}");
    }
}
