//! Differences between two configurations, key by key: for `andante check --diff`, and for the log of a reload.

mod order;

use std::fmt;

use self::order::Moved;
use super::{describe, wording};
use crate::{
    config::{Clients, Config, token_file},
    policy::Policy,
};

/// A difference between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigChange {
    /// Name of the rule, for a difference in a rule.
    pub(super) rule: Option<String>,
    pub(super) what: ConfigDifference,
    /// The change needs a restart.
    pub(super) restart: bool,
}

/// Kind of the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigDifference {
    /// A new rule.
    RuleAdded,
    /// A removed rule.
    RuleRemoved,
    /// A key with another value; `None` if the key is missing.
    Key { key: String, old: Option<String>, new: Option<String> },
}

/// A key and its value, as text.
type KeyRow = (String, String);

/// Keys that need a restart to change.
const AT_START: [&str; 16] = [
    "listen",
    "admin",
    "threads",
    "max-memory",
    "log",
    "access-log",
    "otlp",
    "data",
    "state",
    "store",
    "lease",
    "in-flight-hold",
    "fleet-size",
    "store-down",
    "timeouts.upstream-keep-alive",
    "timeouts.upstream-max-age",
];

/// Differences of `new` from `old`: common keys first, then those of rules, in their order.
pub(super) fn between(old: &Config, new: &Config) -> Vec<ConfigChange> {
    let mut of_all: Vec<_> = rows(&common(old), &common(new)).collect();
    let other_store = old.fleet.store != new.fleet.store;
    of_all.extend(unshown(&of_all, "store", "one user name, password or part behind #", other_store));
    let mut changes: Vec<ConfigChange> = of_all
        .into_iter()
        .map(|what| {
            let restart = matches!(&what, ConfigDifference::Key { key, .. } if AT_START.contains(&key.as_str()));
            ConfigChange { rule: None, what, restart }
        })
        .collect();
    let found = |config: &Config, name: &str| config.rules.iter().find(|rule| *rule.name == *name).cloned();
    let change = |rule: &Policy, what| ConfigChange { rule: Some(rule.name.to_string()), what, restart: false };
    let mut moved = order::moved(old, new);
    for rule in new.rules.iter() {
        match found(old, &rule.name) {
            None => changes.push(change(rule, ConfigDifference::RuleAdded)),
            Some(before) => {
                let mut differs: Vec<ConfigDifference> = rows(&of_rule(&before), &of_rule(rule)).collect();
                let other_way = before.egress.via != rule.egress.via;
                differs.extend(unshown(&differs, "via", "one user name and password", other_way));
                if let Some(Moved { old, new }) = moved.remove(&*rule.name) {
                    differs.push(ConfigDifference::Key { key: "place".to_owned(), old: Some(old), new: Some(new) });
                }
                changes.extend(differs.into_iter().map(|what| change(rule, what)));
            }
        }
    }
    let gone = old.rules.iter().filter(|rule| found(new, &rule.name).is_none());
    changes.extend(gone.map(|rule| change(rule, ConfigDifference::RuleRemoved)));
    changes
}

/// The keys whose values differ.
fn rows(old: &[KeyRow], new: &[KeyRow]) -> impl Iterator<Item = ConfigDifference> {
    let value = |rows: &[KeyRow], key: &str| rows.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let changed = |(key, now): &KeyRow| {
        let old = value(old, key);
        (old.as_ref() != Some(now)).then(|| ConfigDifference::Key { key: key.clone(), old, new: Some(now.clone()) })
    };
    let removed = |(key, before): &KeyRow| {
        let what = ConfigDifference::Key { key: key.clone(), old: Some(before.clone()), new: None };
        value(new, key).is_none().then_some(what)
    };
    let all: Vec<ConfigDifference> = new.iter().filter_map(changed).chain(old.iter().filter_map(removed)).collect();
    all.into_iter()
}

/// Reports a hidden difference in the value of `key`: this `part` of the value `differs`, but is never shown. Skipped
/// if `told` already reports a change of the key.
fn unshown(told: &[ConfigDifference], key: &str, part: &str, differs: bool) -> Option<ConfigDifference> {
    let is_told = told.iter().any(|what| matches!(what, ConfigDifference::Key { key: told, .. } if told == key));
    let [old, new] = [part, "another"].map(|text| Some(text.to_owned()));
    (differs && !is_told).then(|| ConfigDifference::Key { key: key.to_owned(), old, new })
}

/// Keys outside of rules.
fn common(config: &Config) -> Vec<KeyRow> {
    let timeouts = &config.timeouts;
    let time = |key: &str, value| (key.to_owned(), wording::duration(value));
    let text = |key: &str, value: String| (key.to_owned(), value);
    let mut rows = vec![
        text("listen", describe::listed(&config.listen, "none")),
        text("admin", config.admin.map_or_else(|| "off".to_owned(), |address| address.to_string())),
        text("admin-token", config.admin_token.as_deref().map_or_else(|| "none".to_owned(), token_file::shown)),
        text("clients", clients(&config.clients)),
        text("threads", config.threads.map_or_else(|| "auto".to_owned(), |count| count.to_string())),
        text("max-memory", describe::max_memory(config.max_memory)),
        text("identity", format!("{:?}", config.identity).to_lowercase()),
        text("log", format!("{:?}", config.log).to_lowercase()),
        text("access-log", describe::access_log(config.access_log.as_ref())),
        text("otlp", describe::otlp(config.otlp.as_ref())),
        time("drain", config.drain),
        text("intercept", describe::listed(&config.rules.interception().hosts, "none")),
        text("upstream-ca", describe::authorities(&config.upstream_ca)),
        text("upstream-crl", describe::files(&config.upstream_crl)),
        text("dns", describe::resolver(&config.dns)),
        text("data", config.data.as_deref().map_or_else(|| "the user's own folder for it".to_owned(), describe::shown)),
        text("state", describe::state(&config.state)),
        text("store", describe::store(&config.fleet)),
        time("lease", config.fleet.lease),
        time("in-flight-hold", config.fleet.in_flight_hold),
        text("fleet-size", config.fleet.size.map_or_else(|| "none".to_owned(), |size| size.to_string())),
        text("store-down", describe::store_down(config.fleet.down)),
        time("timeouts.connect", timeouts.connect),
        time("timeouts.answer", timeouts.answer),
        time("timeouts.idle", timeouts.idle),
        time("timeouts.head", timeouts.head),
        time("timeouts.keep-alive", timeouts.keep_alive),
        time("timeouts.upstream-keep-alive", timeouts.upstream_keep_alive),
        time("timeouts.upstream-max-age", timeouts.upstream_max_age),
    ];
    rows.extend(on_answers(config.rules.unruled()));
    let gateway = |gateway: &crate::policy::Gateway| (format!("gateway {}", gateway.path), describe::route(gateway));
    rows.extend(config.gateways.iter().map(gateway));
    rows
}

fn clients(clients: &Clients) -> String {
    match clients {
        Clients::Loopback => "this machine".to_owned(),
        Clients::Networks(networks) => describe::listed(networks, "this machine"),
        Clients::Any => "any".to_owned(),
    }
}

fn of_rule(rule: &Policy) -> Vec<KeyRow> {
    let text = |key: &str, value: String| (key.to_owned(), value);
    let mut rows = vec![
        text("host", describe::listed(&rule.hosts, "none")),
        text("limits", describe::listed(&rule.written_limits(), "none")),
        text("in-flight", rule.in_flight.map_or_else(|| "unbounded".to_owned(), |count| count.to_string())),
        text("max-wait", wording::duration(rule.max_wait)),
        text("max-waiting", rule.max_waiting.to_string()),
        text("patience", describe::patience(rule).to_owned()),
        text("margin", describe::margin(rule.margin)),
        text("allow-private", rule.allow_private.to_string()),
    ];
    rows.extend(describe::cost(rule).map(|cost| text("cost", cost)));
    rows.extend(rule.max_cost.iter().map(|most| text("max-cost", most.to_string())));
    rows.push(text("read-body", describe::read_body(rule)));
    rows.push(text("usage", describe::listed(&rule.usage, "none")));
    rows.extend(describe::added(rule.added.as_ref()).into_iter().map(|(key, value)| text(key, value)));
    rows.extend(rule.https.map(|https| text("https", describe::https(https).to_owned())));
    rows.extend(describe::turns(&rule.turns).into_iter().map(|(key, value)| text(key, value)));
    rows.extend(describe::sharing(rule).into_iter().map(|(key, value)| text(key, value)));
    rows.extend(describe::egress(&rule.egress).into_iter().map(|(key, value)| text(key, value)));
    rows.extend(on_answers(rule));
    rows
}

fn on_answers(policy: &Policy) -> [KeyRow; 4] {
    [
        ("spend".to_owned(), policy.spend.as_str().to_owned()),
        ("trust".to_owned(), policy.trust.as_str().to_owned()),
        ("retry".to_owned(), describe::again(policy.retry)),
        ("breaker".to_owned(), if policy.breaker { "on" } else { "off" }.to_owned()),
    ]
}

// === impl ConfigChange ===

impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, what, restart } = self;
        match (rule, what) {
            (Some(rule), ConfigDifference::RuleAdded) => write!(f, "+ rule {rule}")?,
            (Some(rule), ConfigDifference::RuleRemoved) => write!(f, "- rule {rule}")?,
            (rule, ConfigDifference::Key { key, old, new }) => {
                f.write_str("~ ")?;
                if let Some(rule) = rule {
                    write!(f, "rule {rule}: ")?;
                }
                let said =
                    |value: &Option<String>| value.clone().filter(|text| !text.is_empty()).unwrap_or("none".to_owned());
                write!(f, "{key}: {} → {}", said(old), said(new))?;
            }
            (None, ConfigDifference::RuleAdded | ConfigDifference::RuleRemoved) => {}
        }
        if *restart { f.write_str(" (needs a restart)") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{File, Sources};

    fn config(text: &str) -> Config {
        let file = File { path: "a.toml".into(), content: Ok(text.as_bytes().to_vec()) };
        Config::load(&Sources { file: Some(file), ..Sources::default() }).unwrap().0
    }

    fn lines(old: &str, new: &str) -> Vec<String> {
        between(&config(old), &config(new)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_and_keys_that_differ_are_named_with_both_values() {
        let old = "drain = '30s'\n[[rule]]\nhost = 'a'\nlimits = '500/min'\n[[rule]]\nhost = 'gone'\nin-flight = 1\n";
        let new = "drain = '60s'\nlisten = '127.0.0.1:1'\n[[gateway]]\npath = '/o'\nto = 'https://b'\n\
                   [[rule]]\nhost = 'a'\nlimits = '1000/min'\nweights = 'live=3'\nvia = 'http://corp:3128'\n\
                   [[rule]]\nhost = 'new'\nin-flight = 1\n";
        assert_eq!(
            lines(old, new),
            [
                "~ listen: 127.0.0.1:3128 → 127.0.0.1:1 (needs a restart)",
                "~ drain: 30 s → 1 min 0 s",
                "~ gateway /o: none → /o is https://b:443",
                "~ rule a: limits: 500/min → 1000/min",
                "~ rule a: weights: none → live=3",
                "~ rule a: via: none → http://corp:3128",
                "+ rule new",
                "- rule gone",
            ]
        );
    }

    #[test]
    fn the_same_configuration_has_no_changes() {
        let text = "[[rule]]\nhost = 'a'\nlimits = '500/min, 10/s'\nretry = 'off'\n";
        assert_eq!(lines(text, &format!("# a comment\n{text}")), [""; 0]);
    }

    #[test]
    fn rules_for_some_requests_that_change_places_are_told() {
        let rule = |name: &str| format!("[[rule]]\nname = '{name}'\nhost = 'a'\nmethod = 'GET'\nlimits = '9/s'\n");
        let of = |names: &[&str]| names.iter().map(|name| rule(name)).collect::<String>();
        let told = |old: &[&str], new: &[&str]| lines(&of(old), &of(new));
        assert_eq!(told(&["x", "y"], &["y", "x"]), ["~ rule y: place: behind x → before x"]);
        assert_eq!(told(&["x", "y", "z"], &["z", "x", "y"]), ["~ rule z: place: behind y → before x"]);
        assert_eq!(
            told(&["v", "w", "x", "y", "z"], &["x", "y", "z", "v", "w"]),
            ["~ rule v: place: before w → behind z"],
            "w stays behind v"
        );
        // New and removed rules move no other rule, and the order of rules for whole hosts is irrelevant.
        assert_eq!(told(&["x", "gone", "y"], &["new", "x", "y"]), ["+ rule new", "- rule gone"]);
        let [b, c] = ["b", "c"].map(|host| format!("[[rule]]\nhost = '{host}'\nlimits = '9/s'\n"));
        assert_eq!(lines(&format!("{b}{}{c}", rule("x")), &format!("{c}{b}{}", rule("x"))), [""; 0]);
    }

    #[test]
    fn another_password_is_a_change_and_is_not_shown() {
        let rule = |password: &str, more: &str| {
            format!("[[rule]]\nhost = 'a'\nvia = 'http://me:{password}@corp:3128'\n{more}")
        };
        let via = "~ rule a: via: one user name and password → another";
        assert_eq!(lines(&rule("hunter2", ""), &rule("hunter3", "")), [via]);
        let limited = lines(&rule("hunter2", ""), &rule("hunter3", "limits = '9/s'"));
        assert_eq!(limited, ["~ rule a: limits: none → 9/s", via], "beside other changes");
        let store = |login: &str| format!("store = 'redis://{login}s:6379'\n");
        assert_eq!(
            lines(&store("u:hunter2@"), &store("u:hunter3@")),
            ["~ store: one user name, password or part behind # → another (needs a restart)"]
        );
        let first = ["~ store: redis://s:6379 → redis://…@s:6379 (needs a restart)"];
        assert_eq!(lines(&store(""), &store("u:hunter2@")), first);
    }

    #[test]
    fn what_another_rule_says_of_costs_is_no_other_password() {
        let own = "[[rule]]\nhost = 'a'\nlimits = '10 hits/s'\n";
        let other = "[[rule]]\nhost = 'b'\nlimits = '9/s, 9 hits/s'\ncost = 'hits=3'\n";
        let told = lines(own, &format!("{own}{other}"));
        assert_eq!(told, ["+ rule b"]);
        let told = lines(own, &format!("{own}cost = 'hits=2'"));
        assert_eq!(told, ["~ rule a: cost: hits=1, as nothing says it → hits=2"]);
    }
}
