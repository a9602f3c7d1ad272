//! Claims about the keys on APIs' answers.

use super::*;
use crate::policy::{RetryPolicy, Spend, Trust};

/// All four values of a policy.
fn of(policy: &Policy) -> (Spend, Trust, Option<u64>, bool) {
    (policy.spend, policy.trust, policy.retry.map(|retry| retry.body), policy.breaker)
}

const USUAL: (Spend, Trust, Option<u64>, bool) = (Spend::Mostly, Trust::Stricter, Some(RetryPolicy::BODY), true);

#[test]
fn nothing_said_of_answers_means_the_defaults() {
    let config = load("[[rule]]\nhost = 'a'\nin-flight = 1");
    assert_eq!((of(rule(&config, "a")), of(config.rules.unruled())), (USUAL, USUAL));
    let said = load(
        "spend = 'mostly'\ntrust = 'stricter'\nretry = 'on'\nbreaker = 'on'\n[[rule]]\nhost = 'a'\nspend = 'mostly'\n\
         trust = 'stricter'\nretry = { body = '1MiB' }\nbreaker = 'on'\nin-flight = 1",
    );
    assert_eq!(said, config);
}

#[test]
fn every_word_on_answers_is_heard() {
    for (text, expected) in [
        ("spend = 'even'", (Spend::Even, USUAL.1, USUAL.2, true)),
        ("spend = 'greedy'", (Spend::Greedy, USUAL.1, USUAL.2, true)),
        ("trust = 'waits'", (USUAL.0, Trust::Waits, USUAL.2, true)),
        ("trust = 'api'", (USUAL.0, Trust::Api, USUAL.2, true)),
        ("retry = 'off'", (USUAL.0, USUAL.1, None, true)),
        ("retry = {}", USUAL),
        ("retry = { body = '64KiB' }", (USUAL.0, USUAL.1, Some(65_536), true)),
        ("retry = { body = 0 }", (USUAL.0, USUAL.1, Some(0), true)),
        ("retry.body = '10MB'", (USUAL.0, USUAL.1, Some(10_000_000), true)),
        ("breaker = 'off'", (USUAL.0, USUAL.1, USUAL.2, false)),
    ] {
        let top = load(&format!("{text}\n[[rule]]\nhost = 'a'\nin-flight = 1"));
        assert_eq!((of(rule(&top, "a")), of(top.rules.unruled())), (expected, expected), "{text} for all");
        // Keys on answers give a rule a purpose although it limits nothing, so there is no warning.
        let own = load(&format!("[[rule]]\nhost = 'a'\n{text}"));
        assert_eq!((of(rule(&own, "a")), of(own.rules.unruled())), (expected, USUAL), "{text} in a rule");
    }
    let tables = load("[retry]\nbody = '2MiB'\n[[rule]]\nhost = 'a'\n[rule.retry]\nbody = '3MiB'");
    assert_eq!(of(rule(&tables, "a")).2, Some(3 << 20));
    assert_eq!(of(tables.rules.unruled()).2, Some(2 << 20));
}

#[test]
fn a_rule_wins_over_flags_over_environment_over_the_top_of_the_file() {
    let mut sources = file(
        "spend = 'even'\ntrust = 'api'\nretry = { body = '4MiB' }\nbreaker = 'off'\n\
         [[rule]]\nhost = ['a', 'b']\nretry = 'on'\nspend = 'mostly'",
    );
    sources.environment = Settings {
        spend: Some("mostly".into()),
        trust: Some("waits".into()),
        retry: Some("on".into()),
        ..Settings::default()
    };
    sources.flags = Settings {
        spend: Some("greedy".into()),
        retry: Some("off".into()),
        limits: vec!["b=1/s".into(), "c=1/s".into()],
        ..Settings::default()
    };
    let (config, warnings) = Config::load(&sources).unwrap();
    assert_eq!(warnings, []);
    let otherwise = (Spend::Greedy, Trust::Waits, None, false);
    assert_eq!((of(config.rules.unruled()), of(rule(&config, "c"))), (otherwise, otherwise));
    let own = (Spend::Mostly, Trust::Waits, Some(4 << 20), false);
    assert_eq!((of(rule(&config, "a")), of(rule(&config, "b"))), (own, own), "also where a flag has new limits");
}

#[test]
fn every_wrong_word_on_answers_says_where_what_and_what_instead() {
    for (text, expected) in [
        (
            "spend = 'all'",
            "`spend`: expected a way to spend a quota, found \"all\" | write \"mostly\", \"even\" or \"greedy\"",
        ),
        ("spend = true", "`spend`: expected a way to spend a quota, found true | write \"mostly\","),
        ("trust = 'API'", "`trust`: expected a level of trust, found \"API\" | write \"waits\", \"stricter\" or"),
        ("retry = 'never'", "`retry`: expected \"on\" or \"off\", found \"never\" | write \"on\" or \"off\""),
        ("retry = true", "`retry`: expected \"on\" or \"off\", found true | write \"on\" or \"off\""),
        ("retry = 3", "`retry`: expected \"on\" or \"off\", found \"3\" | write retry = { tries = 3 } in"),
        ("retry = '4MiB'", "`retry`: expected \"on\" or \"off\", found \"4MiB\" | write retry = { body = '4MiB' }"),
        ("retry = { bodies = '1MiB' }", "`retry.bodies`: unknown key | write `body`"),
        ("retry = { breaker = 'on' }", "`retry.breaker`: unknown key | write it under a [[rule]]"),
        (
            "retry = { body = 'big' }",
            "`retry.body`: expected a size, found \"big\" | write \"1MiB\", \"64KiB\" or \"0\"",
        ),
        (
            "retry = { body = 4096 }",
            "`retry.body`: expected a size, found \"4096\" | write \"4096B\" for bytes, \"4096KiB\" or",
        ),
        (
            "retry = { body = '1GiB' }",
            "`retry.body`: \"1GiB\" is too much to keep in memory for each request on its way | write at",
        ),
        ("breaker = 'yes'", "`breaker`: expected \"on\" or \"off\", found \"yes\" | write \"on\""),
        ("braker = 'on'", "`braker`: unknown key | write `breaker`"),
    ] {
        for (line, text) in [(1, text.to_owned()), (3, format!("[[rule]]\nhost = 'a'\n{text}\nin-flight = 1"))] {
            let said = problems(&text);
            assert!(
                said.starts_with(&format!("error: a.toml:{line}: {expected}")),
                "{text}\n{said}\nexpected {expected}"
            );
            assert_eq!(said.lines().count(), 1, "{text} is one mistake:\n{said}");
        }
    }
}

#[test]
fn wrong_flags_and_variables_on_answers_are_called_by_name() {
    let environment = Settings {
        spend: Some("all".into()),
        trust: Some("me".into()),
        retry: Some("1".into()),
        breaker: Some("maybe".into()),
        ..Settings::default()
    };
    let flags = Settings { retry: Some("4MiB".into()), breaker: Some("false".into()), ..Settings::default() };
    assert_eq!(
        said(&Config::load(&Sources { file: None, environment, flags }).unwrap_err()),
        "error: ANDANTE_BREAKER: expected \"on\" or \"off\", found \"maybe\" | write on or off\n\
         error: ANDANTE_RETRY: expected \"on\" or \"off\", found \"1\" | write on\n\
         error: ANDANTE_SPEND: expected a way to spend a quota, found \"all\" | write mostly, even or greedy\n\
         error: ANDANTE_TRUST: expected a level of trust, found \"me\" | write waits, stricter or api\n\
         error: --breaker: expected \"on\" or \"off\", found \"false\" | write off\n\
         error: --retry: expected \"on\" or \"off\", found \"4MiB\" | write retry = { body = '4MiB' } in a file, for the \
         bodies that are kept"
    );
}
