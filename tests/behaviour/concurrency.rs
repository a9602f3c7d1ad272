//! `in-flight = "auto"`: the limit before a server that other people wrote.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use crate::support::{Andante, Client};

/// Python's own HTTP server with four threads, each of which works for 20 ms. It reports how many requests waited for a
/// thread.
const SERVER: &str = "
import http.server, threading, time
workers, lock, waiting = threading.Semaphore(4), threading.Lock(), 0
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        global waiting
        with lock:
            waiting += 1
            seen = max(0, waiting - 4)
        with workers:
            time.sleep(0.02)
        with lock:
            waiting -= 1
        self.send_response(200)
        self.send_header('X-Waiting', str(seen))
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
server = Server(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new("python3").args(["-c", SERVER]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
        Self { process, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn requests_wait_here_and_not_in_a_server_that_is_busy() {
    const CLIENTS: u32 = 40;
    const REQUESTS: u32 = 1600;
    let server = Server::start();
    let host = server.address;
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{host}\"\nin-flight = \"auto\"\n"));
    let url = format!("http://{host}/");
    let (sent, waited) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let answer = Client::get(andante.proxy(), &url);
                    assert_eq!(answer.status(), 200);
                    if number >= REQUESTS / 2 {
                        waited.fetch_add(answer.field("x-waiting").unwrap().parse().unwrap(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let lane = andante.status()["lanes"][0].clone();
    let (limit, evidence) = (lane["in_flight_limit"].as_u64().unwrap(), lane["in_flight_evidence"].as_str().unwrap());
    // Without a limit 36 of the 40 would wait in the server. With 4 workers the limit settles at 7, and 3 wait: see
    // docs/decisions/concurrency.md. A machine that is busy with other things makes times vary; exponential ones allow 5.7.
    let mean = f64::from(waited.load(Ordering::Relaxed)) / f64::from(REQUESTS / 2);
    assert!(mean <= 8.0, "{mean} waited in the server; the limit is {limit}, because {evidence}");
    assert!((3..=14).contains(&limit), "{limit}: {evidence}");
    assert!(evidence.contains("while few are in flight"), "{evidence}");
    let metrics = andante.page("/metrics").text();
    assert!(metrics.contains(&format!("andante_in_flight_limit{{rule=\"{host}\"}} {limit}\n")), "{metrics}");
    // Four at a time of 20 ms each are 200/s.
    let (sent, active) = (lane["sent_total"].as_f64().unwrap(), lane["active_s"].as_f64().unwrap());
    assert!(sent / active >= 100.0, "{sent} in {active} s");
}
