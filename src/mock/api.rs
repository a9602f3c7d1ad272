//! Serves the decisions of a [`Limiter`] over HTTP/1.1.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use andante_limiter::Limiter;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{
    options::Options,
    server,
    shared::{ApiState, LimiterBooks},
    stats::{Stats, StatsRecorder},
};
use crate::{
    clock::{Clock, Instant},
    limit::Rate,
};

/// Running API. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub struct Api {
    addr: SocketAddr,
    shared: Arc<ApiState>,
    accepting: JoinHandle<()>,
}

// === impl Api ===

impl Api {
    /// Serves on `listener` (see [`super::listen`]) in the current runtime.
    ///
    /// # Panics
    /// Panics if called outside a tokio runtime.
    pub fn start(options: Options, listener: TcpListener, clock: Clock) -> Self {
        let addr = listener.local_addr().expect("a listening socket has an address");
        let books = LimiterBooks {
            limiter: options.limit.map(|rate| options.limiter(rate)),
            limiters: 0,
            recorder: StatsRecorder::new(options.limit, clock.now()),
            script: None,
            dice: fastrand::Rng::with_seed(options.seed),
        };
        let wall_at_start = SystemTime::now() - clock.now().since(Instant::START);
        let shared = Arc::new(ApiState {
            options,
            clock,
            wall_at_start,
            books: Mutex::new(books),
            down: watch::Sender::new(None),
        });
        let accepting = tokio::spawn(server::accept(listener, addr, shared.clone()));
        Self { addr, shared, accepting }
    }

    /// Address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Statistics since the start.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Rate that the API enforces now; `None` if it accepts everything.
    pub fn limit(&self) -> Option<Rate> {
        self.shared.books.lock().limiter.as_ref().map(Limiter::rate)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // The task owns the listener and every connection.
        self.accepting.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::mock::listen;

    fn start(options: Options) -> Api {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Api::start(options, listener, Clock::start())
    }

    /// Sends `requests` on one connection and returns everything received. The last request must close the connection.
    async fn talk(api: &Api, requests: &str) -> String {
        let mut stream = TcpStream::connect(api.addr()).await.unwrap();
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.unwrap();
        answers
    }

    const GET: &str = "GET /a HTTP/1.1\r\nhost: api\r\n\r\n";
    const LAST: &str = "GET /b HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn past_the_limit_it_refuses_and_says_until_when() {
        let api = start(Options { limit: Some("2/h".parse().unwrap()), ..Options::default() });
        let answers = talk(&api, &[GET, GET, LAST].concat()).await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
        assert!(answers.contains(r#"{"number":2}"#), "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 429").count(), 1, "{answers}");
        assert!(answers.contains("retry-after: 3600\r\n"), "{answers}");
        let stats = api.stats();
        assert_eq!((stats.accepted, stats.refused, stats.worst_window), (2, 1, 3));
    }

    #[tokio::test]
    async fn every_answer_speaks_the_dialect() {
        let dialect = "openai".parse().unwrap();
        let api = start(Options { limit: Some("2/h".parse().unwrap()), dialect, ..Options::default() });
        let answers = talk(&api, LAST).await;
        assert!(answers.contains("x-ratelimit-remaining-requests: 1\r\n"), "{answers}");
    }

    #[tokio::test]
    async fn an_upload_is_read_to_its_end_and_measured() {
        let api = start(Options::default());
        let upload =
            "POST /u HTTP/1.1\r\nhost: api\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n2\r\n!!\r\n0\r\n\r\n";
        let answers = talk(&api, &[upload, LAST].concat()).await;
        assert!(answers.contains(r#"{"number":1,"received":7}"#), "{answers}");
        assert!(answers.contains(r#"{"number":2}"#), "{answers}");
    }

    #[tokio::test]
    async fn statistics_are_answered_and_not_counted() {
        let api = start(Options { limit: Some("1/h".parse().unwrap()), ..Options::default() });
        let ask = "GET /__mock/stats HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n";
        assert!(talk(&api, ask).await.contains(r#"{"accepted":0,"refused":0,"#));
        assert!(talk(&api, LAST).await.starts_with("HTTP/1.1 200"));
        assert!(talk(&api, ask).await.contains(
            r#""accepted":1,"refused":0,"refused_after_first_window":0,"failed":0,"scripted":0,"worst_window":1"#
        ));
    }

    #[tokio::test]
    async fn failures_count_against_the_limit() {
        let fail = "100%".parse().unwrap();
        let api = start(Options { limit: Some("1/h".parse().unwrap()), fail, ..Options::default() });
        let answers = talk(&api, &[GET, LAST].concat()).await;
        assert!(answers.contains("HTTP/1.1 500") && answers.contains("HTTP/1.1 429"), "{answers}");
        assert_eq!(api.stats().failed, 1);
    }

    #[tokio::test]
    async fn somebody_who_takes_it_for_a_proxy_is_told() {
        let api = start(Options::default());
        let answers = talk(&api, "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n").await;
        assert!(answers.starts_with("HTTP/1.1 405") && answers.contains("not a proxy"), "{answers}");
        assert_eq!(api.stats().accepted, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn latency_delays_the_answer_and_not_the_count() {
        let (latency, jitter) = (Duration::from_millis(200), Duration::from_millis(50));
        let api = start(Options { latency, jitter, ..Options::default() });
        let clock = Clock::start();
        talk(&api, LAST).await;
        let took = clock.now().since(Instant::START);
        // Tokio's timers fire up to a millisecond late.
        assert!(took >= latency && took <= latency + jitter + Duration::from_millis(2), "{took:?}");
    }
}
