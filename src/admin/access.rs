//! Authorization of changes by a token. Wrong tokens are logged, counted and slowed down.

use std::{collections::HashSet, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::time;
use tracing::warn;

use super::{
    answer::{PageAnswer, problem},
    token::Token,
};

/// The token, and the addresses that sent a wrong one in the last minute.
pub(super) struct Access {
    token: Option<Token>,
    /// Addresses that sent a wrong token in this minute.
    recent: Arc<Mutex<HashSet<IpAddr>>>,
    wrong: IntCounter,
}

/// Lifetime of the record of a wrong token. Each address is logged once in that time.
const MEMORY: Duration = Duration::from_secs(60);
/// Delay of each further token while a wrong one is remembered. With 64 connections that is 64 guesses a second,
/// and an operator with the right token waits a second.
const PENALTY: Duration = Duration::from_secs(1);
/// Wrong tokens from further addresses are only counted.
const MAX_LOGGED_ADDRESSES: usize = 100;

// === impl Access ===

impl Access {
    /// Lets in requests with `token`, and counts wrong ones in `wrong`.
    pub(super) fn new(token: Option<Token>, wrong: IntCounter) -> Self {
        Self { token, recent: Arc::default(), wrong }
    }

    /// The refusal of a request without the token; `None` if it has the token. `title` is for the case that no token
    /// is configured.
    pub(super) async fn refusal(
        &self,
        fields: &HeaderMap,
        peer: Option<IpAddr>,
        title: &'static str,
    ) -> Option<PageAnswer> {
        let Some(token) = &self.token else {
            let detail =
                "no token is configured: write one into a file, and name that with `admin-token` or --admin-token";
            return Some(problem(StatusCode::FORBIDDEN, title, detail.into()));
        };
        let said = fields.get_all(header::AUTHORIZATION);
        let guesses = said.iter().next().is_some();
        if guesses && !self.recent.lock().is_empty() {
            time::sleep(PENALTY).await;
        }
        if said.iter().any(|said| token.is_said_by(said.as_bytes())) {
            return None;
        }
        if guesses {
            self.note(peer);
        }
        let mut answer = problem(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong",
            "send `Authorization: Bearer TOKEN` with the token of `admin-token`".into(),
        );
        let challenge = HeaderValue::from_static("Bearer realm=\"andante\"");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        Some(answer)
    }

    fn note(&self, peer: Option<IpAddr>) {
        self.wrong.inc();
        let peer = peer.unwrap_or(IpAddr::from([0; 4]));
        let mut recent = self.recent.lock();
        if recent.is_empty() {
            let recent = Arc::clone(&self.recent);
            tokio::spawn(async move {
                time::sleep(MEMORY).await;
                recent.lock().clear();
            });
        }
        if recent.len() < MAX_LOGGED_ADDRESSES && recent.insert(peer) {
            let wrong = self.wrong.get();
            warn!(%peer, wrong, "a wrong admin token: further ones are slowed down, and logged once a minute");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const TOKEN: &str = "0123456789abcdef";

    /// Returns whether a request with this `Authorization` is let in, and the delay.
    async fn asks(access: &Access, authorization: Option<&str>) -> (bool, Duration) {
        let value = authorization.map(|said| (header::AUTHORIZATION, HeaderValue::from_str(said).unwrap()));
        let clock = Clock::start();
        let before = clock.now();
        let refusal = access.refusal(&value.into_iter().collect(), Some([127, 0, 0, 1].into()), "refused").await;
        assert!(refusal.as_ref().is_none_or(|refusal| refusal.status() == StatusCode::UNAUTHORIZED));
        (refusal.is_none(), clock.now().since(before))
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_counted_and_slow_down_further_ones_for_a_minute() {
        let wrong = IntCounter::new("wrong", "wrong").unwrap();
        let access = Access::new(Token::new(TOKEN).ok(), wrong.clone());
        let right = format!("Bearer {TOKEN}");
        assert_eq!(asks(&access, None).await, (false, Duration::ZERO));
        assert_eq!(asks(&access, Some("Bearer x")).await, (false, Duration::ZERO));
        assert_eq!(asks(&access, None).await, (false, Duration::ZERO), "it is no guess");
        assert_eq!(asks(&access, Some("Basic x")).await, (false, PENALTY));
        assert_eq!(asks(&access, Some(&right)).await, (true, PENALTY));
        assert_eq!(wrong.get(), 2);
        time::sleep(MEMORY).await;
        assert_eq!(asks(&access, Some(&right)).await, (true, Duration::ZERO));
    }
}
