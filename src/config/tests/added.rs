//! Rules for some of a host's requests.

use super::{load, problems};
use crate::policy::{Origin, Scheme};

const HOST: &str = "[[rule]]\nhost = 'a.test'\nlimits = '100/s'\n";

#[test]
fn such_a_rule_stands_beside_the_hosts_own() {
    let config = load(&format!(
        "{HOST}[[rule]]\nhost = 'a.test'\nmethod = 'POST'\npath = '/search'\nlimits = '5/s'\nonly = true"
    ));
    let origin = Origin::parse(Scheme::Http, "a.test", Some(80)).unwrap();
    assert_eq!(&*config.rules.find(&origin).unwrap().name, "a.test");
    let added: Vec<_> = config.rules.added(&origin).map(|rule| rule.name.to_string()).collect();
    assert_eq!(added, ["a.test POST /search"]);
    assert!(config.rules.added(&origin).all(|rule| rule.added.as_ref().unwrap().only));
    let other = Origin::parse(Scheme::Http, "b.test", Some(80)).unwrap();
    assert_eq!(config.rules.added(&other).count(), 0);
}

#[test]
fn a_file_without_such_keys_has_none() {
    let config = load("[[rule]]\nhost = '*'\nlimits = '10/s'\n[[rule]]\nhost = 'a.test'\nlimits = '100/s'");
    let origin = Origin::parse(Scheme::Http, "a.test", Some(80)).unwrap();
    assert_eq!(&*config.rules.find(&origin).unwrap().name, "a.test", "and nothing of the other one holds");
    assert_eq!(config.rules.added(&origin).count(), 0);
}

#[test]
fn what_such_a_rule_may_not_say_is_told() {
    for (text, what) in [
        ("host = 'a.test'\nmethod = 'post'\nlimits = '5/s'", "write \"POST\""),
        ("host = 'a.test'\npath = 'search'\nlimits = '5/s'", "a path begins with /"),
        ("host = 'a.test'\npath = '/a'\nlimits = '5/s'\nhttps = 'intercept'", "`https` is a matter of a whole host"),
        ("host = 'a.test'\npath = '/a'\nlimits = '5/s'\nretry = 'off'", "`retry` is a matter of a whole host"),
        (
            "host = 'a.test'\npath = '/a'\nlimits = '5/s'\nkey = 'path:tenant'",
            "no segment of the rule's path is called tenant",
        ),
        ("host = '*.test'\nlimits = '5/s'\nkey = 'header:authorization'", "several hosts cannot share a budget"),
        ("host = 'a.test'\nlimits = '5/s'\nkey = 'cookie'", "none of host, method"),
        ("host = 'b.test'\nlimits = '5/s'\nonly = true", "the only one already"),
        ("name = 'a.test'\nhost = 'a.test'\npath = '/a'\nlimits = '5/s'", "is the name of another rule already"),
    ] {
        let told = problems(&format!("{HOST}[[rule]]\n{text}"));
        assert!(told.contains(what), "{text}: {told}");
    }
}

#[test]
fn a_key_may_have_hosts_of_a_pattern_apart() {
    let config = load("[[rule]]\nhost = '*.test'\nlimits = '5/s'\nkey = ['host', 'header:authorization']");
    assert_eq!(config.rules.iter().next().unwrap().added.as_ref().unwrap().key.len(), 2);
}

#[test]
fn an_unset_wait_of_a_path_rule_never_beats_the_hosts() {
    let path = |key: &str| format!("[[rule]]\nhost = 'a'\npath = '/x'\nlimits = '1/min'\n{key}\n");
    let host = "[[rule]]\nhost = 'a'\nlimits = '9/s'\nmax-wait = '3h'\nmax-waiting = 500000\n";
    let waits = |text: &str| {
        let config = load(text);
        let rule = config.rules.iter().find(|rule| rule.added.is_some()).unwrap().clone();
        (rule.max_wait.as_secs(), rule.max_waiting)
    };
    assert_eq!(waits(&format!("{host}{}", path(""))), (3 * 3600, 500_000));
    assert_eq!(waits(&format!("{}{host}", path("max-wait = '5s'"))), (5, 500_000), "a value that is set counts");
    assert_eq!(waits(&path("")), (7200, 100_000));
    let other = host.replace("'a'", "'b'");
    assert_eq!(waits(&format!("{other}{}", path(""))), (7200, 100_000), "that is another host's");
}
