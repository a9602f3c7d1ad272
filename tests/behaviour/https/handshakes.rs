//! R40: whatever a worker says first in an intercepted tunnel, something definite becomes of it.

use std::{io::Write as _, net::TcpStream};

use crate::support::{
    Upstream,
    tls::{Interceptor, Server, TRUSTED},
};

fn upstream() -> Upstream {
    Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["localhost", "127.0.0.1"]), &["http/1.1"]))
}

#[test]
fn r40_a_client_hello_may_come_byte_by_byte() {
    let upstream = upstream();
    let target = format!("localhost:{}", upstream.port());
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let bytewise = |socket: &mut TcpStream, hello: &[u8]| {
        socket.set_nodelay(true).unwrap();
        hello.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
    };
    let worker = interceptor.trusting(&target);
    let mut worker = worker.shake(interceptor.tunnel(&target), bytewise).unwrap();
    worker.send(format!("GET /inside HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
    assert_eq!(upstream.request().target(), "/inside");
}
