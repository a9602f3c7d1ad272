//! Detects whether an HTTP/2 connection still leads to its API.
//!
//! A connection may be cut silently: by a NAT, a load balancer, a cable. A PING finds out. But gRPC servers end a
//! connection on which more than two PINGs come within five minutes while they send nothing (`too_many_pings`, gRFC
//! A8). So one PING is sent in each silence after a part of a message, and at most two while no part of an answer
//! comes. A call that is silent for hours costs one PING.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Instant;

/// Silence after a part of a request or an answer until a PING is sent.
const SILENCE: Duration = Duration::from_secs(20);
/// Time without an answer to a PING after which an API is unreachable.
const PONG: Duration = Duration::from_secs(20);
/// While a PING is unanswered for longer than this, requests take other connections: longer than any round trip.
const SUSPECT: Duration = Duration::from_secs(2);
/// Bytes that come within this time of a request may have been sent before it, and prove nothing.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Number of PINGs while the API sends nothing. gRPC servers allow the first and two that are too early; this is one
/// less for safety.
const MAX_PINGS: u8 = 2;

/// Signs of life of one connection.
#[derive(Default)]
pub(super) struct Liveness(Mutex<Signs>);

#[derive(Default)]
struct Signs {
    /// Time of the last part of a message that nothing has followed.
    silent_since: Option<Instant>,
    /// When a PING was sent, if it has not been answered.
    pinged: Option<Instant>,
    /// PINGs since a part of a message has come.
    pings: u8,
}

/// Decision about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Do nothing until a request is sent.
    Rest,
    /// Check again at this time.
    LookAt(Instant),
    Ping,
    /// End the connection: it is dead.
    End,
}

// === impl Liveness ===

impl Liveness {
    /// Records that a part of a request is handed over to be sent.
    pub(super) fn on_request(&self, now: Instant) {
        self.0.lock().silent_since.get_or_insert(now);
    }

    /// Records that bytes have come. `of_answer`: a part of an answer is among them. `now` is called if the time
    /// matters.
    pub(super) fn on_read(&self, of_answer: bool, now: impl FnOnce() -> Instant) {
        let mut signs = self.0.lock();
        signs.pinged = None;
        if of_answer {
            signs.pings = 0;
            signs.silent_since = Some(now());
        } else if let Some(since) = signs.silent_since
            && now().since(since) >= ON_ITS_WAY
        {
            signs.silent_since = None;
        }
    }

    /// Decides the action at `now`. `may_ping`: requests are in flight, and the API has not complained.
    pub(super) fn check(&self, now: Instant, may_ping: bool) -> Check {
        let mut signs = self.0.lock();
        if let Some(pinged) = signs.pinged {
            return if now < pinged + PONG { Check::LookAt(pinged + PONG) } else { Check::End };
        }
        let Some(since) = signs.silent_since else { return Check::Rest };
        if now < since + SILENCE {
            return Check::LookAt(since + SILENCE);
        }
        signs.silent_since = None;
        if !may_ping || signs.pings >= MAX_PINGS {
            return Check::Rest;
        }
        signs.pings += 1;
        signs.pinged = Some(now);
        Check::Ping
    }

    /// Returns whether requests should prefer another connection. `now` is called if the time matters.
    pub(super) fn is_suspect(&self, now: impl FnOnce() -> Instant) -> bool {
        self.0.lock().pinged.is_some_and(|pinged| now().since(pinged) >= SUSPECT)
    }

    /// Returns whether a later check is needed.
    pub(super) fn is_watched(&self) -> bool {
        let signs = self.0.lock();
        signs.silent_since.is_some() || signs.pinged.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    /// Number of PINGs until `until`, if the API answers each at once.
    fn pings(liveness: &Liveness, from: u64, until: u64) -> usize {
        let pinged = |second: &u64| {
            let pings = liveness.check(at(*second), true) == Check::Ping;
            if pings {
                liveness.on_read(false, || at(*second));
            }
            pings
        };
        (from..until).filter(pinged).count()
    }

    #[test]
    fn an_api_that_answers_nothing_is_asked_after_20_s_and_given_up_after_40() {
        let liveness = Liveness::default();
        assert_eq!(liveness.check(at(0), true), Check::Rest);
        liveness.on_request(at(0));
        assert_eq!(liveness.check(at(19), true), Check::LookAt(at(20)));
        assert_eq!(liveness.check(at(20), true), Check::Ping);
        liveness.on_request(at(21));
        assert!(!liveness.is_suspect(|| at(21)) && liveness.is_suspect(|| at(22)));
        assert_eq!(liveness.check(at(39), true), Check::LookAt(at(40)));
        assert_eq!(liveness.check(at(40), true), Check::End);
    }

    #[test]
    fn a_call_that_is_silent_for_hours_costs_one_ping() {
        let liveness = Liveness::default();
        liveness.on_request(at(0));
        assert_eq!(pings(&liveness, 0, 10_000), 1);
    }

    /// gRFC A8: a server ends the connection at the third PING that is too early, the fourth in all.
    #[test]
    fn requests_without_answers_cost_two_pings_until_a_message_comes() {
        let liveness = Liveness::default();
        let mut asked = 0;
        for minute in 0..10 {
            liveness.on_request(at(60 * minute));
            asked += pings(&liveness, 60 * minute, 60 * minute + 60);
        }
        assert_eq!(asked, 2);
        liveness.on_read(true, || at(600));
        liveness.on_request(at(601));
        assert_eq!(pings(&liveness, 601, 700), 1);
    }

    #[test]
    fn frames_about_the_connection_need_no_ping_once_they_can_be_an_answer() {
        let liveness = Liveness::default();
        liveness.on_request(at(0));
        liveness.on_read(false, || at(0));
        assert!(liveness.is_watched(), "they may have been on their way");
        liveness.on_read(false, || at(1));
        assert!(!liveness.is_watched());
        assert_eq!(pings(&liveness, 1, 100), 0);
    }

    /// Between events, each silence costs one PING, which gRPC servers allow because they send, too.
    #[test]
    fn an_answer_that_stops_in_its_middle_is_asked_for_once() {
        let liveness = Liveness::default();
        liveness.on_request(at(0));
        for event in 0..5 {
            liveness.on_read(true, || at(100 * event));
            assert_eq!(pings(&liveness, 100 * event, 100 * event + 100), 1);
        }
        liveness.on_read(true, || at(500));
        assert_eq!(liveness.check(at(520), true), Check::Ping);
        assert_eq!(liveness.check(at(540), true), Check::End);
    }

    #[test]
    fn nothing_is_asked_where_nothing_is_under_way_or_the_api_has_complained() {
        let liveness = Liveness::default();
        liveness.on_request(at(0));
        assert_eq!(liveness.check(at(20), false), Check::Rest);
        assert!(!liveness.is_watched());
    }
}
