//! One budget and its queue, behind one short lock.
//!
//! If nobody waits and every limit says *now*, a request passes on the spot. Otherwise it takes a ticket. While somebody
//! waits, one task per lane sleeps until the next slot matures, and only then is the ticket chosen that gets it.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::{Admission, Ask, Permit, Refusal, Snapshot, Tally, Waiting, permit::Stage, tell::tell};
use crate::{
    clock::{Clock, Instant},
    hint::{Cause, Signal},
    learn::{self, Change, Changes, Heard, Learned, RouteKey, Routes},
    limit::{Budget, Cost, Unit},
    metrics::RuleMetrics,
    policy::{Policy, Trust},
    queue::{Place, Queue},
};

/// The queue and the limits of one budget.
pub struct Lane {
    host: Arc<str>,
    policy: Arc<Policy>,
    metrics: Arc<RuleMetrics>,
    clock: Clock,
    state: Mutex<State>,
    /// Tells the driver that the next slot matures earlier than it sleeps.
    sooner: Notify,
    /// Whether any kind of request pauses.
    pauses: AtomicBool,
}

struct State {
    budget: Budget,
    learned: Learned,
    routes: Routes,
    queue: Queue<Ticket>,
    in_flight: u32,
    /// Until when the driver sleeps; `None` while there is none.
    armed: Option<Instant>,
    tally: Tally,
    /// What has changed and was not told yet.
    news: Changes,
}

/// A place in the queue, seen from the lane.
struct Ticket {
    grant: oneshot::Sender<Permit>,
    since: Instant,
}

/// What was learned is remembered for so long after the last request, though there are many lanes.
const MEMORY: Duration = Duration::from_secs(3600);

/// Permits for tickets, to be handed over once the lock is released: whoever has left meanwhile gives back his own.
type Grants = SmallVec<[(oneshot::Sender<Permit>, Permit); 2]>;

// === impl Lane ===

impl Lane {
    /// A lane in which nothing has happened yet.
    pub fn new(host: Arc<str>, policy: Arc<Policy>, metrics: Arc<RuleMetrics>, clock: Clock) -> Self {
        let now = clock.now();
        let budget = Budget::new(&policy.limits, policy.margin, now);
        let state = State {
            budget: if policy.trust == Trust::Api { budget.yielding() } else { budget },
            learned: Learned::new(&policy, now),
            routes: Routes::default(),
            queue: Queue::new(),
            in_flight: 0,
            armed: None,
            tally: Tally::default(),
            news: Changes::new(),
        };
        Self {
            host,
            policy,
            metrics,
            clock,
            state: Mutex::new(state),
            sooner: Notify::new(),
            pauses: AtomicBool::new(false),
        }
    }

    /// Asks for a slot. Must be called on a tokio runtime, which drives the lane while somebody waits.
    pub fn admit(self: &Arc<Self>, ask: Ask) -> Admission {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.queue.is_empty() && self.earliest(&mut state, now, ask.cost) <= now {
            let permit = self.grant(&mut state, now, (now, now), ask.cost);
            drop(state);
            self.metrics.wait_seconds.observe(0.0);
            return Admission::Send(permit);
        }
        self.line_up(state, now, ask)
    }

    /// Lets a request of the kind `route` ask for a slot, unless requests of its kind pause: until when.
    ///
    /// # Errors
    /// When to ask again.
    pub fn pass(&self, route: RouteKey) -> Result<(), Instant> {
        let now = self.clock.now();
        self.state.lock().routes.pass(route, now)
    }

    /// Whether any kind of request pauses. Takes no lock.
    pub fn has_pauses(&self) -> bool {
        self.pauses.load(Ordering::Relaxed)
    }

    /// Whether the upstream is left alone because it fails.
    pub fn is_broken(&self) -> bool {
        self.state.lock().learned.is_broken()
    }

    /// For how long nothing leaves, as far as is known.
    pub fn closed_for(&self) -> Duration {
        let now = self.clock.now();
        self.state.lock().learned.closed(now).map_or(Duration::ZERO, |(until, _)| until.since(now))
    }

    /// Whether one more request may be sent again although the upstream is in trouble; counts it if so.
    pub fn may_retry(&self) -> bool {
        self.state.lock().learned.may_retry()
    }

    /// How many answers were no refusals.
    pub fn served(&self) -> u64 {
        let tally = &self.state.lock().tally;
        tally.answered - tally.refused_by_api
    }

    /// The policy that holds here.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Where this lane is counted.
    pub fn metrics(&self) -> &Arc<RuleMetrics> {
        &self.metrics
    }

    /// The host whose budget this is.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// How many wait, and when the next slot matures: what warming a connection needs to know.
    pub fn outlook(&self) -> (usize, Instant) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let cost = state.queue.first().unwrap_or(Cost::MIN);
        let (learned, budget) = (state.learned.earliest(now, cost), state.budget.earliest(now, cost));
        (state.queue.len(), learned.max(budget))
    }

    /// The lane as it stands.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let waiting = state.queue.len();
        let known = |at: Instant| (at != Instant::FAR).then(|| at.since(now));
        let next = self.earliest(&mut state, now, Cost::MIN);
        let last = state.queue.units().saturating_sub(1);
        let closed = state.learned.closed(now);
        let projected = state.budget.project(now, last, Cost::MIN);
        let drained = closed.map_or(projected, |(until, _)| projected.max(until));
        Snapshot {
            rule: self.policy.name.clone(),
            host: self.host.clone(),
            limits: state.budget.usage(now),
            in_flight: state.in_flight,
            in_flight_limit: self.policy.in_flight.map(Cost::get),
            waiting,
            next_slot: known(next),
            drain: if waiting == 0 { Some(Duration::ZERO) } else { known(drained) },
            gate: closed.map(|(until, reason)| (reason, until.since(now))),
            budgets: state.learned.budgets(now),
            failures: state.learned.failures(),
            tally: state.tally,
        }
    }

    /// Whether somebody waits although his slot has matured.
    #[cfg(test)]
    pub(super) fn loses_slots(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some(cost) = state.queue.first() else { return false };
        self.earliest(&mut state, now, cost) <= now
    }

    /// Whether a new lane would do the same from now on.
    pub(super) fn is_idle(&self) -> bool {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let remembers =
            !state.learned.is_blank() && state.tally.active.is_some_and(|(_, last)| now.since(last) < MEMORY);
        state.in_flight == 0 && state.queue.is_empty() && state.budget.is_idle(now) && !remembers
    }

    pub(super) fn sent(self: &Arc<Self>, unit: Unit, cost: Cost) -> Instant {
        let now = self.clock.now();
        self.change(|state| {
            state.budget.sent(unit, cost, now);
            state.tally.sent += 1;
            state.tally.active = Some((state.tally.active.map_or(now, |(first, _)| first), now));
        });
        now
    }

    /// What was sent has not been written after all.
    pub(super) fn recall(self: &Arc<Self>, unit: Unit, cost: Cost) {
        self.change(|state| {
            state.budget.recall(unit, cost);
            state.tally.sent -= 1;
        });
    }

    /// The answer of what was sent at `sent` is here.
    pub(super) fn answered(self: &Arc<Self>, unit: Unit, cost: Cost, sent: Instant, heard: &Heard<'_>) {
        let now = self.clock.now();
        self.metrics.upstream_seconds.observe(now.since(sent).as_secs_f64());
        self.change(|state| {
            state.budget.sent(unit, cost, sent);
            state.budget.answered(unit, cost, now);
            state.budget.observe(now, now.since(sent));
            state.tally.answered += 1;
            let quota = heard.hint.cause == Cause::Quota;
            // Either the hint says so, or others are served all the time.
            let elsewhere =
                state.learned.is_elsewhere(heard.hint, heard.route) || quota && state.routes.is_alone(heard.route);
            let news =
                state.learned.heard((sent, now), unit, heard, (elsewhere, !state.queue.is_empty()), &mut state.budget);
            state.news.extend(news);
            if !quota {
                state.routes.served(heard.route, sent);
            }
            if elsewhere && (quota || heard.hint.signal == Signal::Exhausted) {
                let pause = state.routes.refused(heard.route, learn::wait(heard.hint), (sent, now));
                state.news.extend(pause.map(Change::Route));
            } else if quota {
                state.budget.refused(now, sent);
            }
            state.tally.refused_by_api += u64::from(quota);
            self.pauses.store(!state.routes.is_empty(), Ordering::Relaxed);
        });
    }

    /// An answer has not come in time.
    pub fn late(self: &Arc<Self>) {
        let now = self.clock.now();
        self.change(|state| {
            let news = state.learned.late(now);
            state.news.extend(news);
        });
    }

    /// What was taken as `unit` could not be sent, or broke off.
    pub(super) fn broke(self: &Arc<Self>, unit: Unit) {
        let now = self.clock.now();
        self.change(|state| {
            let news = state.learned.broke(now, unit);
            state.news.extend(news);
        });
    }

    /// A permit has reached its end at `stage`.
    pub(super) fn settle(self: &Arc<Self>, unit: Unit, cost: Cost, stage: Stage) {
        self.metrics.in_flight.dec();
        self.change(|state| {
            state.in_flight -= 1;
            if stage != Stage::Answered {
                state.learned.ended(unit, stage != Stage::Held);
            }
            match stage {
                Stage::Held => state.budget.give_back(unit, cost),
                Stage::Sent(_) => state.budget.abandoned(unit, cost, self.clock.now()),
                Stage::Answered => {}
            }
        });
    }

    fn has_room(&self, state: &State) -> bool {
        self.policy.in_flight.is_none_or(|limit| state.in_flight < limit.get())
    }

    /// The first instant at which a request of `cost` may leave, as far as is known now.
    fn earliest(&self, state: &mut State, now: Instant, cost: Cost) -> Instant {
        if !self.has_room(state) {
            // An answer or a departure calls again: there is nothing to sleep for.
            return Instant::FAR;
        }
        state.budget.earliest(now, cost).max(state.learned.earliest(now, cost))
    }

    /// Lets a request go `now` that has waited since `since`, and could have gone at `due`.
    fn grant(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        (since, due): (Instant, Instant),
        cost: Cost,
    ) -> Permit {
        let unit = state.budget.take(now, due, cost);
        let news = state.learned.take(now, unit, now > since, &mut state.budget);
        state.news.extend(news);
        state.in_flight += 1;
        let waited = now.since(since);
        state.tally.waited += waited;
        state.tally.waited_most = state.tally.waited_most.max(waited);
        self.metrics.in_flight.inc();
        Permit::new(self.clone(), unit, cost)
    }

    #[cold]
    fn line_up(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>, now: Instant, ask: Ask) -> Admission {
        let ahead = state.queue.units();
        // Who has been sent before goes in front.
        let ahead = if ask.again { 0 } else { ahead };
        let opens = state.learned.closed(now).map_or(now, |(until, _)| until);
        let expected = state.budget.project(now, ahead, ask.cost).max(opens);
        if let Some(refusal) = self.refusal(&mut state, now, expected, ask) {
            state.tally.refused += 1;
            return Admission::Refuse(refusal);
        }
        let (sender, grant) = oneshot::channel();
        let place = state.queue.push(ask.cost, ask.again, Ticket { grant: sender, since: now });
        self.metrics.waiting.inc();
        if state.armed.is_none() {
            state.armed = Some(Instant::FAR);
            tokio::spawn(self.clone().drive());
        } else if state.queue.len() == 1 {
            // The driver still sleeps for somebody who has been served or has left since.
            self.sooner.notify_one();
        }
        Admission::Wait(Waiting { lane: self.clone(), place, grant, granted: false, expected })
    }

    fn refusal(&self, state: &mut State, now: Instant, expected: Instant, ask: Ask) -> Option<Refusal> {
        let waiting = state.queue.len();
        // Nobody knows when a place in flight becomes free, but it is not now.
        let least = if self.has_room(state) { Duration::ZERO } else { Duration::from_millis(1) };
        let wait = expected.since(now).max(least);
        if waiting >= self.policy.max_waiting {
            let retry_after = state.budget.earliest(now, state.queue.first().unwrap_or(Cost::MIN));
            let retry_after = if retry_after == Instant::FAR { wait } else { retry_after.since(now) };
            return Some(Refusal::Full { waiting, retry_after });
        }
        let patience = ask.patience.min(self.policy.max_wait);
        (wait > patience).then(|| Refusal::TooLong { waiting, wait, patience, retry_after: wait - patience })
    }

    /// Changes the state, and hands out what slots that has freed.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let mut grants = Grants::new();
        if !state.queue.is_empty() {
            let next;
            (grants, next) = self.serve(&mut state, self.clock.now());
            if state.armed.is_some_and(|armed| next < armed) {
                self.sooner.notify_one();
            }
        }
        let news = mem::take(&mut state.news);
        drop(state);
        self.hand_over(grants);
        tell(self, &news);
    }

    /// Gives every slot that has matured to whoever is first *now*; also says when the next one matures.
    fn serve(self: &Arc<Self>, state: &mut State, now: Instant) -> (Grants, Instant) {
        let mut grants = Grants::new();
        let due = state.armed.map_or(now, |armed| armed.min(now));
        while let Some(cost) = state.queue.first() {
            let next = self.earliest(state, now, cost);
            if next > now {
                return (grants, next);
            }
            let (cost, ticket) = state.queue.pop().expect("there is a first one");
            self.metrics.waiting.dec();
            if !ticket.grant.is_closed() {
                let permit = self.grant(state, now, (ticket.since, due), cost);
                self.metrics.wait_seconds.observe(now.since(ticket.since).as_secs_f64());
                grants.push((ticket.grant, permit));
            }
        }
        (grants, Instant::FAR)
    }

    fn hand_over(&self, grants: Grants) {
        for (ticket, permit) in grants {
            // Who has left in this very moment drops the permit here, which gives it back.
            drop(ticket.send(permit));
        }
    }

    /// Sleeps from slot to slot while somebody waits: the one timer of this lane.
    async fn drive(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (grants, next, news) = {
                let mut state = self.state.lock();
                let (grants, next) = self.serve(&mut state, now);
                state.armed = (!state.queue.is_empty()).then_some(next);
                (grants, state.armed, mem::take(&mut state.news))
            };
            self.hand_over(grants);
            tell(&self, &news);
            let Some(next) = next else { return };
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    pub(super) fn leave(self: &Arc<Self>, place: Place) {
        self.change(|state| {
            if state.queue.remove(place).is_some() {
                self.metrics.waiting.dec();
            }
        });
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("host", &self.host).field("rule", &self.policy.name).finish_non_exhaustive()
    }
}
