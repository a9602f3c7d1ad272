//! Claims about whole configurations.

use std::{io, net::SocketAddr, num::NonZeroUsize, time::Duration};

use super::*;
use crate::{
    limit::{InFlightLimit, MarginSpec},
    policy::{Origin, Policy, Rules, Scheme},
};

mod added;
mod answers;
mod costs;
mod files;
mod fleet;
mod presets;
mod reserve;
mod schema;
mod sources;
mod turns;
mod upstreams;

fn file(text: &str) -> Sources {
    let content = Ok(text.as_bytes().to_vec());
    Sources { file: Some(File { path: "a.toml".into(), content }), ..Sources::default() }
}

fn load(text: &str) -> Config {
    let (config, warnings) = Config::load(&file(text)).unwrap_or_else(|problems| panic!("{}", said(&problems)));
    assert!(warnings.is_empty(), "{}", said(&warnings));
    config
}

/// All problems of a file, one line each: the problem, then the hint.
fn problems(text: &str) -> String {
    said(&Config::load(&file(text)).map(|(_, warnings)| warnings).unwrap_or_else(|problems| problems))
}

fn said(problems: &[Diagnostic]) -> String {
    let line = |problem: &Diagnostic| {
        let severity = if problem.is_error() { "error" } else { "warning" };
        format!("{severity}: {problem} | {}", problem.hint.as_deref().unwrap_or("-"))
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn rule<'a>(config: &'a Config, host: &str) -> &'a Policy {
    config.rules.find(&Origin::parse(Scheme::Https, host, Some(443)).unwrap()).unwrap()
}

fn layered(text: &str, environment: &[&str], flags: &[&str]) -> Sources {
    let settings = |limits: &[&str]| Settings {
        limits: limits.iter().map(|limit| (*limit).to_owned()).collect(),
        ..Settings::default()
    };
    Sources { environment: settings(environment), flags: settings(flags), ..file(text) }
}

#[test]
fn nothing_said_means_the_defaults() {
    assert_eq!(Config::load(&Sources::default()).unwrap(), (Config::default(), Vec::new()));
    assert_eq!(load(""), Config { file: Some("a.toml".into()), ..Config::default() });
}

#[test]
fn every_key_is_heard() {
    let config = load(
        r#"
        listen = ["127.0.0.1:1", "[::1]:1"]
        admin = "off"
        threads = 3
        log = "json"
        clients = ["10.0.0.0/8", "192.168.1.7"]
        drain = "1m30s"
        [timeouts]
        connect = "1s"
        answer = "2s"
        idle = "3s"
        head = "4s"
        keep-alive = "5s"
        upstream-keep-alive = "6s"
        upstream-max-age = "7s"
        [[rule]]
        name = "search"
        host = ["api.example.com", "*.example.org:8443"]
        limits = ["500/min", "10/s burst 3"]
        in-flight = 20
        max-wait = "10m"
        max-waiting = 7
        margin = "20ms"
        strict = true
        allow-private = true
        "#,
    );
    assert_eq!(config.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
    assert_eq!((config.admin, config.threads, config.log), (None, NonZeroUsize::new(3), LogFormat::Json));
    let networks = vec!["10.0.0.0/8".parse().unwrap(), "192.168.1.7/32".parse().unwrap()];
    assert_eq!(config.clients, Clients::Networks(networks));
    assert_eq!(config.drain.as_secs(), 90);
    let Timeouts { connect, answer, idle, head, keep_alive, upstream_keep_alive, upstream_max_age } = config.timeouts;
    let all = [connect, answer, idle, head, keep_alive, upstream_keep_alive, upstream_max_age]
        .map(|timeout| timeout.as_secs());
    assert_eq!(all, [1, 2, 3, 4, 5, 6, 7]);
    let search = rule(&config, "x.example.org:8443");
    assert_eq!(&*search.name, "search");
    let limits: Vec<String> = search.limits.iter().map(ToString::to_string).collect();
    assert_eq!(limits, ["500/min burst 500 strict", "10/s burst 3 strict"]);
    assert_eq!((search.in_flight.unwrap().to_string().as_str(), search.max_waiting), ("20", 7));
    assert_eq!((search.max_wait.as_secs(), search.allow_private), (600, true));
    assert_eq!(search.margin, MarginSpec::Fixed(Duration::from_millis(20)));
}

#[test]
fn a_single_value_needs_no_brackets_and_a_rule_no_name() {
    let config =
        load("listen = '127.0.0.1:7'\nclients = 'any'\n[[rule]]\nhost = ['API.a', 'b']\nlimits = '5/s, in-flight 2'");
    assert_eq!(config.clients, Clients::Any);
    assert_eq!(&*rule(&config, "b").name, "API.a, b");
    assert_eq!(rule(&config, "api.a").in_flight.unwrap().to_string(), "2");
}

#[test]
fn in_flight_may_be_found_out() {
    for text in ["in-flight = 'auto'", "limits = ['5/s', 'in-flight auto']"] {
        let config = load(&format!("[[rule]]\nhost = 'a'\n{text}"));
        assert_eq!(rule(&config, "a").in_flight, Some(InFlightLimit::Auto), "{text}");
    }
    let said = problems("[[rule]]\nhost = 'a'\nlimits = '5/s, in-flight automatic'");
    let expected = "3: `limits`: expected a limit, found \"in-flight automatic\" | write how many at once, as in \
                    \"in-flight 20\", or \"in-flight auto\"";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_form_of_the_contract() {
    let text = "# 1\n\n\n\n[[rule]]\nhost = 'a'\nlimits = [\"500 a min\"]\n";
    assert_eq!(
        problems(text),
        "error: a.toml:7: `limits[0]`: expected a limit, found \"500 a min\" | write \"500/min\""
    );
    let all = Config::load(&file(text)).unwrap_err();
    assert_eq!(all[0].place, Place::File { name: "a.toml".into(), at: Some((7, 11)) });
}

#[test]
fn every_wrong_value_says_where_what_and_what_instead() {
    for (text, expected) in [
        ("listen = 3128", "1: `listen`: expected an address, found \"3128\" | write \"127.0.0.1:3128\""),
        ("listen = []", "1: `listen`: expected at least one address, found an empty list | write \"127.0.0.1:3128\""),
        (
            "listen = ['127.0.0.1:1', true]",
            "1: `listen[1]`: expected an address, found true | write \"127.0.0.1:3128\"",
        ),
        (
            "admin = 'on'",
            "1: `admin`: expected an address or \"off\", found \"on\" | write \"127.0.0.1:9128\" or \"off\"",
        ),
        ("admin = false", "1: `admin`: expected an address or \"off\", found false | write"),
        ("threads = 0", "1: `threads`: expected a number of threads or \"auto\", found \"0\" | write 4 or \"auto\""),
        ("threads = 5000", "found \"5000\" | write at most 1024"),
        ("threads = 1.5", "found 1.5 | write 4"),
        ("log = 'xml'", "1: `log`: expected a log format, found \"xml\" | write \"text\" or \"json\""),
        ("clients = ['10.0.0.0/33']", "1: `clients[0]`: expected a network or \"any\", found \"10.0.0.0/33\" | write"),
        ("clients = ['10.1.0.0/8']", "1: `clients[0]`: \"10.1.0.0/8\" has bits set beyond its prefix | write"),
        ("clients = ['any', '10.0.0.0/8']", "1: `clients[0]`: \"any\" makes the networks beside it meaningless |"),
        ("drain = 30", "1: `drain`: expected a duration, found \"30\" | write \"30s\" or \"30ms\""),
        ("drain = 'soon'", "1: `drain`: expected a duration, found \"soon\" | write"),
        ("drain = {}", "1: `drain`: expected a duration, found a table | write"),
        ("[timeouts]\nconnect = '0s'", "2: `timeouts.connect`: expected a duration above 0, found \"0s\" | "),
        ("timeouts = 3", "1: `timeouts`: expected a table, found 3 | write [timeouts] on a line of its own"),
        (
            "[rule]\nhost = 'a'",
            "1: `rule`: expected a list of tables, found a table | write [[rule]] on a line of its own",
        ),
        ("rule = ['a']", "1: `rule[0]`: expected a table, found \"a\" | write [[rule]]"),
        ("lisen = 1", "1: `lisen`: unknown key | write `listen`"),
        ("colour = 1", "1: `colour`: unknown key | known here: listen, admin,"),
        ("max-wait = '1s'", "1: `max-wait`: unknown key | write it under a [[rule]]"),
        ("idle = '1s'", "1: `idle`: unknown key | write it under [timeouts]"),
        ("[timeouts]\nlisten = '127.0.0.1:1'", "2: `timeouts.listen`: unknown key | write it above the first table"),
        ("[timeouts]\nkeep_alive = '1s'", "2: `timeouts.keep_alive`: unknown key | write `keep-alive`"),
    ] {
        let said = problems(text);
        assert!(said.starts_with("error: a.toml:") && said.contains(expected), "{text}\n{said}\nexpected {expected}");
        assert_eq!(said.lines().count(), 1, "{text} is one mistake:\n{said}");
    }
}

#[test]
fn every_wrong_rule_says_where_what_and_what_instead() {
    for (text, expected) in [
        ("host = 'a b'\nlimits = '1/s'", "2: `host`: expected a host, found \"a b\" | write \"api.example.com\""),
        (
            "host = ['a', 'http://b/']\nlimits = '1/s'",
            "2: `host[1]`: expected a host, found \"http://b/\" | write \"b\"",
        ),
        (
            "limits = '1/s'",
            "1: `host`: a rule needs at least one host | write host = \"api.example.com\" below [[rule]]",
        ),
        ("host = []\nlimits = '1/s'", "1: `host`: a rule needs at least one host |"),
        ("host = 'a'\nlimits = 5", "3: `limits`: expected a limit, found \"5\" | write \"5/s\", \"5/min\""),
        ("host = 'a'\nlimits = [['5/s']]", "3: `limits[0]`: expected a limit, found a list | write \"500/min\""),
        ("host = 'a'\nlimit = '1/s'\nin-flight = 1", "3: `limit`: unknown key | write `limits`"),
        (
            "host = 'a'\nin-flight = 0",
            "3: `in-flight`: expected a whole number from 1, or \"auto\", found \"0\" | write at least 1",
        ),
        (
            "host = 'a'\nin-flight = -1",
            "3: `in-flight`: expected a whole number from 1, or \"auto\", found \"-1\" | write 20",
        ),
        (
            "host = 'a'\nlimits = '1/s, in-flight 2'\nin-flight = 1",
            "3: `limits`: in-flight is said twice | write it once",
        ),
        (
            "host = 'a'\nlimits = '1/s'\nmax-wait = 7200",
            "4: `max-wait`: expected a duration, found \"7200\" | write \"7200s\"",
        ),
        (
            "host = 'a'\nlimits = '1/s'\nmax-waiting = 'all'",
            "4: `max-waiting`: expected a whole number, found \"all\" |",
        ),
        (
            "host = 'a'\nlimits = '1/s'\nmargin = 'some'",
            "4: `margin`: expected a duration or \"auto\", found \"some\" |",
        ),
        (
            "host = 'a'\nlimits = '1/s'\nstrict = 'yes'",
            "4: `strict`: expected true or false, found \"yes\" | write true or",
        ),
        ("host = 'a'\nlimits = '1/s'\nallow-private = 1", "4: `allow-private`: expected true or false, found 1 |"),
        ("host = 'a'\nlimits = '1/s'\nname = ''", "4: `name`: expected a name, found \"\" | write 1 to 200 bytes"),
    ] {
        let said = problems(&format!("[[rule]]\n{text}"));
        assert!(said.starts_with("error: a.toml:") && said.contains(expected), "{text}\n{said}\nexpected {expected}");
        assert_eq!(said.lines().count(), 1, "{text} is one mistake:\n{said}");
    }
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_lines() {
    let said = problems(
        "listen = '1'\nadmin = 'on'\ncolour = 'red'\n[timeouts]\nidle = 1\n[[rule]]\nhost = ''\nlimits = ['1/s', '2', '3']\n\
         [[rule]]\nlimits = 'x'",
    );
    let places: Vec<&str> = said.lines().map(|line| line.split("`: ").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "error: a.toml:1: `listen",
            "error: a.toml:2: `admin",
            "error: a.toml:3: `colour",
            "error: a.toml:5: `timeouts.idle",
            "error: a.toml:7: `host",
            "error: a.toml:8: `limits[1]",
            "error: a.toml:8: `limits[2]",
            "error: a.toml:9: `host",
            "error: a.toml:10: `limits",
        ]
    );
}

#[test]
fn a_host_belongs_to_one_rule() {
    let twice = "[[rule]]\nhost = 'API.a'\nin-flight = 1\n\n[[rule]]\nhost = ['b', 'api.A.']\nin-flight = 1\n";
    assert_eq!(
        problems(twice),
        "error: a.toml:6: `host[1]`: api.a has a rule already, at a.toml:2 | write all limits of a host into one rule"
    );
    let same = "[[rule]]\nhost = 'a'\nin-flight = 1\n[[rule]]\nhost = 'a'\nin-flight = 1\n";
    assert_eq!(problems(same).lines().count(), 1);
    load("[[rule]]\nhost = 'a'\nin-flight = 1\n[[rule]]\nhost = 'a:8443'\nin-flight = 1\n");
}

#[test]
fn a_name_belongs_to_one_rule() {
    let said = problems("[[rule]]\nhost = 'a'\nin-flight = 1\n[[rule]]\nhost = 'b'\nname = 'a'\nin-flight = 1\n");
    assert!(
        said.starts_with("error: a.toml:6: `name`: \"a\" is the name of another rule already, at a.toml:1 |"),
        "{said}"
    );
}

#[test]
fn addresses_must_not_collide() {
    for (text, expected) in [
        ("listen = '127.0.0.1:9128'", "1: `listen`: listen and admin are both 127.0.0.1:9128 |"),
        ("admin = '127.0.0.1:3128'", "1: `admin`: listen and admin are both 127.0.0.1:3128 |"),
        ("listen = ['127.0.0.1:1', '127.0.0.1:1']", "1: `listen[1]`: 127.0.0.1:1 is listened on already |"),
        (
            "clients = 'any'\nlisten = ['127.0.0.1:1', '0.0.0.0:1']",
            "2: `listen[1]`: 0.0.0.0:1 is listened on already |",
        ),
    ] {
        let said = problems(text);
        assert!(said.starts_with("error:") && said.contains(expected), "{text}\n{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    load("listen = ['127.0.0.1:0', '127.0.0.1:0']\nadmin = '127.0.0.1:0'");
}

#[test]
fn listening_beyond_loopback_needs_clients() {
    for text in ["listen = '0.0.0.0:3128'", "listen = '[::]:3128'\nclients = []", "listen = '[::ffff:10.0.0.1]:3128'"] {
        let said = problems(text);
        assert!(said.contains("nothing says which of them may"), "{said}");
        assert!(said.contains("clients = [\"10.0.0.0/8\"]") && said.contains("[\"any\"]"), "{said}");
    }
    load("listen = '0.0.0.0:3128'\nclients = ['10.0.0.0/8']");
    load("listen = '0.0.0.0:3128'\nclients = ['any']");
    // The mistake is reported, but not its consequences.
    assert_eq!(problems("listen = '0.0.0.0:3128'\nclients = ['10.0.0/8']").lines().count(), 1);
}

#[test]
fn warnings_do_not_stop_andante_and_are_told_apart() {
    for (text, expected) in [
        ("[[rule]]\nhost = 'a'", "warning: a.toml:1: this rule limits nothing | write limits = [\"500/min\"] or"),
        (
            "[[rule]]\nhost = 'a'\nlimits = ['1/s']\nrevalidate = 'always'",
            "warning: a.toml:4: `revalidate`: nothing is stored without `cache` | write cache = \"64MiB\", or",
        ),
        ("admin = '0.0.0.0:9128'", "warning: a.toml:1: `admin`: any client that reaches 0.0.0.0:9128 sees metrics"),
        (
            "[[rule]]\nhost = 'a'\nlimits = '9/s'\nmargin = '2s'",
            "warning: a.toml:4: `margin`: a margin of 2s is as long as",
        ),
        (
            "[[rule]]\nhost = 'a'\nlimits = ['9/s', '1000 tokens/min']",
            "warning: a.toml:1: nothing says how many tokens a request takes: it takes none, unless it has \
             Andante-Cost | write usage = [\"tokens=MEMBER\"] for what answers say, or cost = \"tokens=N\"",
        ),
        (
            "[[rule]]\nhost = 'a'\npreset = 'anthropic'\nlimits = ['9/s', '6000 tokens/min']",
            "warning: a.toml:1: nothing says how many tokens a request takes",
        ),
    ] {
        let (_, warnings) = Config::load(&file(text)).unwrap();
        assert!(said(&warnings).starts_with(expected), "{}", said(&warnings));
    }
    assert_eq!(problems("drain = 1\n[[rule]]\nhost = 'a'").lines().count(), 2, "errors and warnings together");
}

#[test]
fn a_unit_that_answers_tell_of_is_counted_by_a_limit() {
    let rule = |usage: &str| format!("[[rule]]\nhost = 'a'\nlimits = ['9/s', '1000 tokens/min']\nusage = '{usage}'");
    let said = problems(&rule("token=total_tokens"));
    assert!(said.contains("error: a.toml:4: `usage`: no limit counts token | "), "{said}");
    let (_, warnings) = Config::load(&file(&rule("tokens=total_tokens"))).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let tenants = "[[rule]]\nhost = 'a'\npath = '/v1/*'\nname = 'v1'\nlimits = '500 tokens/min'";
    let (_, warnings) = Config::load(&file(&format!("{}\n{tenants}", rule("tokens=total_tokens")))).unwrap();
    assert!(warnings.is_empty(), "the rule of the host says it: {warnings:?}");
}

/// Costs of a host do not apply to another host.
#[test]
fn rules_of_other_hosts_do_not_say_what_requests_take() {
    let own = "[[rule]]\nhost = 'a'\nlimits = '10 tokens/s'\n";
    let body = "cost = 'tokens=body:max_tokens'\n";
    let other = "[[rule]]\nhost = 'b'\nlimits = '9 tokens/s'\nread-body = '8KiB'\nusage = 'tokens=total_tokens'\n";
    let (_, warnings) = Config::load(&file(&format!("{own}{other}"))).unwrap();
    assert!(said(&warnings).contains("a.toml:1: nothing says how many tokens a request takes: each counts as 1"));
    let problem = problems(&format!("{own}{body}{other}"));
    assert!(problem.contains("error: a.toml:4: `cost`: bodies are not read before their requests leave"), "{problem}");
    let narrower = "[[rule]]\nhost = '*.b'\npath = '/x'\nlimits = '1/s'\ncost = 'tokens=5'\n";
    assert!(problems(&format!("{own}{narrower}")).contains("no limit counts tokens"));
}

#[test]
fn files_that_are_no_toml() {
    let text = problems("listen = '127.0.0.1:1'\nadmin = \n\n[[rule]\nhost = 'a'");
    assert!(text.starts_with("error: a.toml:2: not TOML: "), "{text}");
    assert!(text.contains("error: a.toml:4: not TOML: "), "{text}");
    let text = problems("admin = 'off'\nadmin = 'off'");
    assert!(text.starts_with("error: a.toml:2: not TOML: duplicate key"), "{text}");
    let latin1 =
        Sources { file: Some(File { path: "a.toml".into(), content: Ok(b"\n# \xe9".to_vec()) }), ..Sources::default() };
    let all = Config::load(&latin1).unwrap_err();
    assert!(said(&all).starts_with("error: a.toml:2: not UTF-8 |"), "{all:?}");
    let content = Err(io::Error::from(io::ErrorKind::NotFound));
    let missing = Sources { file: Some(File { path: "a.toml".into(), content }), ..Sources::default() };
    let all = Config::load(&missing).unwrap_err();
    assert!(said(&all).starts_with("error: a.toml: cannot be read: "), "{all:?}");
}
