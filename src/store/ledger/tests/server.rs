//! A private Redis for a test.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use super::super::RedisLedger;

/// A Redis without persistence that ends with the test.
pub(super) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub(super) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port_text = port.to_string();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port_text]);
        let process =
            command.stdout(Stdio::null()).spawn().expect("redis-server (Debian package redis-server) is there");
        Self { process, port }
    }

    pub(super) fn ledger(&self) -> RedisLedger {
        RedisLedger::new(&self.url().parse().unwrap()).unwrap()
    }

    /// A connection as an operator.
    pub(super) async fn connection(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    /// Forgets everything. Waits for the server to be there, if it has just been started.
    pub(super) async fn flush(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        for _ in 0..200 {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the Redis did not answer");
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
