//! Simulation of a lane: the state machine of a [`Lane`](super::Lane) with a time of its own. Reads no clock, and sends
//! nothing.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_learn::{AnswerReport, RouteKey};
use andante_limit::Cost;
use andante_policy::Policy;

use super::{
    order::{Claim, Turn},
    request::AdmitRequest,
    state::{Decision, Effects, End, Slot, State, Timer},
};

/// A request to a simulated lane.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRequest {
    /// Time of its arrival after the beginning.
    pub arrives: Duration,
    /// Its identity.
    pub claim: Claim,
    /// Its cost.
    pub cost: Cost,
}

/// A simulated lane, and the events to come.
struct Simulation {
    state: State<usize>,
    now: Instant,
    /// When the timer fires.
    timer: Option<Instant>,
    /// The future answers, the first one first, and their slots.
    answers: BinaryHeap<Reverse<(Instant, usize)>>,
    under_way: Vec<Option<(Box<Slot>, Instant)>>,
    latency: Duration,
    left: Vec<Instant>,
}

/// Returns when each of these requests leaves, the first one first; [`Instant::FAR`] if it never does. The requests
/// come to an idle lane of `policy`, and answers take `latency`. Requests that come at the beginning all wait before
/// the first may leave. `epoch` is the time since 1970 at that moment.
pub fn simulate(
    policy: Arc<Policy>,
    epoch: Duration,
    latency: Duration,
    requests: &[SimulatedRequest],
) -> Vec<Instant> {
    let count = requests.len();
    let (first, later) = requests.split_at(requests.partition_point(|request| request.arrives.is_zero()));
    let mut simulation = Simulation {
        state: State::new(policy, Instant::START, epoch),
        now: Instant::START,
        timer: None,
        answers: BinaryHeap::new(),
        under_way: std::iter::repeat_with(|| None).take(count).collect(),
        latency,
        left: vec![Instant::FAR; count],
    };
    simulation.state.hold(Instant::FAR);
    first.iter().enumerate().for_each(|(number, request)| simulation.ask(number, request));
    simulation.state.release(Instant::START);
    simulation.run(first.len(), later);
    simulation.left
}

// === impl Simulation ===

impl Simulation {
    fn ask(&mut self, number: usize, &SimulatedRequest { claim, cost, .. }: &SimulatedRequest) {
        let kind = RouteKey::NONE;
        let ask = AdmitRequest { cost, kind, claim, deadline: Instant::FAR, turn: Turn::New, draws: None, port: 80 };
        match self.state.asked(self.now, &ask) {
            Decision::Send(slot) => self.leave(number, slot),
            Decision::Wait(offer) => {
                self.state.enqueued(self.now, &ask, offer, number);
            }
            Decision::Refuse(_) => {}
        }
    }

    /// Runs until nothing can happen any more. The requests in `later` arrive later; the first of them has this
    /// `number`.
    fn run(&mut self, number: usize, later: &[SimulatedRequest]) {
        let effects = self.state.effects(self.now);
        self.execute(effects);
        let mut later = (number..).zip(later).peekable();
        loop {
            let answer = self.answers.peek().map(|Reverse((at, _))| *at);
            let timer = self.timer.filter(|at| *at != Instant::FAR);
            let arrival = later.peek().map(|(_, request)| Instant::START + request.arrives);
            let Some(at) = [answer, timer, arrival].into_iter().flatten().min() else { return };
            self.now = at.max(self.now);
            let effects = if timer == Some(at) {
                self.timer = None;
                self.state.woken(self.now, at)
            } else {
                match later.next_if(|_| answer != Some(at)) {
                    Some((number, request)) => self.ask(number, request),
                    None => self.answer(),
                }
                self.state.effects(self.now)
            };
            self.execute(effects);
        }
    }

    fn execute(&mut self, effects: Effects<usize>) {
        for grant in effects.grants {
            self.leave(grant.ticket, grant.slot);
        }
        match effects.timer {
            Timer::Keep => {}
            Timer::Set(at) => self.timer = Some(at),
            Timer::Ring => self.timer = self.timer.map(|_| self.now),
        }
    }

    fn leave(&mut self, number: usize, slot: Box<Slot>) {
        self.state.sent(self.now, &slot);
        self.left[number] = self.now;
        self.under_way[number] = Some((slot, self.now));
        self.answers.push(Reverse((self.now + self.latency, number)));
    }

    fn answer(&mut self) {
        let Some(Reverse((_, number))) = self.answers.pop() else { return };
        let Some((mut slot, sent)) = self.under_way[number].take() else { return };
        self.state.answered(self.now, &slot, sent, &AnswerReport::SERVED);
        self.state.settled(self.now, &mut slot, End::Answered);
    }
}
