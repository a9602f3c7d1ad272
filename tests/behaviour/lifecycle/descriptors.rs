//! Without descriptors andante neither spins nor dies.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use andante::clock::{Clock, Instant};
use rustix::process::{Resource, Rlimit, prlimit};

use super::{pass, quiet};
use crate::support::{
    Andante, Client, Name, NameServer, Upstream, eventually, rejected,
    tls::{Authority, Server, TRUSTED},
};

/// Number of descriptors of 64 that clients can have: an eighth is reserved for their upstream connections.
const FOR_CLIENTS: usize = 56;

fn open(andante: &Andante) -> usize {
    fs::read_dir(format!("/proc/{}/fd", andante.pid().as_raw_nonzero())).unwrap().count()
}

/// Takes the descriptors that clients cannot have as well, so that none is free.
fn leave_none(andante: &Andante) {
    let all = Some(open(andante) as u64);
    prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: all, maximum: Some(64) }).unwrap();
}

#[test]
fn out_of_descriptors_it_rests_and_then_goes_on() {
    const FEW: usize = 64;
    let (upstream, mut andante) = (Upstream::ok(), Andante::serve(&[]));
    let host = upstream.address();
    let mut early = Client::connect(andante.proxy());
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    early.send(&request);
    assert_eq!(early.answer().status(), 200);

    let limit = Rlimit { current: Some(FEW as u64), maximum: Some(FEW as u64) };
    prlimit(Some(andante.pid()), Resource::Nofile, limit).unwrap();
    let crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(andante.proxy()).unwrap()).collect();
    eventually("its descriptors to be used up", || (open(&andante) > FOR_CLIENTS).then_some(()));
    leave_none(&andante);
    let (before, said) = (andante.ticks(), andante.stderr().lines().count());
    pass(Duration::from_secs(1));
    let (spent, said) = (andante.ticks() - before, andante.stderr().lines().count() - said);
    assert!(spent <= 20, "it took {spent} of 100 ticks to do nothing");
    assert!(said <= 20, "it wrote {said} lines in a second");

    // A connected client is served, over connections that are open.
    early.send(&request);
    assert_eq!(early.answer().status(), 200);

    drop(crowd);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    drop(early);
    andante.wait_for(quiet);
    andante.signal(rustix::process::Signal::TERM);
    assert!(andante.ended().success());
}

/// Of 200 silent connections at most 64 have a descriptor, each for the 30 s that a head may take. A later client would
/// wait for three times as long. Silent connections are closed after a second.
#[test]
fn silent_connections_make_room_for_who_asks() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&[]));
    prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(andante.proxy()).unwrap()).collect();
    eventually("its descriptors to be used up", || (open(&andante) > FOR_CLIENTS).then_some(()));
    let clock = Clock::start();
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let took = clock.now().since(Instant::START);
    assert!(took < Duration::from_secs(15), "a client waited for {took:?}");
    let told = andante.stderr().matches("file descriptors run out").count();
    assert_eq!(told, 1, "{}", andante.stderr());
    drop(crowd);
}

/// None of 100 used connections is in use now. They are closed at their next look at the clock, after ten seconds at
/// most, and not after the usual ten minutes.
#[test]
fn idle_connections_make_room_for_who_asks() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&[]));
    let host = upstream.address();
    let mut idle: Vec<Client> = (0..100).map(|_| Client::connect(andante.proxy())).collect();
    for client in &mut idle {
        client.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.answer().status(), 200);
    }
    prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let mut client = TcpStream::connect(andante.proxy()).unwrap();
    // Long enough for a busy machine, and far from ten minutes.
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("there is room after ten seconds");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    drop(idle);
}

/// Two dozen workers have come and gone, whose connections to the API are kept for a minute. With a dozen tunnels they have all
/// descriptors.
#[test]
fn unused_connections_to_upstreams_make_room_for_who_asks() {
    let upstream = Upstream::answering(|_| {
        pass(Duration::from_millis(300));
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    });
    let andante = Andante::serve(&["--limit", "*=1000/s burst 1000"]);
    std::thread::scope(|workers| {
        for _ in 0..24 {
            workers.spawn(|| assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200));
        }
    });
    let host = upstream.address();
    let tunnels = (0..12).map(|_| {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.opened();
        client
    });
    let tunnels: Vec<Client> = tunnels.collect();
    assert!(open(&andante) > FOR_CLIENTS, "{} are open", open(&andante));
    prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let clock = Clock::start();
    // The first that is accepted shows that there is no room for the next.
    for _ in 0..2 {
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    }
    let took = clock.now().since(Instant::START);
    assert!(took < Duration::from_secs(15), "a client waited for {took:?}");
    drop(tunnels);
}

/// Takes all descriptors that clients may have, of 64.
fn half_heads(andante: &Andante) -> Vec<TcpStream> {
    prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let mut crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(andante.proxy()).unwrap()).collect();
    crowd.iter_mut().for_each(|one| one.write_all(b"GET http://").unwrap());
    eventually("its descriptors to be used up", || (open(andante) > FOR_CLIENTS).then_some(()));
    crowd
}

/// Half heads stay for five seconds at least. Meanwhile they have all descriptors except the reserve for connections to
/// the API.
#[test]
fn whoever_is_in_is_answered_while_others_fill_all_places() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&[]));
    let mut early = Client::connect(andante.proxy());
    andante.wait_for(|status| status["connections"]["client"] == 1);
    let crowd = half_heads(&andante);
    pass(Duration::from_millis(500));
    let host = upstream.address();
    early.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(early.answer().status(), 200);
    drop(crowd);
}

/// Silent clients of the admin address have no more than a few of the last descriptors.
#[test]
fn whoever_is_in_is_answered_while_others_are_silent_at_the_admin_address() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&[]));
    let host = upstream.address();
    let mut early = Client::connect(andante.proxy());
    andante.wait_for(|status| status["connections"]["client"] == 1);
    let _half = half_heads(&andante);
    let _silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(andante.admin()).unwrap()).collect();
    pass(Duration::from_millis(300));
    for _ in 0..10 {
        early.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(early.answer().status(), 200);
        pass(Duration::from_millis(50));
    }
    // A client that asks there is answered, too.
    assert_eq!(andante.page("/healthz").status(), 200);
}

#[test]
fn no_descriptor_for_a_connection_is_our_own_trouble_and_a_503() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&["--limit", "*=in-flight 1"]));
    let mut client = Client::connect(andante.proxy());
    let host = upstream.address();
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    // The connection has to be accepted before there is no descriptor left for it.
    andante.wait_for(|status| status["connections"]["client"] == 1);
    let none = Rlimit { current: Some(3), maximum: Some(20_000) };
    let old = prlimit(Some(andante.pid()), Resource::Nofile, none).unwrap();
    // More often than it takes for a breaker.
    for _ in 0..20 {
        client.send(&request);
        let answer = client.answer();
        rejected(&answer, 503, "proxy_internal_error", "no descriptors");
        let problem = answer.json();
        assert_eq!(problem["blame"], "proxy");
        assert!(problem["detail"].as_str().unwrap().contains("file descriptor"), "{problem}");
        assert!(problem["hint"].as_str().unwrap().contains("LimitNOFILE"), "{problem}");
        assert!(answer.has("retry-after"));
    }
    prlimit(Some(andante.pid()), Resource::Nofile, old).unwrap();
    let status = andante.status();
    assert_eq!((&status["lanes"][0]["waiting"], upstream.requests().len()), (&0.into(), 0), "{status:#}");
    let metrics = andante.metrics();
    let counted = |outcome: &str| -> u64 {
        let name = format!("andante_requests_total{{outcome=\"{outcome}\"");
        let lines = metrics.lines().filter(|line| line.starts_with(&name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!((counted("failed"), counted("refused")), (0, 20), "{metrics}");
    assert!(!andante.stderr().contains("an upstream failed"), "{}", andante.stderr());
    client.send(&request);
    assert_eq!(client.answer().status(), 200);
}

#[test]
fn no_descriptor_for_asking_a_name_server_is_our_own_trouble_too() {
    let server = NameServer::start(|_| Name::Unknown);
    let andante = Andante::with_config(&format!("dns = [\"{}\"]\n", server.address()));
    let mut client = Client::connect(andante.proxy());
    andante.wait_for(|status| status["connections"]["client"] == 1);
    let none = Rlimit { current: Some(3), maximum: Some(20_000) };
    prlimit(Some(andante.pid()), Resource::Nofile, none).unwrap();
    client.send("GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n");
    rejected(&client.answer(), 503, "proxy_internal_error", "no descriptors");
}

/// Connects to `andante` until every descriptor below the last one is taken, and says how many these are.
fn fill(andante: &Andante, clients: &mut Vec<Client>) -> u64 {
    loop {
        clients.push(Client::connect(andante.proxy()));
        let all = clients.len();
        andante.wait_for(|status| status["connections"]["client"] == all && status["lanes"][0]["in_flight"] != 1);
        let descriptors = fs::read_dir(format!("/proc/{}/fd", andante.pid().as_raw_nonzero())).unwrap();
        let taken = descriptors.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<usize>().unwrap());
        let taken: Vec<_> = taken.collect();
        if taken.iter().max() == Some(&(taken.len() - 1)) {
            return taken.len() as u64;
        }
    }
}

/// The trust store is read for the first connection that needs it. Without a descriptor it would seem to be empty, and
/// stay so.
#[test]
fn a_trust_store_that_could_not_be_opened_is_opened_later() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["http/1.1"]));
    let other = Authority::new("another");
    let config = format!(
        "upstream-ca = [{:?}]\n[[rule]]\nhost = \"127.0.0.1:{}\"\nupstream = \"https\"\n",
        other.file(),
        upstream.port()
    );
    let andante = Andante::with_environment_and_config("SSL_CERT_FILE", TRUSTED.file(), &config);
    let mut clients = Vec::new();
    // A descriptor for the connection, and none for the trust store.
    let few = Rlimit { current: Some(fill(&andante, &mut clients) + 1), maximum: Some(20_000) };
    let mut client = clients.pop().unwrap();
    let old = prlimit(Some(andante.pid()), Resource::Nofile, few).unwrap();
    let host = upstream.address();
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.send(&request);
    rejected(&client.answer(), 503, "proxy_internal_error", "no descriptors");
    prlimit(Some(andante.pid()), Resource::Nofile, old).unwrap();
    client.send(&request);
    assert_eq!(client.answer().status(), 200);
}

#[test]
fn a_tunnel_takes_the_descriptor_of_an_unused_connection() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&["--threads", "1"]));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    // Every number is taken: each worker that comes takes the lowest.
    let mut clients = Vec::new();
    let full = Some(fill(&andante, &mut clients));
    let mut client = clients.pop().unwrap();
    let old = prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: full, maximum: Some(20_000) }).unwrap();
    let host = upstream.address();
    client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.opened();
    prlimit(Some(andante.pid()), Resource::Nofile, old).unwrap();
}

#[test]
fn half_a_preface_and_an_end_is_let_go_at_once() {
    const FEW: u64 = 256;
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&[]));
    prlimit(Some(andante.pid()), Resource::Nofile, Rlimit { current: Some(FEW), maximum: Some(FEW) }).unwrap();
    for said in ["P", "PRI"] {
        for _ in 0..300 {
            let mut client = TcpStream::connect(andante.proxy()).unwrap();
            client.write_all(said.as_bytes()).unwrap();
        }
    }
    let clock = Clock::start();
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let took = clock.now().since(Instant::START);
    assert!(took < Duration::from_secs(1), "a client waited for {took:?}");
    andante.wait_for(quiet);
}

#[test]
fn half_a_preface_costs_no_time_and_may_be_completed() {
    let (upstream, andante) = (Upstream::ok(), Andante::serve(&["--threads", "1"]));
    let mut halves: Vec<_> = (0..300).map(|_| TcpStream::connect(andante.proxy()).unwrap()).collect();
    halves.iter_mut().for_each(|half| half.write_all(b"P").unwrap());
    andante.wait_for(|status| status["connections"]["client"] == 300);
    let before = andante.ticks();
    pass(Duration::from_secs(1));
    let spent = andante.ticks() - before;
    assert!(spent <= 5, "it took {spent} of 100 ticks to do nothing");
    let host = upstream.address();
    let mut put = halves.pop().unwrap();
    write!(put, "UT http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    put.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mut newer = halves.pop().unwrap();
    newer.write_all(b"RI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    newer.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let mut head = [0; 9];
    newer.read_exact(&mut head).unwrap();
    assert_eq!(head[3], crate::support::h2::kind::SETTINGS);
}

#[test]
fn probes_are_answered_without_a_descriptor_that_is_free() {
    let andante = Andante::serve(&[]);
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    prlimit(Some(andante.pid()), Resource::Nofile, limit).unwrap();
    let crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(andante.proxy()).unwrap()).collect();
    eventually("its descriptors to be used up", || (open(&andante) > FOR_CLIENTS).then_some(()));
    leave_none(&andante);
    // Silent clients cannot take the descriptors that are reserved for probes, either.
    let silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(andante.admin()).unwrap()).collect();
    for _ in 0..5 {
        let clock = Clock::start();
        assert_eq!(andante.page("/readyz").status(), 200);
        let took = clock.now().since(Instant::START);
        assert!(took < Duration::from_secs(2), "a probe waited for {took:?}");
    }
    drop((crowd, silent));
}
