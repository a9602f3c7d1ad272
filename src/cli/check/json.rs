//! `andante check --json`: a contract, for scripts and editors.

use serde_json::{Value, json};

use crate::{
    config::{Checked, Diagnostic, Place, Severity},
    limit::InFlightLimit,
    policy::{Policy, Rules},
};

/// The problems, and andante's understanding of the rules.
pub(super) fn report(checked: &Checked) -> Value {
    let Checked { config, problems, rules } = checked;
    let errors = super::errors(problems);
    let good = |name: &str| rules.iter().all(|(rule, good)| **rule != *name || *good);
    json!({
        "good": checked.is_good(),
        "file": config.file.as_deref().map(super::super::describe::shown),
        "errors": errors,
        "warnings": problems.len() - errors,
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
        "rules": config.rules.iter().map(|policy| rule(policy, &config.rules, good(&policy.name))).collect::<Vec<_>>(),
    })
}

fn problem(problem: &Diagnostic) -> Value {
    let Diagnostic { severity, place, key, what, hint } = problem;
    let severity = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let (source, line, column) = match place {
        Place::Default => ("default".to_owned(), None, None),
        Place::File { name, at } => (name.to_string(), at.map(|(line, _)| line), at.map(|(_, column)| column)),
        Place::Variable(name) => (name.to_string(), None, None),
        Place::Flag(name) => ((*name).to_owned(), None, None),
    };
    json!({
        "severity": severity, "source": source, "line": line, "column": column, "key": key, "what": what, "hint": hint,
    })
}

fn rule(policy: &Policy, rules: &Rules, good: bool) -> Value {
    let texts = |items: Vec<String>| items;
    let mut report = json!({
        "name": &*policy.name,
        "good": good,
        "hosts": texts(policy.hosts.iter().map(ToString::to_string).collect()),
        "limits": texts(policy.written_limits()),
        "cost": policy.cost.as_ref().map(ToString::to_string),
        "usage": texts(policy.usage.iter().map(ToString::to_string).collect()),
        "in_flight": in_flight(policy.in_flight),
        "max_wait_s": policy.max_wait.as_secs_f64(),
        "max_waiting": policy.max_waiting,
    });
    if !policy.refused.is_empty() {
        report["refused"] = policy.refused.iter().map(ToString::to_string).collect();
    }
    if let Some(most) = &policy.max_cost {
        report["max_cost"] = most.to_string().into();
    }
    if policy.is_limited() {
        let mut ways: Vec<&str> = rules.https_of(policy).map(|(_, way)| way.as_str()).collect();
        ways.dedup();
        report["https"] = ways.into();
        report["keys_unseen_in_tunnels"] = policy.keys_unseen().into();
    }
    for (key, value) in super::super::describe::added(policy.added.as_ref()) {
        report[key] = value.into();
    }
    report
}

/// A number, or `auto`.
fn in_flight(limit: Option<InFlightLimit>) -> Value {
    limit
        .map_or(Value::Null, |limit| limit.fixed().map_or_else(|| limit.to_string().into(), |count| count.get().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, File, Sources};

    #[test]
    fn the_report_has_all_that_the_text_has() {
        let text = "[[rule]]\nname = 'good'\nhost = 'a'\nlimits = ['500/min', '9 points/s']\nin-flight = 3\ncost = 'points=2'\n\
                    usage = ['points=header:X-Used']\n[[rule]]\nhost = 'b'\nlimits = '500 a min'";
        let file = File { path: "a.toml".into(), content: Ok(text.into()) };
        let report = report(&Config::check(&Sources { file: Some(file), ..Sources::default() }));
        let expected = json!({
            "good": false, "file": "a.toml", "errors": 1, "warnings": 0,
            "problems": [{
                "severity": "error", "source": "a.toml", "line": 10, "column": 10, "key": "limits",
                "what": "expected a limit, found \"500 a min\"", "hint": "write \"500/min\"",
            }],
            "rules": [
                {"name": "good", "good": true, "hosts": ["a"], "limits": ["500/min", "9 points/s"], "cost": "points=2",
                 "usage": ["points=header:x-used"], "in_flight": 3,
                 "max_wait_s": 7200.0, "max_waiting": 100000, "https": ["turns"],
                 "keys_unseen_in_tunnels": ["cost", "usage"]},
                {"name": "b", "good": false, "hosts": ["b"], "limits": [], "cost": null, "usage": [], "in_flight": null,
                 "max_wait_s": 7200.0, "max_waiting": 100000},
            ],
        });
        assert_eq!(report, expected);
    }
}
