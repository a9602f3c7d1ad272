//! Claims about presets. Each preset's file names the provider's page.

use super::{load, problems, rule};
use crate::config::value::preset::PRESETS;

/// Limits and usage of a rule with this preset, and `more`.
fn preset(name: &str, more: &str) -> (Vec<String>, Vec<String>) {
    let config = load(&format!("[[rule]]\nhost = 'a.test'\npreset = '{name}'\n{more}"));
    let rule = rule(&config, "a.test");
    let in_flight = rule.in_flight.map(|limit| format!("in-flight {limit}"));
    let limits = rule.written_limits().into_iter().chain(in_flight);
    (limits.collect(), rule.usage.iter().map(ToString::to_string).collect())
}

#[test]
fn a_preset_says_what_its_provider_does() {
    let github = preset("github-graphql", "");
    assert_eq!(github.0, ["2000/min", "5000 points/h burst 500", "in-flight 100"]);
    assert_eq!(github.1, ["points=cost"]);
    // A query may cost 1,000 points, so no window may be smaller.
    assert_eq!(
        preset("shopify", ""),
        (vec!["1000 points/10s burst 100".into()], vec!["points=actualQueryCost".into()])
    );
    let limits = "limits = ['50/min', '8000 output-tokens/min burst 1']";
    let (limits, usage) = preset("anthropic", limits);
    assert_eq!(limits, ["50/min", "8000 output-tokens/min"]);
    let input = ["input-tokens=input_tokens", "input-tokens=cache_creation_input_tokens"];
    assert_eq!(usage, [input[0], input[1], "output-tokens=output_tokens"]);
    assert_eq!(preset("openai", "limits = '9 tokens/min'").1[0], "tokens=total_tokens");
}

#[test]
fn what_a_rule_says_itself_holds_in_the_place_of_its_preset() {
    let (limits, usage) = preset("shopify", "limits = '5/s, 9 points/s'\nusage = 'points=header:x-points'");
    assert_eq!((limits, usage), (vec!["5/s".into(), "9 points/s".into()], vec!["points=header:x-points".into()]));
    let (limits, _) = preset("github-graphql", "in-flight = 7");
    assert_eq!(limits.last().unwrap(), "in-flight 7");
}

#[test]
fn a_preset_is_no_configuration_and_says_how_it_is_used() {
    for known in PRESETS {
        let said = problems(known.text);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("this is a preset for rules, and no configuration"), "{said}");
        assert!(said.contains(&format!("| write preset = \"{}\" in a [[rule]]", known.name)), "{said}");
    }
}

#[test]
fn every_preset_is_read_and_a_slip_is_told() {
    for known in PRESETS {
        let said = problems(&format!("[[rule]]\nhost = 'a.test'\npreset = '{}'\nlimits = '5/s'", known.name));
        assert_eq!(said, "");
        assert!(known.text.contains("# https://"), "{}: the page it is from", known.name);
    }
    let said = problems("[[rule]]\nhost = 'a.test'\npreset = 'closedai'\nlimits = '5/s'");
    assert!(said.contains("expected the name of a preset, found \"closedai\" | write \"openai\""), "{said}");
    let said = problems("[[rule]]\nhost = 'a.test'\npreset = 'openai'");
    assert!(said.contains("this rule limits nothing"), "{said}");
    let said = problems("[[rule]]\nhost = 'a.test'\npath = '/graphql'\npreset = 'shopify'");
    assert!(said.contains("`preset` is a matter of a whole host"), "{said}");
}
