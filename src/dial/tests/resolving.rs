use tokio::runtime::Builder;

use super::{
    super::servers::{ServerSettings, Servers},
    name_server::{Kind, NameAnswer, NameServer},
    *,
};

fn names(server: &NameServer) -> NameResolver {
    NameResolver::new(Dns::Servers(vec![server.address]), SECOND)
}

fn resolved(outcome: Result<Addresses, NotResolved>) -> Vec<IpAddr> {
    outcome.unwrap_or_else(|error| panic!("{error:?}")).list
}

#[tokio::test]
async fn an_answer_is_kept_for_as_long_as_it_says_and_no_longer() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(1, vec![LOCAL])).await;
    let names = names(&server);
    assert_eq!(resolved(names.resolve("api.example").await), [LOCAL]);
    assert_eq!(resolved(names.resolve("api.example").await), [LOCAL]);
    assert_eq!(server.asked("api.example", Kind::V4), 1);
    // hickory's cache reads the system's clock, so the test sleeps.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(resolved(names.resolve("api.example").await), [LOCAL]);
    assert_eq!(server.asked("api.example", Kind::V4), 2);
}

#[tokio::test]
async fn all_addresses_are_found_ipv6_first() {
    let all: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap(), LOCAL];
    let said = all.clone();
    let server = NameServer::start(move |_, _| NameAnswer::Addresses(60, said.clone())).await;
    assert_eq!(resolved(names(&server).resolve("api.example").await), [all[1], all[0], all[2]]);
}

#[tokio::test]
async fn r51_one_private_address_among_public_ones_refuses_them_all() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(60, vec!["192.0.2.1".parse().unwrap(), LOCAL])).await;
    let dialer = Dialer::new(SECOND, true, Vec::new(), Dns::Servers(vec![server.address]));
    let outcome = dialer.connect(&origin(Scheme::Http, "rebind.example", 80), &Egress::default(), false).await;
    assert!(matches!(outcome, Err(Error::Forbidden { kind: "loopback", .. })), "{outcome:?}");
}

#[tokio::test]
async fn r52_a_rule_may_allow_what_is_private() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(60, vec![LOCAL])).await;
    let (_upstream, port) = upstream().await;
    let dialer = Dialer::new(SECOND, true, Vec::new(), Dns::Servers(vec![server.address]));
    let origin = origin(Scheme::Http, "internal.example", port);
    assert!(matches!(dialer.connect(&origin, &Egress::default(), false).await, Err(Error::Forbidden { .. })));
    assert!(dialer.connect(&origin, &Egress::default(), true).await.is_ok());
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_a_502() {
    let server = NameServer::start(|_, _| NameAnswer::NoSuchName).await;
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::Servers(vec![server.address]));
    let error = dialer.connect(&origin(Scheme::Http, "no.example", 80), &Egress::default(), false).await.unwrap_err();
    assert_eq!((error.status().as_u16(), error.proxy_status()), (502, "dns_error"));
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(said, "there is no such name");
}

#[tokio::test]
async fn a_name_without_addresses_is_told_from_one_that_does_not_exist() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(60, Vec::new())).await;
    let outcome = names(&server).resolve("empty.example").await;
    assert!(matches!(&outcome, Err(NotResolved::Failed(error)) if error.to_string() == "the name has no address"));
}

#[tokio::test]
async fn silence_is_a_504_within_the_time_to_connect() {
    let server = NameServer::start(|_, _| NameAnswer::Silence).await;
    let patience = Duration::from_millis(300);
    let dialer = Dialer::new(patience, false, Vec::new(), Dns::Servers(vec![server.address]));
    let (origin, egress) = (origin(Scheme::Http, "silent.example", 80), Egress::default());
    let outcome = tokio::time::timeout(patience * 2, dialer.connect(&origin, &egress, false)).await;
    let error = outcome.expect("it gives up in time").unwrap_err();
    assert_eq!((error.status().as_u16(), error.proxy_status()), (504, "dns_timeout"));
}

#[tokio::test]
async fn a_server_that_fails_or_is_silent_has_a_deputy_who_is_remembered() {
    let silent = NameServer::start(|_, _| NameAnswer::Silence).await;
    let failing = NameServer::start(|_, _| NameAnswer::Failure).await;
    let good = NameServer::start(|_, _| NameAnswer::Addresses(60, vec![LOCAL])).await;
    let names = NameResolver::new(Dns::Servers([&silent, &failing, &good].map(|server| server.address).into()), SECOND);
    assert_eq!(resolved(names.resolve("a.example").await), [LOCAL]);
    let before = silent.asked_anything();
    assert_eq!(resolved(names.resolve("b.example").await), [LOCAL]);
    assert_eq!((silent.asked_anything(), good.asked("b.example", Kind::V4)), (before, 1));
}

#[tokio::test]
async fn the_first_server_has_the_last_word() {
    let first = NameServer::start(|_, _| NameAnswer::NoSuchName).await;
    let second = NameServer::start(|_, _| NameAnswer::Addresses(60, vec![LOCAL])).await;
    let names = NameResolver::new(Dns::Servers(vec![first.address, second.address]), SECOND);
    assert!(names.resolve("inside.example").await.is_err());
    assert_eq!(second.asked_anything(), 0);
}

#[tokio::test]
async fn a_server_without_a_word_on_ipv6_holds_nothing_up() {
    let server = NameServer::start(|_, kind| match kind {
        Kind::V4 => NameAnswer::Addresses(60, vec![LOCAL]),
        Kind::V6 => NameAnswer::Silence,
    });
    let server = server.await;
    let names = NameResolver::new(Dns::Servers(vec![server.address]), Duration::from_secs(60));
    let outcome = tokio::time::timeout(SECOND, names.resolve("a.example")).await;
    assert_eq!(resolved(outcome.expect("quickly")), [LOCAL]);
}

#[tokio::test]
async fn localhost_is_never_asked_for() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(60, vec!["192.0.2.1".parse().unwrap()])).await;
    for host in ["localhost", "api.localhost"] {
        let found = resolved(names(&server).resolve(host).await);
        assert!(found.iter().all(IpAddr::is_loopback) && found[0] == LOCAL, "{host}: {found:?}");
    }
    assert_eq!(server.asked_anything(), 0);
}

#[tokio::test]
async fn the_file_of_hosts_wins_for_both_kinds_of_address() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(60, vec!["2001:db8::1".parse().unwrap()])).await;
    let hosts = b"# ours\n127.0.0.1 localhost\n10.1.2.3 db.example db\nnonsense\n".to_vec();
    let servers = Servers::new(ServerSettings { hosts, ..ServerSettings::of(&[server.address]) }, SECOND);
    for host in ["db.example", "db"] {
        assert_eq!(resolved(servers.resolve(host).await), [IpAddr::from([10, 1, 2, 3])], "{host}");
    }
    assert_eq!(server.asked_anything(), 0);
}

#[tokio::test]
async fn short_names_are_searched_for_as_resolv_conf_says() {
    let server = NameServer::start(|name, _| match name {
        "api.prod.example" => NameAnswer::Addresses(60, vec![LOCAL]),
        _ => NameAnswer::NoSuchName,
    });
    let server = server.await;
    let conf = b"nameserver 192.0.2.53\nsearch test.example prod.example\noptions ndots:2 timeout:1 attempts:1\n";
    let settings = ServerSettings::parse(conf).unwrap();
    assert_eq!(settings.servers, ["192.0.2.53:53".parse().unwrap()]);
    let servers = Servers::new(ServerSettings { servers: vec![server.address], ..settings }, SECOND);
    assert_eq!(resolved(servers.resolve("api").await), [LOCAL]);
    assert_eq!(server.asked("api.test.example", Kind::V4), 1);
    // A name with two dots is tried unchanged first.
    assert!(servers.resolve("www.api.example").await.is_err());
    assert_eq!(server.asked("www.api.example", Kind::V4), 1);
}

/// Returns servers with the `resolv.conf` of a pod: each short name is tried in three domains first.
fn pod(server: &NameServer) -> Servers {
    let conf = b"nameserver 192.0.2.53\nsearch ns.svc.example svc.example example\noptions ndots:5\n";
    let settings = ServerSettings::parse(conf).unwrap();
    Servers::new(ServerSettings { servers: vec![server.address], ..settings }, Duration::from_secs(10))
}

#[tokio::test]
async fn nxdomain_for_ipv6_does_not_hide_the_ipv4_address_however_late_it_is() {
    for delay in [0, 5, 300] {
        let server = NameServer::start(move |_, kind| match kind {
            Kind::V6 => NameAnswer::NoSuchName,
            Kind::V4 => NameAnswer::After(Duration::from_millis(delay), NameAnswer::Addresses(60, vec![LOCAL]).into()),
        });
        let server = server.await;
        assert_eq!(resolved(names(&server).resolve("api.example").await), [LOCAL], "{delay} ms");
    }
}

#[tokio::test]
async fn nxdomain_for_ipv4_does_not_hide_the_ipv6_address() {
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let server = NameServer::start(move |_, kind| match kind {
        Kind::V4 => NameAnswer::NoSuchName,
        Kind::V6 => NameAnswer::After(Duration::from_millis(50), NameAnswer::Addresses(60, vec![v6]).into()),
    });
    let server = server.await;
    assert_eq!(resolved(names(&server).resolve("api.example").await), [v6]);
}

#[tokio::test]
async fn a_cached_nxdomain_for_ipv6_does_not_decide_when_the_ipv4_address_has_expired() {
    // hickory caches a negative answer only with an SOA record. The server sends none, so each look-up asks for IPv6.
    let server = NameServer::start(|name, kind| match (name, kind) {
        ("api.ns.svc.example", Kind::V4) => NameAnswer::Addresses(1, vec![LOCAL]),
        ("api.ns.svc.example", Kind::V6) => NameAnswer::Addresses(60, Vec::new()),
        _ => NameAnswer::NoSuchName,
    });
    let server = server.await;
    let servers = pod(&server);
    for asked in 1..=2 {
        assert_eq!(resolved(servers.resolve("api").await), [LOCAL]);
        assert_eq!(server.asked("api.ns.svc.example", Kind::V4), asked);
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    assert_eq!(server.asked("api.example", Kind::V4), 0, "the first candidate has an address");
}

#[tokio::test]
async fn both_types_of_address_are_of_the_same_candidate() {
    let other: IpAddr = "2001:db8::1".parse().unwrap();
    let server = NameServer::start(move |name, kind| match (name, kind) {
        ("api.ns.svc.example", Kind::V4) => NameAnswer::Addresses(60, vec![LOCAL]),
        ("api.ns.svc.example", Kind::V6) => NameAnswer::Addresses(60, Vec::new()),
        // A different host with the same short name.
        ("api.example", Kind::V6) => NameAnswer::Addresses(60, vec![other]),
        _ => NameAnswer::NoSuchName,
    });
    let server = server.await;
    assert_eq!(resolved(pod(&server).resolve("api").await), [LOCAL]);
}

#[tokio::test]
async fn a_candidate_that_fails_does_not_hide_the_next_one() {
    let server = NameServer::start(|name, _| match name {
        "api.example.com" => NameAnswer::Addresses(60, vec![LOCAL]),
        "api.example.com.svc.example" => NameAnswer::Failure,
        _ => NameAnswer::NoSuchName,
    });
    let server = server.await;
    assert_eq!(resolved(pod(&server).resolve("api.example.com").await), [LOCAL]);
}

#[tokio::test]
async fn no_answer_about_ipv4_leaves_the_name_to_the_next_server() {
    let first = NameServer::start(|_, kind| match kind {
        Kind::V4 => NameAnswer::Failure,
        Kind::V6 => NameAnswer::NoSuchName,
    });
    let first = first.await;
    let second = NameServer::start(|_, _| NameAnswer::Addresses(60, vec![LOCAL])).await;
    let names = NameResolver::new(Dns::Servers(vec![first.address, second.address]), SECOND);
    assert_eq!(resolved(names.resolve("api.example").await), [LOCAL]);
}

#[tokio::test]
async fn a_server_without_edns_is_asked_without_it_and_remembered() {
    let answer = || NameAnswer::Addresses(60, vec![LOCAL]);
    let format_error = NameServer::start(move |_, _| NameAnswer::WithoutEdns(answer().into())).await;
    let silent = NameServer::start(move |_, _| NameAnswer::SilentToEdns(answer().into())).await;
    for server in [format_error, silent] {
        let names = NameResolver::new(Dns::Servers(vec![server.address]), Duration::from_secs(10));
        assert_eq!(resolved(names.resolve("a.example").await), [LOCAL]);
        // hickory repeats an unanswered query.
        assert!(server.asked("a.example", Kind::V4) >= 2);
        assert_eq!(resolved(names.resolve("b.example").await), [LOCAL]);
        assert_eq!(server.asked("b.example", Kind::V4), 1, "it is known to understand no EDNS");
    }
}

#[tokio::test]
async fn addresses_are_reported_with_their_ttl_and_asked_for_again_after_it() {
    let server = NameServer::start(|_, _| NameAnswer::Addresses(1, vec![LOCAL])).await;
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::Servers(vec![server.address]));
    let (named, egress) = (origin(Scheme::Http, "api.example", 80), Egress::default());
    let found = dialer.addresses(&named, &egress).await.unwrap().unwrap();
    assert_eq!((found.list.as_slice(), found.ttl), ([LOCAL].as_slice(), SECOND));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(dialer.addresses(&named, &egress).await.unwrap().unwrap().contains(LOCAL));
    assert_eq!(server.asked("api.example", Kind::V4), 2);
}

#[tokio::test]
async fn literal_and_pinned_addresses_are_not_resolved_again() {
    let dialer = Dialer::new(SECOND, false, Vec::new(), Dns::Servers(Vec::new()));
    let pinned = Egress { resolve: vec![LOCAL], ..Egress::default() };
    assert!(dialer.addresses(&origin(Scheme::Http, "api.example", 80), &pinned).await.is_none());
    assert!(dialer.addresses(&origin(Scheme::Http, "127.0.0.1", 80), &Egress::default()).await.is_none());
}

#[test]
fn a_resolv_conf_without_servers_is_none() {
    assert!(ServerSettings::parse(b"search example.com\n").is_err());
}

#[test]
fn look_ups_go_on_when_another_thread_has_ended() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let servers = runtime();
    let server = servers.block_on(NameServer::start(|_, _| NameAnswer::Addresses(60, vec![LOCAL])));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let address = server.address;
    let thread = std::thread::spawn(move || servers.block_on(stopped));
    let names = NameResolver::new(Dns::Servers(vec![address]), SECOND);
    for host in ["a.example", "b.example", "a.example"] {
        assert_eq!(resolved(runtime().block_on(names.resolve(host))), [LOCAL], "{host}");
    }
    drop(server);
    let _ = stop.send(());
    let _ = thread.join();
}

#[test]
fn names_that_nobody_answers_for_hold_no_thread() {
    // With one blocking thread, an unanswered look-up by the system would block all others.
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let server = NameServer::start(|name, _| match name {
            "good.example" => NameAnswer::Addresses(60, vec![LOCAL]),
            _ => NameAnswer::Silence,
        });
        let server = server.await;
        let names = Arc::new(NameResolver::new(Dns::Servers(vec![server.address]), Duration::from_secs(60)));
        for number in 0..20 {
            let names = names.clone();
            tokio::spawn(async move { names.resolve(&format!("silent{number}.example")).await });
        }
        tokio::task::yield_now().await;
        let outcome = tokio::time::timeout(SECOND, names.resolve("good.example")).await;
        assert_eq!(resolved(outcome.expect("quickly")), [LOCAL]);
    });
}
