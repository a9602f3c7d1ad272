//! `andante health`: exit codes for an orchestrator.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::{Duration, SystemTime},
};

use rustix::process::Signal;

use super::{andante, file, outcome};
use crate::support::{Andante, Client, Upstream, eventually};

#[test]
fn an_andante_that_takes_requests_is_healthy() {
    let running = Andante::serve(&[]);
    let admin = running.admin().to_string();
    let healthy = (Some(0), "ready\n".to_owned(), String::new());
    assert_eq!(outcome(andante(&["health", "--admin", &admin])), healthy);
    let mut by_variable = andante(&["health"]);
    by_variable.env("ANDANTE_ADMIN", &admin);
    assert_eq!(outcome(by_variable), healthy);
    // Broken since it was read: that is not what is asked.
    let broken = file(&format!("admin = \"{admin}\"\nlisten = \"nowhere\"\n"));
    assert_eq!(outcome(andante(&["health", "--config", broken.path().to_str().unwrap()])), healthy);
    let any = format!("0.0.0.0:{}", running.admin().port());
    assert_eq!(outcome(andante(&["health", "--admin", &any])), healthy);
}

#[test]
fn an_andante_that_drains_says_so() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let running = Andante::serve(&[]);
    let mut client = Client::connect(running.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    running.wait_for(|status| status["lanes"][0]["in_flight"] == 1);
    running.signal(Signal::TERM);
    eventually("the drain", || (running.page("/readyz").status() == 503).then_some(()));
    let (code, stdout, stderr) = outcome(andante(&["health", "--admin", &running.admin().to_string()]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("answers 503 Service Unavailable: draining\n"), "{stderr}");
}

#[test]
fn where_nobody_answers_it_gives_up_with_the_reason() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let began = SystemTime::now();
    let (code, _, stderr) = outcome(andante(&["health", "--admin", &address]));
    assert_eq!(code, Some(1));
    assert_eq!(stderr, format!("error: http://{address}/readyz did not answer within 2s\n"));
    assert!(began.elapsed().unwrap() < Duration::from_secs(10));
    drop(silent);
    let (code, _, stderr) = outcome(andante(&["health", "--admin", &address]));
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with(&format!("error: could not ask http://{address}/readyz\ncaused by: ")), "{stderr}");
    assert!(stderr.contains("\nhint: "), "{stderr}");
    for (admin, word) in [("off", "off"), ("127.0.0.1:0", "port 0")] {
        let (code, _, stderr) = outcome(andante(&["health", "--admin", admin]));
        assert_eq!(code, Some(1));
        assert!(stderr.contains(word) && stderr.contains("hint: "), "{stderr}");
    }
    assert_eq!(outcome(andante(&["health", "--admin", "nowhere"])).0, Some(2));
}

#[test]
fn a_stranger_on_the_port_is_not_believed_nor_quoted_at_length() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    let serve = thread::spawn(move || {
        for answer in ["HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\n\x1b[31mno\nx", "SSH-2.0-x\r\n"] {
            let mut stream = stranger.accept().unwrap().0;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let (code, _, stderr) = outcome(andante(&["health", "--admin", &address]));
    assert_eq!(code, Some(1));
    assert_eq!(stderr, format!("error: http://{address}/readyz answers 404 Not Found: [31mno\n"));
    let (code, _, stderr) = outcome(andante(&["health", "--admin", &address]));
    assert_eq!(code, Some(1), "{stderr}");
    serve.join().unwrap();
}
