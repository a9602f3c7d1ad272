//! A burst from many workers. Each behaves like a worker program: one connection, one request at a time. When the API
//! refuses, the worker sleeps for the time that the API asks for, plus a little.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

use crate::{cli::Failure, clock::Clock};

/// Load of the demo: its size, its workers, and the proxy.
#[derive(Clone, Debug)]
pub(super) struct DemoLoad {
    pub(super) workers: u64,
    pub(super) requests: u64,
    /// The API.
    pub(super) api: SocketAddr,
    /// The forward proxy on the way, if any.
    pub(super) proxy: Option<SocketAddr>,
}

/// The progress of a burst; read while it runs.
#[derive(Debug, Default)]
pub(super) struct BurstProgress {
    /// Requests that workers have begun.
    begun: AtomicU64,
    pub(super) done: AtomicU64,
    /// Refusals that workers had to handle.
    pub(super) refused: AtomicU64,
}

/// Connection of one worker to the API.
struct DemoWorker {
    burst: DemoLoad,
    clock: Clock,
    dice: fastrand::Rng,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

enum MockAnswer {
    Done,
    TooMany { retry_after: Duration },
}

/// Largest random addition to `Retry-After`. Every guide on retrying recommends such jitter, so that refused workers do
/// not return together.
const A_LITTLE: Duration = Duration::from_secs(1);
/// Attempts of a request on new connections before the demo gives up.
const CONNECTION_TRIES: u32 = 3;

/// Sends all requests, and returns the time until the last answer.
pub(super) async fn send(burst: &DemoLoad, progress: &Arc<BurstProgress>, clock: Clock) -> Result<Duration, Failure> {
    let began = clock.now();
    let mut workers = JoinSet::new();
    for seed in 0..burst.workers {
        let dice = fastrand::Rng::with_seed(seed);
        let worker = DemoWorker { burst: burst.clone(), clock, dice, connection: None };
        workers.spawn(worker.run(progress.clone()));
    }
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| Failure::new("a worker of the demo ended early").because(error))??;
    }
    Ok(clock.now().since(began))
}

// === impl DemoWorker ===

impl DemoWorker {
    async fn run(mut self, progress: Arc<BurstProgress>) -> Result<(), Failure> {
        loop {
            let number = progress.begun.fetch_add(1, Ordering::Relaxed);
            if number >= self.burst.requests {
                return Ok(());
            }
            while let MockAnswer::TooMany { retry_after } = self.send(number).await? {
                progress.refused.fetch_add(1, Ordering::Relaxed);
                let pause = retry_after + A_LITTLE.mul_f64(self.dice.f64());
                self.clock.sleep_until(self.clock.now() + pause).await;
            }
            progress.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn send(&mut self, number: u64) -> Result<MockAnswer, Failure> {
        let mut tries = 1;
        loop {
            match self.try_once(number).await {
                Ok((StatusCode::OK, _)) => return Ok(MockAnswer::Done),
                Ok((StatusCode::TOO_MANY_REQUESTS, retry_after)) => {
                    return Ok(MockAnswer::TooMany { retry_after: retry_after.unwrap_or(A_LITTLE) });
                }
                Ok((status, _)) => {
                    return Err(Failure::new(format!("request {number} to {} was answered {status}", self.way()))
                        .hinting("nothing but 200 and 429 was expected: please report this"));
                }
                Err(_) if tries < CONNECTION_TRIES => tries += 1,
                Err(error) => {
                    return Err(Failure::new(format!(
                        "request {number} to {} found no way, tried {tries} times",
                        self.way()
                    ))
                    .because(error)
                    .hinting("allow at least 300 open files (ulimit -n) and connections to loopback"));
                }
            }
        }
    }

    /// A single exchange; a connection that failed is not used again.
    async fn try_once(&mut self, number: u64) -> Result<(StatusCode, Option<Duration>), BoxError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        connection.ready().await?;
        let api = self.burst.api;
        // A proxy needs the whole URL, an API only the path (RFC 9112 §3.2).
        let target = match self.burst.proxy {
            Some(_) => format!("http://{api}/item/{number}"),
            None => format!("/item/{number}"),
        };
        let request = Request::get(target).header(header::HOST, api.to_string()).body(Empty::new())?;
        let answer = connection.send_request(request).await?;
        let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let status = answer.status();
        answer.into_body().collect().await?;
        self.connection = Some(connection);
        Ok((status, retry_after.map(Duration::from_secs)))
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, BoxError> {
        let stream = TcpStream::connect(self.burst.proxy.unwrap_or(self.burst.api)).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Errors of the connection reach the request on it.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn way(&self) -> String {
        match self.burst.proxy {
            Some(proxy) => format!("{} through {proxy}", self.burst.api),
            None => self.burst.api.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{self, Api, Options};

    #[tokio::test(start_paused = true)]
    async fn refused_requests_are_sent_again_until_all_are_done() {
        let listener = mock::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let clock = Clock::start();
        let api = Api::start(Options { limit: Some("5/s".parse().unwrap()), ..Options::default() }, listener, clock);
        let burst = DemoLoad { workers: 8, requests: 20, api: api.addr(), proxy: None };
        let progress = Arc::new(BurstProgress::default());
        let took = send(&burst, &progress, clock).await.unwrap();
        let stats = api.stats();
        assert_eq!((stats.accepted, progress.done.load(Ordering::Relaxed)), (20, 20));
        assert!(stats.refused > 0 && stats.refused == progress.refused.load(Ordering::Relaxed));
        assert!(took >= Duration::from_secs(3), "{took:?}");
    }
}
