//! Changes the limits of a budget in use: sent requests stay sent.

use std::time::Duration;

use andante_clock::Instant;

use super::{Budget, Limit, Meter, Meters};
use crate::{Amount, CalendarCount, CalendarLimit, Gcra, LimitSpec, MarginSpec, Seq, Source, Unit};

impl Budget {
    /// Replaces the configured limits by `limits` and the margin for jitter by `margin`, from `now` on.
    ///
    /// A limit whose window is as long as before continues where it was: a raised limit gives no fresh burst, and a
    /// lowered limit holds at once. A limit with another window begins with all requests that are known to have been
    /// sent. Limits that are not among `limits` end. Learned limits stay.
    pub fn reconfigure(&mut self, limits: &[LimitSpec], margin: MarginSpec, now: Instant) {
        self.margin.respecify(margin);
        let configured = |limit: &Limit| limit.source == Source::Config;
        if self.meters.windows().filter(|limit| configured(limit)).map(|limit| &limit.spec).eq(limits) {
            return;
        }
        let before = self.meters.remove(|meter| matches!(meter, Meter::Window(limit) if configured(limit)));
        let mut before: Vec<Limit> = Meters(before).windows().cloned().collect();
        let known: Vec<_> = before.iter().map(|limit| Limit { share: None, ..limit.clone() }).collect();
        for (place, spec) in limits.iter().enumerate() {
            let alike = |limit: &&Limit| limit.spec.unit == spec.unit;
            let same = before.iter().position(|limit| alike(&limit) && limit.spec.rate.per == spec.rate.per);
            let limit = match same {
                Some(same) => self.respecified(before.swap_remove(same), spec, now),
                None => {
                    let longest = known.iter().filter(alike).max_by_key(|limit| limit.spec.rate.per);
                    self.added(longest, spec, now)
                }
            };
            self.meters.0.insert(place, Meter::Window(limit));
        }
        before.into_iter().for_each(|gone| self.end_share(gone));
        self.share_limits();
    }

    /// Replaces the calendar limits. A limit that is renewed as before keeps its usage; a new limit begins with the
    /// usage that the history knows. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn reconfigure_calendar(&mut self, limits: &[CalendarLimit], epoch: Duration) {
        let mut before = Meters(self.meters.remove(|meter| matches!(meter, Meter::Calendar(_))));
        for limit in limits {
            let kept = before.calendars_mut().find_map(|count| count.respecified(limit));
            let count = kept.unwrap_or_else(|| {
                let mut count = CalendarCount::new(limit.clone(), epoch);
                self.next = take_all(&mut count, self.spent(limit.unit, Instant::START), self.next);
                count
            });
            self.meters.0.push(Meter::Calendar(count));
        }
    }

    /// Sets whether configured limits hold only until a limit is learned.
    pub fn set_yielding(&mut self, yields: bool) {
        self.yields = yields;
    }

    /// Takes over the requests of `other` from `now` on. Units that `other` sent `since` then count here too; units
    /// sent before then count already.
    pub fn absorb(&mut self, other: &Self, since: Instant, now: Instant) {
        self.last = self.last.max(other.last);
        for meter in self.meters.0.iter_mut().filter(|meter| meter.source() == Source::Config) {
            let spent = other.spent(meter.unit(), since);
            self.next = match meter {
                Meter::Window(limit) => {
                    limit.gcra.charge_all(spent.iter().copied(), self.last);
                    count(limit, spent.into_iter().rev(), self.next, now)
                }
                Meter::Calendar(count) => take_all(count, spent, self.next),
            };
        }
        other.histories.iter().for_each(|(unit, history)| self.history(*unit).absorb(history, since));
    }

    /// Returns `limit` with the count, burst and strictness of `spec`, which has the same window.
    fn respecified(&mut self, mut limit: Limit, spec: &LimitSpec, now: Instant) -> Limit {
        limit.gcra.reconfigure(&limit.spec, spec, self.last, now);
        limit.window.retune(spec);
        limit.spec = *spec;
        if now < limit.lacks_until {
            self.count_history(&mut limit, now);
        }
        limit
    }

    /// Returns a limit with a window that no limit had before. The `longest` earlier limit knows the requests in
    /// flight, the history knows the sent ones.
    fn added(&mut self, longest: Option<&Limit>, spec: &LimitSpec, now: Instant) -> Limit {
        let mut limit = longest.cloned().unwrap_or_else(|| Limit::new(Source::Config, *spec, self.next));
        limit.spec = *spec;
        limit.window.retune(spec);
        limit.gcra = Gcra::new(spec);
        limit.gcra.charge_all(self.spent(spec.unit, Instant::START).into_iter(), self.last);
        self.count_history(&mut limit, now);
        limit
    }

    /// Replaces the settled units of `limit` by those that the history knows, counting each unit once. Units of
    /// requests in flight stay separate, because their events are still to come. The history does not mark them: the
    /// last units are assumed to be theirs.
    fn count_history(&mut self, limit: &mut Limit, now: Instant) {
        let mut under_way = u64::from(limit.window.forget_answered(self.last.unwrap_or(now)));
        let settled = self.spent(limit.spec.unit, Instant::START).into_iter().rev().filter_map(|(at, spent)| {
            let units = spent.saturating_sub(under_way);
            under_way = under_way.saturating_sub(spent);
            (units > 0).then_some((at, units))
        });
        self.next = count(limit, settled, self.next, now);
    }

    /// Units of `unit` taken since `since`, with their instants, as far as the history knows; oldest first.
    fn spent(&self, unit: Unit, since: Instant) -> Vec<(Instant, u64)> {
        let history = self.histories.iter().find(|(other, _)| *other == unit);
        let entries = history.into_iter().flat_map(|(_, history)| history.iter()).filter(|entry| entry.last >= since);
        entries.map(|entry| (entry.last, entry.units)).collect()
    }
}

/// Counts `spent` units for `calendar`, numbered from `next` on. Returns the next number.
fn take_all(calendar: &mut CalendarCount, spent: Vec<(Instant, u64)>, mut next: Seq) -> Seq {
    for (at, units) in spent {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // No request has these numbers: its units left long ago.
        Amount::new(units).into_iter().for_each(|amount| calendar.take(at, next, amount));
        next += u64::from(units);
    }
    next
}

/// Counts those `spent` units, newest first, that still count at `now`; they are numbered from `next` on. Returns the
/// next number.
fn count(limit: &mut Limit, spent: impl Iterator<Item = (Instant, u64)>, mut next: Seq, now: Instant) -> Seq {
    let per = limit.spec.rate.per;
    // Units beyond a full window are irrelevant: the next request waits for the newest units.
    let mut room = u64::from(limit.spec.rate.count.get());
    let mut counted = Vec::new();
    for (at, units) in spent.take_while(|(at, _)| *at + per > now) {
        if units > room {
            limit.lacks_until = now + per;
        }
        let Some(amount) = u32::try_from(units.min(room)).ok().and_then(Amount::new) else { break };
        room -= u64::from(amount.get());
        counted.push((at, amount));
    }
    for (at, amount) in counted.into_iter().rev() {
        limit.window.count_answered(next, amount, at, at);
        next += u64::from(amount.get());
    }
    next
}
