//! An in-flight limit that is shared with other processes. A token is in use from the departure of a request to the end
//! of its response. When the responses to a cut-off member end is unknown: its tokens are withheld for the
//! [hold](Lease::hold) after its lease.

#[cfg(test)]
mod tests;

use std::{num::NonZeroU32, time::Duration};

use andante_clock::Instant;
use andante_fleet::{Entry, Lease, Peak, Share, Stock, micros, stretched};

use super::{Budget, Limit, NO_NEED, ShareReport, ShareUsage, duration, entry, usage, way};
use crate::{Margin, Ready, Unit, window::Lingering};

/// This process's share of an in-flight limit.
#[derive(Clone, Debug)]
pub(super) struct SharedInFlight {
    limit: NonZeroU32,
    share: Share,
    under_way: u32,
    /// Requests that have ended here. The API may learn that a request was aborted as late as it receives our next
    /// request.
    lingering: Lingering,
    /// Recent use, which the process keeps although others want more.
    lately: Peak,
    /// Longer-term use, which the process keeps with a reserve while no other member wants more.
    usually: Peak,
}

/// Responses may be shorter than calls to the store: tokens used within this time, or twice that, are not given away.
const LATELY: Duration = Duration::from_secs(1);
/// Tokens unused for this long are given back.
const USUALLY: Duration = Duration::from_secs(30);

// === impl SharedInFlight ===

impl SharedInFlight {
    fn new(limit: NonZeroU32, lease: &Lease) -> Self {
        let (share, lingering) = (nothing_of(lease.lendable(limit.get())), Lingering::default());
        Self { limit, share, under_way: 0, lingering, lately: Peak::new(LATELY), usually: Peak::new(USUALLY) }
    }

    pub(super) fn share(&mut self) -> &mut Share {
        &mut self.share
    }

    pub(super) fn is_over(&self) -> bool {
        self.share.is_over()
    }

    /// When the store begins to give out the limit's tokens, if the store is new and none are held.
    pub(super) fn opens(&self, now: Instant, lease: &Lease) -> Option<Instant> {
        Some(lease.opens(lease.hold())).filter(|opens| self.share.held() == 0 && self.share.own() == 0 && *opens > now)
    }

    /// Number of requests that may be in flight.
    fn usable(&mut self, now: Instant, lease: &Lease) -> u32 {
        let (limit, clears) = (self.limit.get(), cleared(lease));
        self.share.set_own(lease.own(now, limit, clears), limit - lease.lendable(limit));
        if lease.holds(now) { self.share.usable(now, self.under_way) } else { lease.alone(now, limit, clears) }
    }

    /// Tokens to keep while no other member wants any: one and a half times the use, plus one.
    fn most(&mut self, now: Instant) -> u32 {
        let usual = self.usually.read(now);
        usual.saturating_add(usual / 2 + 1)
    }

    fn stock(&mut self, now: Instant, waiting: u32) -> Stock {
        Stock {
            used: self.under_way,
            lingering: self.lingering.count(now),
            lately: self.lately.read(now),
            most: self.most(now).max(self.under_way.saturating_add(waiting)),
            backlog: waiting,
            again: 1,
            cost: waiting.min(1),
        }
    }

    /// Sets the number of requests in flight. Returns true if the store has to be called for that.
    fn set(&mut self, now: Instant, count: u32, margin: &Margin, lease: &Lease) -> bool {
        let (started, ended) = (count.saturating_sub(self.under_way), self.under_way.saturating_sub(count));
        self.under_way = count;
        self.lingering.last_for(way(margin));
        self.lingering.add(ended, now);
        self.lately.set(now, count);
        self.usually.set(now, count);
        if started == 0 {
            return ended > 0 && self.share.passes_on(now);
        }
        self.share.take(now, started);
        self.lingering.take(started);
        let (usable, most) = (self.usable(now, lease), self.most(now));
        // Call before the last token is used: otherwise the next request would have to wait for the store.
        usable.saturating_sub(count) <= usable / 8 && self.share.held() < most && self.share.calls(now)
    }

    /// Ends the share: its tokens are not used any more. Returns when others may use them, if the store knows of the
    /// share.
    pub(super) fn end(&mut self, now: Instant, margin: &Margin, lease: &Lease) -> Option<(Entry, Instant)> {
        let lendable = lease.lendable(self.limit.get());
        let gone = std::mem::replace(&mut self.share, nothing_of(lendable));
        if gone.is_over() {
            return None;
        }
        // The remaining duration of requests in flight is unknown.
        let free = now + if self.under_way > 0 { cleared(lease) } else { way(margin) };
        let holds =
            if self.under_way > 0 { gone.held().min(self.under_way + self.lingering.count(now)) } else { gone.held() };
        let entry = entry(&gone, lendable, lease.hold(), way(margin), NO_NEED);
        Some((Entry { holds, ..entry }, free))
    }
}

// === impl Budget ===

impl Budget {
    /// Limits the requests in flight of all processes together to `limit` from `now` on; `None` removes the limit. Does
    /// nothing if the budget is not shared.
    pub fn share_in_flight(&mut self, now: Instant, limit: Option<NonZeroU32>) {
        let Some(shared) = &mut self.shared else { return };
        match (&mut shared.in_flight, limit) {
            (None, None) => {}
            (Some(in_flight), Some(limit)) => in_flight.limit = limit,
            (None, Some(limit)) => shared.in_flight = Some(Box::new(SharedInFlight::new(limit, &shared.lease))),
            (Some(in_flight), None) => {
                shared.ended.extend(in_flight.end(now, &self.margin, &shared.lease));
                (shared.in_flight, shared.calls) = (None, true);
            }
        }
    }

    /// Sets the number of requests in flight that count for the in-flight limit.
    #[inline]
    pub fn under_way(&mut self, now: Instant, count: u32) {
        let Some(shared) = &mut self.shared else { return };
        if let Some(in_flight) = &mut shared.in_flight {
            shared.calls |= in_flight.set(now, count, &self.margin, &shared.lease);
        }
    }

    /// Returns true if the held part of the in-flight limit admits one more request.
    #[inline]
    pub fn has_room(&mut self, now: Instant) -> bool {
        let Some(shared) = &mut self.shared else { return true };
        let Some(in_flight) = &mut shared.in_flight else { return true };
        let room = in_flight.under_way < in_flight.usable(now, &shared.lease);
        // Tokens of windows are requested first.
        if !room && in_flight.share.calls(now) && !self.waits_for_windows(now) {
            self.shared.iter_mut().for_each(|shared| shared.calls = true);
        }
        room
    }

    /// Adds the in-flight limit, which `waiting` requests wait for, to the report of the lane called `name`. Call after
    /// [`speak`](Self::speak).
    pub fn speak_in_flight(&mut self, now: Instant, name: &str, waiting: u32, reports: bool, spoken: &mut ShareReport) {
        // Tokens of windows come first for all members: otherwise two members with one token of each kind would block
        // each other.
        let waiting = if self.waits_for_windows(now) { 0 } else { waiting };
        let Some(shared) = &mut self.shared else { return };
        let Some(in_flight) = &mut shared.in_flight else { return };
        let pool = format!("{name}\nin-flight");
        if *in_flight.share.pool != *pool {
            if let Some(ended) = in_flight.end(now, &self.margin, &shared.lease) {
                shared.ended.push(ended);
                spoken.next = now;
            }
            in_flight.share.pool = pool.into();
        }
        // Report the entry that held tokens of the same pool first.
        if spoken.entries.iter().any(|gone| gone.pool == in_flight.share.pool) {
            spoken.next = now;
            return;
        }
        in_flight.usable(now, &shared.lease);
        let stock = in_flight.stock(now, waiting);
        let need = in_flight.share.look(now, stock, shared.lease.holds(now), reports);
        if need.speaks {
            in_flight.share.told(now, need);
            let lendable = shared.lease.lendable(in_flight.limit.get());
            // The store withholds a dead member's tokens as for a window as long as the hold.
            let (hold, way) = (shared.lease.hold(), way(&self.margin));
            spoken.entries.push(entry(&in_flight.share, lendable, hold, way, need));
        }
        let falls = (stock.lately > stock.used).then(|| in_flight.lately.falls_at());
        let freed = in_flight.lingering.next().into_iter().chain(falls).min().unwrap_or(Instant::FAR);
        spoken.next = spoken.next.min(in_flight.share.next_look(now, stock, freed));
    }

    /// When the store will be asked again for more of the shared in-flight limit, if it was asked just now.
    pub fn asks_for_room_at(&self, now: Instant) -> Ready {
        let in_flight = self.shared.iter().flat_map(|shared| &shared.in_flight);
        in_flight.map(|in_flight| in_flight.share.asks_at()).find(|at| *at > now).map_or(Ready::OnEvent, Ready::At)
    }

    /// Returns true if there is a shared in-flight limit.
    pub fn shares_in_flight(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.in_flight.is_some())
    }

    /// Returns true if the next request would have to wait for another shared limit.
    fn waits_for_windows(&mut self, now: Instant) -> bool {
        self.meters.windows_mut().any(|limit| {
            // Each request counts as one; its other units are known if it waits for them.
            let full = |limit: &mut Limit| limit.used(now, &self.margin) >= limit.window.count();
            limit.share.is_some()
                && (limit.lacks(now, &self.margin) || limit.spec.unit == Unit::REQUESTS && full(limit))
        })
    }

    /// This process's share of the in-flight limit.
    pub fn in_flight_share(&mut self, now: Instant) -> Option<ShareUsage> {
        let shared = self.shared.as_mut()?;
        let in_flight = shared.in_flight.as_mut()?;
        in_flight.usable(now, &shared.lease);
        let (share, under_way) = (&in_flight.share, in_flight.under_way);
        Some(usage(share, under_way, now, in_flight.opens(now, &shared.lease)))
    }
}

/// An empty share of an in-flight limit. The limit has no window: a token is free when a response ends.
fn nothing_of(lendable: u32) -> Share {
    Share::new("".into(), lendable, Duration::ZERO)
}

/// Time after a member's lease by which its last response has ended.
fn cleared(lease: &Lease) -> Duration {
    duration(stretched(micros(lease.hold())))
}
