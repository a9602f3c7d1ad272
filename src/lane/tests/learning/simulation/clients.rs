//! Clients of the simulated API: a lane of andante, or careful workers that act alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_hint::{self as hint, Cause};
use andante_learn::{AnswerReport, LearnedChange, RouteKey};
use andante_limit::{Cost, Limits};
use andante_order::{Claim, Turn};
use andante_policy::Policy;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{
    MORNING,
    dice::Dice,
    world::{Answer, WORKERS, World, seconds},
};
use crate::{
    AdmitRequest,
    state::{Decision, Effects, End, Slot, State, Timer},
};

/// The client between the workers and the API.
pub(super) trait Client {
    /// A worker wants to send; returns whether it may at once.
    fn ask(&mut self, now: Instant, worker: usize, turn: Turn) -> bool;
    /// The workers that have waited and may send now, and when to check again.
    fn serve(&mut self, now: Instant) -> (Vec<usize>, Instant);
    /// Records that a worker's request leaves.
    fn sent(&mut self, now: Instant, worker: usize);
    /// Handles the answer to a worker's request. Returns after what time the worker asks next.
    fn answered(&mut self, now: Instant, worker: usize, answer: &Answer, dice: &mut Dice) -> Option<Duration>;
    /// A description of what it has learned.
    fn note(&mut self, now: Instant) -> String;
}

/// One lane.
pub(super) struct Andante {
    pub(super) state: State<usize>,
    /// True if the store has to be called.
    pub(super) calls: bool,
    kinds: Vec<RouteKey>,
    slots: BTreeMap<usize, (Box<Slot>, Instant)>,
    /// Changes, with their times.
    pub(super) log: Vec<(Instant, LearnedChange)>,
}

/// The client that many write by hand: it obeys `Retry-After`, and otherwise doubles its wait each time, with jitter.
pub(super) struct Careful {
    tries: [u32; WORKERS],
}

// === impl Andante ===

impl Andante {
    pub(super) fn new(world: &World, now: Instant) -> Self {
        let mut policy = Policy::new("test", vec!["*".parse().unwrap()]);
        let limits: Limits = world.configured.map_or_else(Limits::default, |limits| limits.parse().unwrap());
        (policy.limits, policy.in_flight, policy.max_wait) = (limits.limits, limits.in_flight, Duration::MAX);
        let of = |worker| match world.kind_of(worker) {
            kind if world.are_keys => RouteKey::new("GET", "/one").with_credential(kind as u32 + 1),
            kind => RouteKey::new("GET", &format!("/kind-{kind}")),
        };
        Self {
            state: State::new(Arc::new(policy), now, Duration::ZERO),
            calls: false,
            kinds: (0..WORKERS).map(of).collect(),
            slots: BTreeMap::new(),
            log: Vec::new(),
        }
    }
}

impl Client for Andante {
    fn ask(&mut self, now: Instant, worker: usize, turn: Turn) -> bool {
        let ask = AdmitRequest {
            cost: Cost::MIN,
            kind: self.kinds[worker],
            claim: Claim::USUAL,
            deadline: Instant::FAR,
            turn,
            draws: None,
            port: 80,
        };
        match self.state.asked(now, &ask) {
            Decision::Send(slot) => {
                self.slots.insert(worker, (slot, now));
                true
            }
            Decision::Wait(offer) => {
                self.state.enqueued(now, &ask, offer, worker);
                false
            }
            Decision::Refuse(refusal) => panic!("refused: {refusal}"),
        }
    }

    fn serve(&mut self, now: Instant) -> (Vec<usize>, Instant) {
        let mut leaving = Vec::new();
        loop {
            let Effects { grants, timer, changes, calls, .. } = self.state.woken(now, now);
            self.calls |= calls;
            for grant in grants {
                self.slots.insert(grant.ticket, (grant.slot, now));
                leaving.push(grant.ticket);
            }
            self.log.extend(changes.into_iter().map(|change| (now, change)));
            match timer {
                Timer::Set(next) if next <= now => {}
                Timer::Set(next) => return (leaving, next),
                Timer::Keep | Timer::Ring => return (leaving, Instant::FAR),
            }
        }
    }

    fn sent(&mut self, now: Instant, worker: usize) {
        let (slot, at) = self.slots.get_mut(&worker).expect("it has a slot");
        *at = now;
        self.state.sent(now, slot);
    }

    fn answered(&mut self, now: Instant, worker: usize, answer: &Answer, _dice: &mut Dice) -> Option<Duration> {
        let (mut slot, sent) = self.slots.remove(&worker).expect("it has a slot");
        let arrived = MORNING + now.since(Instant::START);
        let headers = fields(answer, arrived);
        let status = StatusCode::from_u16(answer.status).unwrap();
        let mut hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived });
        if status.is_success() && hint.cause != Cause::None {
            // As in `proxy::forward`: a result that asks to wait is a result.
            hint.accept();
        }
        let failed = status.is_server_error() && hint.cause == Cause::None;
        self.state.answered(now, &slot, sent, &AnswerReport { hint: &hint, failed, route: None });
        self.state.settled(now, &mut slot, End::Answered);
        Some(Duration::ZERO)
    }

    fn note(&mut self, now: Instant) -> String {
        let snapshot = self.state.snapshot(now, "api.test".into());
        let limits: Vec<_> = snapshot.limits.iter().map(|limit| format!("{limit:?}")).collect();
        format!("{limits:?} {:?}", snapshot.queue.gate)
    }
}

fn fields(answer: &Answer, arrived: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut say = |name: &'static str, value: String| {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
    };
    say("date", httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(arrived.as_secs())));
    if let Some(wait) = answer.retry_after {
        say("retry-after", wait.to_string());
    }
    if let Some(told) = answer.told {
        say("x-ratelimit-limit", told.limit.to_string());
        say("x-ratelimit-remaining", told.remaining.to_string());
        say("x-ratelimit-reset", told.reset.to_string());
        if let Some(window) = told.window {
            say("x-ratelimit-window", window.to_string());
        }
    }
    headers
}

// === impl Careful ===

impl Careful {
    pub(super) fn new() -> Self {
        Self { tries: [0; WORKERS] }
    }
}

impl Client for Careful {
    fn ask(&mut self, _now: Instant, _worker: usize, _turn: Turn) -> bool {
        true
    }

    fn serve(&mut self, _now: Instant) -> (Vec<usize>, Instant) {
        (Vec::new(), Instant::FAR)
    }

    fn sent(&mut self, _now: Instant, _worker: usize) {}

    fn answered(&mut self, _now: Instant, worker: usize, answer: &Answer, dice: &mut Dice) -> Option<Duration> {
        let tries = &mut self.tries[worker];
        if answer.status == 200 {
            *tries = 0;
            return Some(Duration::ZERO);
        }
        *tries = (*tries + 1).min(10);
        let back_off = dice.fraction() * (0.5 * 2f64.powi(*tries as i32 - 1)).min(30.0);
        Some(seconds(answer.retry_after.map_or(back_off, |wait| wait + dice.fraction() * wait.min(0.5))))
    }

    fn note(&mut self, _now: Instant) -> String {
        String::new()
    }
}
