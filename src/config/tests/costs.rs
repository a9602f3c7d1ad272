//! Claims about costs in rules.

use super::{load, problems, rule};

fn said(keys: &str) -> String {
    problems(&format!("[[rule]]\nhost = 'a.test'\nlimits = ['9/s', '900 tokens/min']\n{keys}"))
}

#[test]
fn a_length_needs_answers_that_tell_or_what_a_byte_is() {
    assert_eq!(
        said("cost = 'tokens=length'"),
        "error: a.toml:4: `cost`: cannot learn tokens per byte: no `usage` reads tokens from answers | \
         write usage = [\"tokens=MEMBER\"], or say what a byte is: \"tokens=length*0.25\""
    );
    for good in ["cost = 'tokens=length*0.25'", "cost = 'tokens=length'\nusage = 'tokens=n'"] {
        assert_eq!(said(good), "");
    }
    // For narrower rules, the host's own rule reads the usage.
    let narrower = "[[rule]]\nhost = 'a.test'\nmethod = 'POST'\ncost = 'tokens=length'";
    assert_eq!(said(&format!("usage = 'tokens=n'\n{narrower}")), "");
    assert!(
        said(&format!("cost = 'tokens=5'\n{narrower}")).starts_with("error: a.toml:8: `cost`: cannot learn tokens")
    );
    let wrong = said("cost = 'points=length*2, tokens=1'");
    assert!(wrong.starts_with("error: a.toml:4: `cost`: no limit counts points | write limits = "), "{wrong}");
    let config = load("[[rule]]\nhost = 'a'\npreset = 'openai'\nlimits = '9 tokens/s'\ncost = 'tokens=length'");
    assert_eq!(rule(&config, "a").cost.as_ref().unwrap().to_string(), "tokens=length");
}

#[test]
fn largest_stated_cost_names_units_that_limits_count() {
    assert_eq!(said("max-cost = 5\ncost = 'tokens=1'"), "");
    assert_eq!(
        said("max-cost = 'points=5'\ncost = 'tokens=1'"),
        "error: a.toml:4: `max-cost`: no limit counts points | write max-cost = \"requests=N\", or leave it out"
    );
    let alone = problems("[[rule]]\nhost = 'a.test'\nlimits = '900 tokens/min'\nmax-cost = 500\ncost = 'tokens=1'");
    assert!(alone.ends_with("no limit counts requests | write max-cost = \"tokens=N\", or leave it out"), "{alone}");
    // Of a unit that another rule for the host counts, a rule for some requests may say it.
    let some = "cost = 'tokens=1'\n[[rule]]\nhost = 'a.test'\npath = '/x'\nmax-cost = 'tokens=500'";
    assert_eq!(said(some), "");
    assert!(said("max-cost = 0\ncost = 'tokens=1'").contains("from 1"));
}

#[test]
fn what_stands_in_bodies_needs_that_they_are_read() {
    let cost = "cost = 'tokens=body:max_tokens'";
    assert_eq!(
        said(cost),
        "error: a.toml:4: `cost`: bodies are not read before their requests leave | write read-body = \"8KiB\" into the \
         rule of the host: so much is read before a request waits"
    );
    assert_eq!(said(&format!("{cost}\nread-body = '8KiB'")), "");
    assert_eq!(
        said(&format!("read-body = '8KiB'\ncost = 'tokens=5'\n[[rule]]\nhost = 'a.test'\npath = '/x'\n{cost}")),
        ""
    );
    let narrow = said("cost = 'tokens=5'\n[[rule]]\nhost = 'a.test'\npath = '/x'\nread-body = '8KiB'");
    assert!(narrow.contains("`read-body` is a matter of a whole host"), "{narrow}");
}

#[test]
fn rules_that_hold_together_count_three_units_at_most() {
    let rule = |name: &str, host: &str, keys: &str| format!("[[rule]]\nname = '{name}'\nhost = '{host}'\n{keys}\n");
    let own = |host: &str| rule("own", host, "limits = '9/s, 9 a/s, 9 b/s, 9 c/s'\ncost = 'a=1, b=1, c=1'");
    let narrow = |host: &str| rule("n", host, "path = '/q'\nlimits = '9/s, 9 d/s, 9 a/s'\ncost = 'd=1, a=1'");
    let refused = "error: a.toml:7: `name`: a request may cost 4 units besides requests: a, b, c by the rule \"own\", d by the \
                   rule \"n\" | have the rules that hold for one host count 3 of them at most";
    for (host, narrower) in [
        ("a.test", "a.test"),
        ("*.test", "a.test"),
        ("a.test", "*"),
        ("*.a.test", "*.test"),
        ("a.test:1", "a.test"),
        ("*", "*:1"),
    ] {
        assert_eq!(problems(&(own(host) + &narrow(narrower))), refused, "{host} {narrower}");
    }
    for (host, narrower) in [
        ("a.test", "b.test"),
        ("*.a.test", "a.test"),
        ("a.test:1", "a.test:2"),
        ("a.test", "*.b.test"),
        ("*.a.test", "*.b.test"),
    ] {
        assert_eq!(problems(&(own(host) + &narrow(narrower))), "", "{host} {narrower}");
    }
    // Among a host's own rules, the most specific one holds.
    let of_all = rule("all", "*", "limits = '9 e/s'\ncost = 'e=1'");
    assert_eq!(problems(&(own("a.test") + &of_all)), "");
    assert_eq!(problems(&(of_all.clone() + &narrow("*") + &own("a.test"))).matches("error").count(), 1);
    let two = narrow("a.test") + &rule("m", "b.test", "path = '/q'\nlimits = '9 f/s, 9 g/s'\ncost = 'f=1, g=1'");
    assert_eq!(problems(&(of_all + &two)), "", "no request is for both hosts");
    let split = ["a", "b", "c", "d"]
        .map(|unit| rule(unit, "a.test", &format!("path = '/{unit}/*'\nlimits = '9 {unit}/s'\ncost = '{unit}=1'")));
    assert_eq!(problems(&split.concat()), "", "no request is for two of these paths");
    let alone =
        problems(&rule("own", "a.test", "limits = '9 a/s, 9 b/s, 9 c/s, 9 d/s'\nusage = ['a=w', 'b=x', 'c=y', 'd=z']"));
    assert!(
        alone.starts_with("error: a.toml:2: `name`: a request may cost 4 units besides requests: a, b, c, d by"),
        "{alone}"
    );
}
