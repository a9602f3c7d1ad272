//! Checks that limits also apply to HTTPS. Pure.

use super::Finding;
use crate::policy::{Https, Rules};

const NAME: &str = "HTTPS";

/// Handling of HTTPS to limited hosts, one finding for each way.
pub(super) fn findings(rules: &Rules) -> Vec<Finding> {
    let limited = || rules.iter().filter(|rule| rule.is_limited());
    let hosts = |way: Https| {
        let found = limited().flat_map(|rule| rules.https_of(rule)).filter(|(_, handled)| *handled == way);
        // Several rules may match the same host.
        let mut hosts: Vec<String> = Vec::new();
        for host in found.map(|(host, _)| host.to_string()) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        (!hosts.is_empty()).then(|| hosts.join(", "))
    };
    let detail = |way: Https, hosts: String| format!("{hosts}: {}", way.meaning());
    let see = "to see them: --intercept HOST and `eval \"$(andante env)\"`, `andante run`, or a gateway address";
    let mut found = Vec::new();
    found.extend(hosts(Https::Intercept).map(|hosts| Finding::ok(NAME, detail(Https::Intercept, hosts))));
    found.extend(
        hosts(Https::Turns)
            .map(|hosts| Finding { hint: Some(see.to_owned()), ..Finding::ok(NAME, detail(Https::Turns, hosts)) }),
    );
    let hint = "take https = \"tunnel\" out of the rule, or intercept the host: --intercept HOST";
    found.extend(hosts(Https::Tunnel).map(|hosts| Finding::not_ok(NAME, detail(Https::Tunnel, hosts), hint)));
    for rule in rules.iter() {
        let keys = rule.keys_unseen();
        if !keys.is_empty() && rules.https_of(rule).any(|(_, way)| matches!(way, Https::Tunnel | Https::Turns)) {
            let verb = if keys.len() == 1 { "is" } else { "are" };
            let detail = format!("the rule {}: {} {verb} not seen inside tunnels", rule.name, keys.join(", "));
            found.push(Finding::not_ok(NAME, detail, see));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, File, Sources};

    fn found(toml: &str) -> Vec<(bool, String)> {
        let file = File { path: "a.toml".into(), content: Ok(toml.into()) };
        let (config, _) = Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
        findings(&config.rules).into_iter().map(|found| (found.ok, found.detail)).collect()
    }

    #[test]
    fn limited_host_that_is_only_tunnelled_is_not_ok() {
        let rule = |more: &str| found(&format!("[[rule]]\nhost = 'a.test'\nlimits = '10/s'\n{more}"));
        assert_eq!(
            rule("https = 'tunnel'"),
            [(false, "a.test: tunnelled: each tunnel takes one slot, requests inside are not paced".to_owned())]
        );
        assert_eq!(rule("https = 'intercept'"), [(true, "a.test: intercepted".to_owned())]);
        let turns = "a.test: paced by turns (refusals, paths, costs are not seen)".to_owned();
        assert_eq!(rule(""), [(true, turns.clone())]);
        let unseen = (false, "the rule a.test: cost is not seen inside tunnels".to_owned());
        assert_eq!(rule("cost = 'requests=2'").last(), Some(&unseen));
        assert_eq!(found("[[rule]]\nhost = 'a.test'\n"), []);
        let two = "[[rule]]\nname = 'x'\nhost = 'a.test'\npath = '/x/*'\nlimits = '10/s'\n\
                   [[rule]]\nhost = 'a.test'\nlimits = '10/s'\nhttps = 'turns'\n";
        let both = found(two);
        assert!(both[0].1.starts_with("a.test: paced by turns"), "{both:?}");
    }
}
