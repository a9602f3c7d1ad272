//! Claims about the precedence of sources, and their names in problems.

use super::*;

#[test]
fn an_unknown_variable_of_andante_is_an_error_and_one_of_kubernetes_is_not() {
    let names = [
        "ANDANTE_LIMITS",
        "ANDANTE_ACESS_LOG",
        "ANDANTE_MAX_WAIT",
        "ANDANTE_COLOUR",
        "ANDANTE_PORT",
        "ANDANTE_SERVICE_HOST",
        "ANDANTE_SERVICE_PORT_HTTP",
        "ANDANTE_PORT_3128_TCP",
        "ANDANTE_GATEWAY_PORT_3128_TCP_ADDR",
    ];
    let others = ["ANDANTE_LOG", "ANDANTE_CONFIG", "ANDANTE_STORE", "PATH"];
    let names = || names.into_iter().chain(others).map(str::to_owned);
    let variable = |name: &str| (name == "ANDANTE_PORT").then(|| "tcp://10.0.0.1:3128".to_owned());
    let sources = Sources { environment: Settings::from_environment(names(), variable), ..Sources::default() };
    let problems = Config::load(&sources).unwrap_err();
    assert_eq!(
        said(&problems),
        "error: ANDANTE_ACESS_LOG: andante knows no such variable | write ANDANTE_ACCESS_LOG\n\
         error: ANDANTE_LIMITS: andante knows no such variable | write ANDANTE_LIMIT=api.example.com=500/min\n\
         error: ANDANTE_MAX_WAIT: andante knows no such variable | no flag and no variable says that: \
         write max-wait = \"10m\" under a [[rule]] in a file, and start with --config FILE\n\
         warning: ANDANTE_COLOUR: andante knows no such variable | it says nothing; known are ANDANTE_LISTEN, \
         ANDANTE_ADMIN, ANDANTE_ADMIN_TOKEN, ANDANTE_THREADS, ANDANTE_MAX_MEMORY, ANDANTE_LOG_FORMAT, ANDANTE_ACCESS_LOG, ANDANTE_OTLP, ANDANTE_CLIENTS, \
         ANDANTE_INTERCEPT, ANDANTE_UPSTREAM_CA, ANDANTE_DATA, ANDANTE_STATE, ANDANTE_STORE, ANDANTE_LEASE, \
         ANDANTE_FLEET_SIZE, ANDANTE_STORE_DOWN, ANDANTE_FLOOR, ANDANTE_SPEND, ANDANTE_TRUST, ANDANTE_RETRY, ANDANTE_BREAKER, ANDANTE_LIMIT, ANDANTE_CONFIG, ANDANTE_LOG"
    );
    // A port variable of the user's own is not one of Kubernetes'.
    let own = |name: &str| (name == "ANDANTE_PORT").then(|| "3128".to_owned());
    let sources = Sources { environment: Settings::from_environment(names(), own), ..Sources::default() };
    assert!(said(&Config::load(&sources).unwrap_err()).contains("write ANDANTE_LISTEN=127.0.0.1:3128"));
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let mut sources = file("listen = '127.0.0.1:1'\nadmin = 'off'\nthreads = 1\nlog = 'json'");
    sources.environment.listen = vec!["127.0.0.1:2".into()];
    sources.environment.threads = Some("2".into());
    sources.environment.admin = Some("127.0.0.1:12".into());
    sources.flags.listen = vec!["127.0.0.1:3".into(), "127.0.0.1:4".into()];
    sources.flags.threads = Some("auto".into());
    let (config, _) = Config::load(&sources).unwrap();
    assert_eq!(config.listen.iter().map(|a| a.port()).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(config.admin.map(|a| a.port()), Some(12));
    assert_eq!((config.threads, config.log), (None, LogFormat::Json));
}

#[test]
fn limits_of_a_host_win_one_host_at_a_time() {
    let text = "[[rule]]\nhost = ['a', 'b']\nlimits = '1/s'\nmax-wait = '7s'\nstrict = true\n[[rule]]\nhost = 'c'\nname = 'sea'\n\
                limits = '2/s, in-flight 9'";
    let sources = layered(text, &["a=3/s", "c=4/s", "d=5/s"], &["a=6/s,in-flight 1", "*.e=7/s"]);
    let (config, warnings) = Config::load(&sources).unwrap();
    assert!(warnings.is_empty());
    let limit = |host: &str| rule(&config, host).limits[0].to_string();
    assert_eq!(["a", "b", "c", "d", "x.e"].map(limit), ["6/s strict", "1/s strict", "4/s", "5/s", "7/s"]);
    assert_eq!(rule(&config, "a").max_wait.as_secs(), 7, "what the flag does not speak of stays");
    assert_eq!(
        (&*rule(&config, "a").name, rule(&config, "a").in_flight.map(|n| n.to_string()).as_deref()),
        ("a", Some("1"))
    );
    assert_eq!(
        (&*rule(&config, "c").name, rule(&config, "c").in_flight.map(|n| n.to_string()).as_deref()),
        ("sea", Some("9"))
    );
}

#[test]
fn another_base_holds_where_nobody_says_otherwise() {
    let port = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let base = Config { listen: vec![port(0)], admin: Some(port(0)), ..Config::default() };
    let (config, _) = Config::load_over(base, &file("admin = '127.0.0.1:7'\n[timeouts]\nidle = '1s'")).unwrap();
    assert_eq!((config.listen, config.admin), (vec![port(0)], Some(port(7))));
    assert_eq!(config.timeouts, Timeouts { idle: Duration::from_secs(1), ..Timeouts::default() });
}

#[test]
fn wrong_flags_and_variables_are_called_by_name() {
    let mut sources = layered("", &["a"], &["a=500 a min", "b=1/s", "b=2/s"]);
    sources.flags.listen = vec!["localhost:1".into()];
    sources.environment.log = Some("xml".into());
    assert_eq!(
        said(&Config::load(&sources).unwrap_err()),
        "error: ANDANTE_LIMIT: expected HOST=LIMITS, found \"a\" | write api.example.com=10/s,500/min\n\
         error: ANDANTE_LOG_FORMAT: expected a log format, found \"xml\" | write text or json\n\
         error: --limit: expected a limit, found \"500 a min\" | write 500/min\n\
         error: --limit: b is named twice | write all its limits in one: b=1/s,2/s\n\
         error: --listen: expected an address, found \"localhost:1\" | write 127.0.0.1:1"
    );
    let mut wide = Sources::default();
    wide.flags.listen = vec!["0.0.0.0:3128".into()];
    assert!(said(&Config::load(&wide).unwrap_err()).starts_with("error: --listen: other machines can reach"));
}

#[test]
fn clients_are_named_by_file_variable_or_flag_alike() {
    let said = |clients: &str| Settings { clients: vec![clients.into()], ..Settings::default() };
    let by_flag = Sources { flags: said("10.0.0.0/8"), ..Sources::default() };
    let by_variable = Sources { environment: said("10.0.0.0/8"), ..Sources::default() };
    for sources in [by_flag, by_variable] {
        let (config, _) = Config::load(&sources).unwrap();
        assert_eq!(config.clients, Clients::Networks(vec!["10.0.0.0/8".parse().unwrap()]));
    }
    let wrong = Sources { flags: said("10.0.0.0/99"), ..Sources::default() };
    assert!(Config::load(&wrong).unwrap_err()[0].to_string().starts_with("--clients"));
}

#[test]
fn the_admin_address_is_found_whatever_else_is_wrong() {
    let port = |sources: &Sources| Config::admin_of(sources).map(|admin| admin.map(|address| address.port()));
    assert_eq!(port(&Sources::default()), Ok(Some(9128)));
    assert_eq!(port(&file("admin = '127.0.0.1:7'\nlisten = 'nowhere'")), Ok(Some(7)));
    assert_eq!(port(&file("admin = 'off'\n[[rule]]")), Ok(None));
    assert_eq!(port(&file("threads = 0")), Ok(Some(9128)));
    let mut stronger = file("no toml");
    assert!(said(&port(&stronger).unwrap_err()).starts_with("error: "));
    stronger.environment.admin = Some("127.0.0.1:8".into());
    assert_eq!(port(&stronger), Ok(Some(8)));
    let mut wrong = file("admin = 'nowhere'");
    assert_eq!(said(&port(&wrong).unwrap_err()).lines().count(), 1);
    wrong = Sources { flags: Settings { admin: Some("nowhere".into()), ..Settings::default() }, ..Sources::default() };
    assert!(said(&port(&wrong).unwrap_err()).starts_with("error: --admin: "));
}

#[test]
fn a_rule_without_an_error_is_told_from_one_with() {
    let text = "drain = 'soon'\n[[rule]]\nname = 'good'\nhost = 'a'\nlimits = [\n  '1/s',\n]\n\n[[rule]]\nhost = 'b'\n\
                limits = '500 a min'\n[[rule]]\nhost = 'c'\n[timeouts]\nidle = 1\n[[rule]]\nhost = 'a'\nlimits = '1/s'\n\
                [[rule]]\nhost = 'd'\nretry = { body = '1KiB' }\n[[rule]]\nhost = 'e'\n[rule.retry]\nbody = '9GiB'";
    let file = File { path: "a.toml".into(), content: Ok(text.into()) };
    let checked = Config::check(&Sources { file: Some(file), ..Sources::default() });
    assert!(!checked.is_good());
    let rules: Vec<_> = checked.rules.iter().map(|(name, good)| (&**name, *good)).collect();
    // The missing limit of `a` is a warning; the error is in the second rule for `a`.
    assert_eq!(rules, [("good", true), ("b", false), ("c", true), ("a", false), ("d", true), ("e", false)]);
}
