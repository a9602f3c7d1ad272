//! Claims about the keys for interception, gateways and the way to upstreams.

use std::path::PathBuf;

use super::*;
use crate::policy::{Https, Identity, Interception, Unlisted};

fn in_rule(text: &str) -> String {
    problems(&format!("[[rule]]\nhost = 'a'\n{text}"))
}

#[test]
fn every_key_of_the_way_out_is_heard() {
    let config = load(
        r#"
        intercept = ["api.example.com", "*.example.com:8443"]
        upstream-ca = "ca.pem"
        upstream-crl = ["crl.pem", "/etc/crl.pem"]
        dns = ["10.0.0.2:5353", "10.0.0.3"]
        data = "/var/lib/andante"
        [[gateway]]
        path = "/openai/"
        to = "https://api.openai.com"
        [[gateway]]
        path = "/other"
        to = "http://api.example.com:81/v1/"
        [[rule]]
        host = "a"
        https = "intercept"
        upstream = "https"
        via = "socks5h://me:s%40crate@corp"
        resolve = ["10.0.0.5", "10.0.0.6"]
        source = "10.0.0.9"
        sni = "B.example"
        client-cert = "me.pem"
        client-key = "/run/me.key"
        "#,
    );
    let hosts: Vec<String> = config.rules.interception().hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["api.example.com", "*.example.com:8443"]);
    assert!(config.rules.interception().others == Unlisted::Tunnel && config.rules.intercepts());
    assert_eq!(config.upstream_ca, [PathBuf::from("ca.pem")]);
    assert_eq!(config.upstream_crl, ["crl.pem", "/etc/crl.pem"].map(PathBuf::from));
    let servers = ["10.0.0.2:5353", "10.0.0.3:53"].map(|server| server.parse().unwrap());
    assert_eq!(config.dns, Dns::Servers(servers.into()));
    assert_eq!(config.data, Some("/var/lib/andante".into()));
    let routes = config.gateways.iter().map(|gateway| format!("{} {} {}", gateway.path, gateway.to, gateway.base));
    assert_eq!(routes.collect::<Vec<_>>(), ["/openai api.openai.com:443 ", "/other api.example.com:81 /v1"]);
    assert_eq!(config.gateways[1].to.scheme, Scheme::Http);
    let policy = rule(&config, "a");
    assert_eq!(policy.https, Some(Https::Intercept));
    let egress = &policy.egress;
    assert!(egress.secure);
    let parent = egress.via.as_ref().unwrap();
    assert_eq!(parent.to_string(), "socks5://corp:1080");
    assert_eq!(parent.credentials, Some(("me".into(), "s@crate".into())));
    assert_eq!(egress.resolve, ["10.0.0.5", "10.0.0.6"].map(|address| address.parse::<std::net::IpAddr>().unwrap()));
    assert_eq!((egress.source, egress.sni.as_deref()), (Some("10.0.0.9".parse().unwrap()), Some("b.example")));
    let identity = Identity { certificate: "me.pem".into(), key: "/run/me.key".into() };
    assert_eq!(egress.identity, Some(identity));
}

#[test]
fn every_wrong_value_says_where_what_and_what_instead() {
    for (text, expected) in [
        (
            "intercept = 'https://a:8443/'",
            "1: `intercept`: expected a host, found \"https://a:8443/\" | write \"a:8443\"",
        ),
        ("upstream-ca = ''", "1: `upstream-ca`: expected the name of a file, found \"\" | write"),
        ("upstream-crl = true", "1: `upstream-crl`: expected the name of a file, found true |"),
        ("data = []", "1: `data`: expected the name of a folder, found a list |"),
        ("dns = 'dns.example'", "1: `dns`: expected \"cached\", \"system\" or the address of a server, found \"dns.ex"),
        (
            "dns = ['system', '10.0.0.2']",
            "1: `dns[0]`: \"system\" makes what is beside it meaningless | write it alone",
        ),
        ("dns = []", "1: `dns`: expected at least one server, found an empty list | write \"cached\""),
        ("via = 'direct'", "1: `via`: unknown key | write it under a [[rule]]"),
        ("to = 'https://a'", "1: `to`: unknown key | write it under a [[gateway]]"),
        ("gateway = '/a'", "1: `gateway`: expected a list of tables, found \"/a\" | write [[gateway]] on a line"),
        ("[[gateway]]\nto = 'https://a'", "1: `path`: a gateway needs its `path` | write path = \"/openai\" below"),
        ("[[gateway]]\npath = '/a'", "1: `to`: a gateway needs its `to` | write to = \"https://api.openai.com\" below"),
        ("[[gateway]]\npath = 'a'\nto = 'https://a'", "2: `path`: expected a path, found \"a\" | write \"/a\""),
        (
            "[[gateway]]\npath = '/'\nto = 'https://a'",
            "2: `path`: a gateway cannot be all paths | write one of its own",
        ),
        ("[[gateway]]\npath = '/a'\nto = 'a'", "3: `to`: expected the URL of an API, found no URL | write \"https:"),
        (
            "[[gateway]]\npath = '/a'\nto = 'https://a'\nhost = 'b'",
            "4: `host`: unknown key | write it under a [[rule]]",
        ),
        (
            "[[gateway]]\npath = '/a'\nto = 'https://a'\n[[gateway]]\npath = '/a/'\nto = 'https://b'",
            "5: `path`: /a is a gateway already, at a.toml:2 | give each gateway a path of its own",
        ),
    ] {
        let said = problems(text);
        assert!(said.starts_with("error: a.toml:") && said.contains(expected), "{text}\n{said}\nexpected {expected}");
        assert_eq!(said.lines().count(), 1, "{text} is one mistake:\n{said}");
    }
}

#[test]
fn every_wrong_value_of_a_rule_says_where_what_and_what_instead() {
    for (text, expected) in [
        ("https = 'mitm'", "3: `https`: expected a way to handle CONNECT, found \"mitm\" | write \"turns\", "),
        ("upstream = 'tls'", "3: `upstream`: expected a scheme, found \"tls\" | write \"https\" or \"http\""),
        ("via = 'corp:3128'", "3: `via`: expected a parent proxy or \"direct\", found no URL | write \"http://corp.ex"),
        (
            "resolve = '10.0.0.5:443'",
            "3: `resolve`: expected an address without a port, found \"10.0.0.5:443\" | write",
        ),
        ("source = 'eth0'", "3: `source`: expected an address of this machine, without a port, found \"eth0\" | write"),
        ("sni = '*.a'", "3: `sni`: expected a host name, found \"*.a\" | write \"api.example.com\""),
        ("client-key = 'k'", "3: `client-key`: a key without its certificate is of no use | write client-cert = "),
        (
            "source = '10.0.0.9'\nresolve = ['10.0.0.5', 'fd00::5']",
            "4: `resolve[1]`: fd00::5 is IPv6 and cannot be reached from the `source` 10.0.0.9 | write an IPv4 address, or",
        ),
        (
            "source = 'fd00::9'\nvia = 'http://me:hunter2@10.0.0.1:3128'",
            "4: `via`: 10.0.0.1 is IPv4 and cannot be reached from the `source` fd00::9 | write an IPv6 address, or",
        ),
        ("client-cert = ''\nclient-key = 'k'", "3: `client-cert`: expected the name of a file, found \"\" | write"),
    ] {
        let said = in_rule(text);
        assert!(said.starts_with("error: a.toml:") && said.contains(expected), "{text}\n{said}\nexpected {expected}");
        assert_eq!(said.lines().count(), 1, "{text} is one mistake:\n{said}");
    }
    load("[[rule]]\nhost = 'a'\nsource = '10.0.0.9'\nvia = 'http://corp'\nresolve = '10.0.0.5'");
}

#[test]
fn a_rule_has_a_purpose_without_limits() {
    for text in ["https = 'refuse'", "upstream = 'https'", "via = 'direct'", "resolve = '10.0.0.5'", "sni = 'b'"] {
        assert_eq!(in_rule(text), "", "{text}");
    }
    for text in ["source = '10.0.0.9'", "client-cert = 'me.pem'", "allow-private = true"] {
        assert_eq!(in_rule(text), "", "{text}");
    }
    // Both also bound the queue behind a limit that answers report.
    for text in ["max-wait = '1s'", "max-waiting = 5"] {
        assert_eq!(in_rule(text), "", "{text}");
    }
    // `strict` applies to configured limits only.
    assert!(in_rule("strict = true").contains("this rule limits nothing"));
}

#[test]
fn files_are_named_from_the_folder_of_the_file_that_names_them() {
    let text = "upstream-ca = ['ca.pem', '/ca.pem']\ndata = 'state'\n[[rule]]\nhost = 'a'\nclient-cert = '../me.pem'";
    let mut sources = file(text);
    sources.file.as_mut().unwrap().path = "/etc/andante/a.toml".into();
    let (config, _) = Config::load(&sources).unwrap();
    assert_eq!(config.upstream_ca, ["/etc/andante/ca.pem", "/ca.pem"].map(PathBuf::from));
    assert_eq!(config.data, Some("/etc/andante/state".into()));
    let identity = rule(&config, "a").egress.identity.clone().unwrap();
    let both = PathBuf::from("/etc/andante/../me.pem");
    assert_eq!(identity, Identity { certificate: both.clone(), key: both });
    sources.flags.upstream_ca = vec!["ca.pem".into()];
    sources.environment.data = Some("state".into());
    let (config, _) = Config::load(&sources).unwrap();
    assert_eq!((config.upstream_ca, config.data), (vec!["ca.pem".into()], Some("state".into())));
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let mut sources = file("intercept = ['a', 'b']\nupstream-ca = 'a.pem'\ndata = '/a'");
    let found = |sources: &Sources| {
        let (config, warnings) = Config::load(sources).unwrap();
        assert!(warnings.is_empty(), "{}", said(&warnings));
        let hosts: Vec<String> = config.rules.interception().hosts.iter().map(ToString::to_string).collect();
        format!("{} {:?} {}", hosts.join(","), config.upstream_ca, config.data.unwrap().display())
    };
    assert_eq!(found(&sources), "a,b [\"a.pem\"] /a");
    sources.environment.intercept = vec!["c".into()];
    sources.environment.upstream_ca = vec!["b.pem".into(), "c.pem".into()];
    sources.environment.data = Some("/b".into());
    assert_eq!(found(&sources), "c [\"b.pem\", \"c.pem\"] /b");
    sources.flags.intercept = vec!["*".into(), "d:1".into()];
    sources.flags.upstream_ca = vec!["d.pem".into()];
    sources.flags.data = Some("/c".into());
    assert_eq!(found(&sources), "*,d:1 [\"d.pem\"] /c");
}

#[test]
fn wrong_flags_and_variables_are_called_by_name() {
    let mut sources = Sources::default();
    sources.flags.intercept = vec!["https://me:hunter2@a".into()];
    sources.flags.data = Some(String::new());
    sources.environment.intercept = vec!["a b".into()];
    sources.environment.upstream_ca = vec![" ".into()];
    assert_eq!(
        said(&Config::load(&sources).unwrap_err()),
        "error: ANDANTE_INTERCEPT: expected a host, found \"a b\" | write api.example.com, *.example.com, \
         api.example.com:8443 or *\n\
         error: ANDANTE_UPSTREAM_CA: expected the name of a file, found \" \" | write /etc/andante/ca.pem\n\
         error: --data: expected the name of a folder, found \"\" | write /var/lib/andante\n\
         error: --intercept: expected a host, found \"…@a\" | write the host alone, without user name and password, as in \
         api.example.com"
    );
}

#[test]
fn a_base_that_intercepts_goes_on_doing_so() {
    let others = Unlisted::InterceptLimited;
    let interception = Interception { hosts: vec!["x".parse().unwrap()], others };
    let base = || Config { rules: Rules::default().intercepting(interception.clone()), ..Config::default() };
    let found = |text: &str| Config::load_over(base(), &file(text)).unwrap().0.rules.interception().clone();
    assert_eq!(found("[[rule]]\nhost = 'a'\nin-flight = 1"), interception);
    let named = found("intercept = 'b'");
    assert_eq!((named.hosts, named.others), (vec!["b".parse().unwrap()], others));
}

#[test]
fn what_is_intercepted_by_default_can_be_narrowed_and_switched_off() {
    let all = || Interception { others: Unlisted::Intercept, ..Interception::default() };
    let base = || Config { rules: Rules::default().intercepting(all()), ..Config::default() };
    let found = |text: &str| Config::load_over(base(), &file(text)).unwrap().0.rules;
    let https = |rules: &Rules, host: &str| {
        let origin = Origin::parse(Scheme::Https, host, Some(443)).unwrap();
        rules.https(&origin, rules.policy_for(&origin))
    };
    let rules = "[[rule]]\nhost = 'limited'\nlimits = '1/s'\n[[rule]]\nhost = 'left'\nhttps = 'tunnel'\n\
                 [[rule]]\nhost = 'wanted'\nhttps = 'intercept'\n";
    for (said, hosts) in [
        ("", [("limited", true), ("left", false), ("wanted", true), ("named", true), ("any", true)]),
        ("intercept = []\n", [("limited", true), ("left", false), ("wanted", true), ("named", true), ("any", true)]),
        (
            "intercept = 'named'\n",
            [("limited", true), ("left", false), ("wanted", true), ("named", true), ("any", false)],
        ),
        (
            "intercept = 'none'\n",
            [("limited", false), ("left", false), ("wanted", true), ("named", false), ("any", false)],
        ),
    ] {
        let rules = found(&format!("{said}{rules}"));
        for (host, intercepted) in hosts {
            assert_eq!(https(&rules, host) == Https::Intercept, intercepted, "{said} {host}");
        }
    }
    assert!(found("").intercepts() && !found("intercept = 'none'").intercepts());
    let mut sources = file("intercept = 'named'");
    sources.flags.intercept = vec!["none".into()];
    assert_eq!(*Config::load(&sources).unwrap().0.rules.interception(), Interception::default());
    assert_eq!(
        problems("intercept = ['a', 'none']"),
        "error: a.toml:1: `intercept[1]`: \"none\" contradicts the hosts beside it | write \"none\" alone, or the \
         hosts without it"
    );
}

#[test]
fn hosts_with_limits_that_nobody_intercepts_are_paced_by_turns() {
    let rules = "[[rule]]\nhost = 'rated'\nlimits = '1/s'\n[[rule]]\nhost = 'narrow'\nin-flight = 2\n\
        [[rule]]\nname = 'each'\nhost = 'clients'\nkey = 'client'\nlimits = '1/s'\n\
        [[rule]]\nname = 'paths'\nhost = 'paths'\npath = '/search'\nlimits = '1/s'\n\
        [[rule]]\nhost = 'left'\nlimits = '1/s'\nhttps = 'tunnel'\n[[rule]]\nhost = 'asked'\nhttps = 'turns'\n\
        [[rule]]\nhost = 'refused'\nlimits = '1/s'\nhttps = 'refuse'\n";
    let rules = Config::load(&file(rules)).unwrap().0.rules;
    for (host, expected) in [
        ("rated", Https::Turns),
        ("narrow", Https::Turns),
        ("clients", Https::Turns),
        ("paths", Https::Tunnel),
        ("left", Https::Tunnel),
        ("asked", Https::Tunnel),
        ("refused", Https::Refuse),
        ("any", Https::Tunnel),
    ] {
        let origin = Origin::parse(Scheme::Https, host, Some(443)).unwrap();
        assert_eq!(rules.https(&origin, rules.policy_for(&origin)), expected, "{host}");
    }
}

#[test]
fn a_host_that_is_to_be_intercepted_and_not_is_noticed() {
    let tunnel = "[[rule]]\nhost = ['b', 'A.example']\nhttps = 'tunnel'";
    let said_of = |intercept: &str| problems(&format!("intercept = '{intercept}'\n{tunnel}"));
    assert_eq!(
        said_of("a.example"),
        "error: a.toml:1: `intercept`: a.example is to be intercepted, but https = \"tunnel\" at a.toml:4 | name the \
         hosts to intercept one by one, or leave `https` out of that rule"
    );
    assert_eq!(said_of("*.example"), "", "the rule is an exception from it");
    assert_eq!(said_of("a.example:8443"), "", "an exception from the rule");
    assert_eq!(problems(&format!("intercept = '*'\n{}", tunnel.replace("tunnel", "intercept"))), "");
    let mut sources = file(tunnel);
    sources.flags.intercept = vec!["b".into(), "a.example".into()];
    assert!(Config::load(&sources).unwrap().1.is_empty(), "a flag replaces the word of a file");
    let mut sources = file(&tunnel.replace("tunnel", "refuse"));
    sources.flags.intercept = vec!["b".into()];
    assert!(said(&Config::load(&sources).unwrap_err()).starts_with("error: --intercept: b is to be intercepted, but"));
}

#[test]
fn a_limit_of_a_host_keeps_its_way_out() {
    let text = "[[rule]]\nhost = ['a', 'b']\nhttps = 'intercept'\nvia = 'http://corp:3128'\nclient-cert = 'me.pem'";
    let (config, _) = Config::load(&layered(text, &[], &["a=6/s"])).unwrap();
    let [a, b] = ["a", "b"].map(|host| rule(&config, host));
    assert_eq!((a.https, &a.egress), (b.https, &b.egress));
    assert!(a.egress.identity.is_some() && a.limits.len() == 1 && b.limits.is_empty());
}

#[test]
fn passwords_are_shown_nowhere() {
    let sources = file("[[rule]]\nhost = 'a'\nvia = 'http://me:hunter2@corp:3128'");
    let (config, _) = Config::load(&sources).unwrap();
    assert_eq!(rule(&config, "a").egress.via.as_ref().unwrap().credentials.as_ref().unwrap().1, "hunter2");
    for shown in [format!("{config:?}"), format!("{sources:?}")] {
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117, 110, 116, 101, 114, 50"), "{shown}");
    }
    for text in [
        "[[rule]]\nhost = 'https://me:hunter2@a'",
        "[[rule]]\nhost = 'a'\nvia = 'https://me:hunter2@a'",
        "[[rule]]\nhost = 'a'\nvia = ['http://me:hunter2@a']",
        "[[rule]]\nhost = 'a'\nparent = 'http://me:hunter2@a'",
        "[[rule]]\nhost = 'a'\nstrict = 'http://me:hunter2@a'",
        "[[rule]]\nhost = 'a'\nvia = 'http://me:hunter2@a",
        "[[gateway]]\npath = '/a'\nto = 'https://me:hunter2@a'",
        "[[gateway]]\npath = 'https://me:hunter2@a'\nto = 'https://a'",
        "dns = 'http://me:hunter2@a'",
    ] {
        let said = problems(text);
        assert!(said.contains("error: ") && !said.contains("hunter2"), "{text}\n{said}");
    }
}

#[test]
fn a_check_looks_into_the_files_that_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
    let text = "upstream-ca = ['ca.pem', 'no.pem']\nupstream-crl = 'ca.pem'\n\n[[rule]]\nhost = ['a', 'b']\nlimits = '9'\n\
                client-cert = 'ca.pem'\n";
    let mut sources = layered(text, &[], &["a=1/s"]);
    sources.file.as_mut().unwrap().path = folder.path().join("a.toml");
    let all = said(&Config::check(&sources).problems).replace(folder.path().to_str().unwrap(), "");
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines[0].starts_with("error: /a.toml:1: `upstream-ca[1]`: /no.pem cannot be read: "), "{all}");
    assert!(lines[1].starts_with("error: /a.toml:2: `upstream-crl`: /ca.pem holds no list of revoked"), "{all}");
    assert!(lines[2].starts_with("error: /a.toml:6: `limits`: "), "{all}");
    assert!(lines[3].starts_with("error: /a.toml:7: `client-cert`: /ca.pem holds no private key |"), "{all}");
    assert_eq!(lines.len(), 4, "{all}");
    let missing = said(&Config::check(&file("[[rule]]\nhost = 'a'\nclient-cert = 'no.pem'")).problems);
    assert_eq!(missing.lines().count(), 1, "{missing}");
}
