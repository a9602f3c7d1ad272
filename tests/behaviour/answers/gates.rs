//! A lane's gate: closed for all by one answer, opened by one request that tries.

use std::sync::Arc;

use andante::clock::Instant;
use parking_lot::Mutex;

use super::{OK, SECOND, ask, beginning_with, ms, now, timed};
use crate::support::{Andante, Client, Mock, Upstream};

#[test]
fn one_refusal_holds_everybody_in_its_lane_and_nobody_else() {
    let (limited, other) = (beginning_with(&[SECOND]), Upstream::ok());
    let rule = |upstream: &Upstream| format!("[[rule]]\nhost = \"{}\"\n", upstream.address());
    let andante = Andante::with_config(&[rule(&limited), rule(&other)].concat());
    let first = now();
    let mut clients = vec![ask(&andante, &limited, "POST", "Content-Length: 2\r\n\r\nhi")];
    limited.wait_for(1);
    let status = andante.wait_for(|status| status["lanes"][0]["gate"].is_object());
    let gate = &status["lanes"][0]["gate"];
    assert_eq!(gate["reason"], "retry-after", "{status:#}");
    let opens = gate["opens_in_s"].as_f64().unwrap();
    assert!(opens > 0.3 && opens <= 1.0, "{gate}");
    clients.extend((0..20).map(|_| ask(&andante, &limited, "GET", "\r\n")));
    for _ in 0..5 {
        let (answer, took) = timed(&andante, &other, "GET", "\r\n");
        assert_eq!(answer.status(), 200);
        assert!(took < ms(500), "{took:?}");
    }
    assert_eq!(limited.requests().len(), 1, "nothing leaves");
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
        assert!(now().since(first) >= ms(990));
    }
    assert_eq!(limited.requests().len(), 22);
    assert_eq!(limited.requests()[1].line(), "POST /path?q=1 HTTP/1.1", "who was sent first is sent first again");
    let status = andante.status();
    let lane = status["lanes"].as_array().unwrap().iter().find(|lane| lane["sent_total"] == 22).unwrap();
    assert!(lane["gate"].is_null(), "{lane:#}");
    assert_eq!(lane["answered_429_total"], 1);
}

#[test]
fn after_a_pause_requests_leave_as_evenly_as_before() {
    let mock = Mock::start(&[]);
    let host = mock.address();
    let andante = Andante::serve(&["--limit", &format!("{host}=10/s")]);
    let get = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", mock.url("/"));
    let mut clients: Vec<_> = (0..30).map(|_| Client::connect(andante.proxy())).collect();
    clients.iter_mut().for_each(|client| client.send(&get));
    andante.wait_for(|status| status["lanes"][0]["sent_total"].as_u64() >= Some(5));
    mock.control("PUT", "next", r#"{"status":429,"headers":{"retry-after":"2"},"count":1}"#);
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
    }
    let stats = mock.stats();
    assert_eq!((stats["accepted"].as_u64(), stats["scripted"].as_u64()), (Some(30), Some(1)), "{stats:#}");
    let seconds = stats["timeline"].as_array().unwrap();
    let gaps = |which: &str| seconds.iter().filter_map(|second| second[which].as_f64()).collect::<Vec<_>>();
    let short = gaps("shortest_gap_ms").into_iter().filter(|gap| *gap < 50.0).collect::<Vec<_>>();
    let longest = gaps("longest_gap_ms").into_iter().fold(0.0, f64::max);
    // 100 ms are even, and in a burst they would be a millisecond apart. A busy machine may shorten one gap.
    assert!(short.len() <= 1 && short.iter().all(|gap| *gap >= 10.0), "{stats:#}");
    assert!((1990.0..2800.0).contains(&longest), "{stats:#}");
}

/// An upstream that notes when it was asked, answers the first with `refusal`, and takes 300 ms for the second.
fn probed(refusal: &'static str) -> (Upstream, Arc<Mutex<Vec<Instant>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = asked.clone();
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            let number = {
                let mut times = times.lock();
                times.push(now());
                times.len()
            };
            if number == 2 {
                std::thread::park_timeout(ms(300));
            }
            connection.send(if number == 1 { refusal } else { OK });
        }
    });
    (upstream, asked)
}

#[test]
fn a_gate_is_opened_by_one_request_and_the_others_wait_for_its_answer() {
    let (upstream, asked) = probed(super::SOON);
    let andante = Andante::serve(&[]);
    let mut clients = vec![ask(&andante, &upstream, "GET", "\r\n")];
    upstream.wait_for(1);
    andante.wait_for(|status| status["lanes"][0]["gate"].is_object());
    clients.extend((0..10).map(|_| ask(&andante, &upstream, "GET", "\r\n")));
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
    }
    let asked = asked.lock();
    assert_eq!(asked.len(), 12);
    let (pause, probe) = (asked[1].since(asked[0]), asked[2].since(asked[1]));
    assert!(pause >= ms(95), "{pause:?}");
    assert!(probe >= ms(280), "another one left before the first was answered: {probe:?}");
}

#[test]
fn a_probe_that_leaves_makes_room_for_another() {
    let (upstream, _) = probed(super::SOON);
    let andante = Andante::serve(&[]);
    let probe = ask(&andante, &upstream, "GET", "\r\n");
    upstream.wait_for(2);
    let mut next = ask(&andante, &upstream, "GET", "\r\n");
    drop(probe);
    assert_eq!(next.answer().status(), 200);
}

#[test]
fn a_refusal_in_the_midst_of_many_loses_none_of_them() {
    let upstream = beginning_with(&[OK, OK, super::SOON, super::SOON, OK, super::SOON]);
    let andante = Andante::serve(&[]);
    let proxy = andante.proxy();
    let url = upstream.url("/");
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || (0..5).map(|_| Client::get(proxy, &url).status()).collect::<Vec<_>>())
        })
        .collect();
    for worker in workers {
        assert_eq!(worker.join().unwrap(), [200; 5]);
    }
    assert_eq!(upstream.requests().len(), 43);
}

#[test]
fn a_request_that_times_out_does_not_open_a_gate_that_another_answer_has_closed() {
    const HOUR: &str = "HTTP/1.1 429 Too Many\r\nRetry-After: 3600\r\nContent-Length: 5\r\n\r\nlater";
    let upstream = Upstream::scripted(|mut connection| {
        while let Some(request) = connection.request() {
            if request.target() == "/hangs" {
                let _ = connection.rest();
                return;
            }
            connection.send(if request.target() == "/first" { OK } else { HOUR });
        }
    });
    let andante = Andante::with_config("[timeouts]\nanswer = \"700ms\"\n");
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    let mut hangs = Client::connect(andante.proxy());
    hangs.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/hangs"), upstream.address()));
    upstream.wait_for(2);
    assert_eq!(ask(&andante, &upstream, "GET", "Prefer: wait=1\r\n\r\n").answer().status(), 429);
    assert_eq!(hangs.answer().status(), 504);
    let lane = &andante.status()["lanes"][0];
    assert_eq!(lane["gate"]["reason"], "retry-after", "{lane:#}");
    assert!(lane["gate"]["opens_in_s"].as_f64() > Some(3500.0), "{lane:#}");
}
