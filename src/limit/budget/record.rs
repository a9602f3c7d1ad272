//! The persisted form of a budget, for a restart without loss. Times are on a clock that continues over restarts.

#[cfg(test)]
mod tests;

use std::time::Duration;

use andante_clock::Instant;
use serde::{Deserialize, Serialize};

use super::{Budget, Limit, Meter};
use crate::{
    Amount, CalendarCount, Gcra, LimitSpec, Margin, MarginSpec, Rate, Source, Unit,
    ahead::{self, WrittenAhead},
    book::UnitBook,
    calendar::CalendarRecord,
    lesser,
    margin::MarginRecord,
    window::WindowEntry,
};

/// A budget as it is stored, without learned limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetRecord {
    /// When the record was made.
    pub at: Instant,
    limits: Vec<LimitRecord>,
    calendar: Vec<CalendarRecord>,
    histories: Vec<(Unit, HistoryRecord)>,
    margin: MarginRecord,
    last: Option<Instant>,
    /// Units of each kind that may be taken before the next record; `None` in the last record of a process.
    ahead: Option<Vec<(Unit, u32)>>,
}

/// First instant, last instant and number of units of each entry.
type HistoryRecord = Vec<(Instant, Instant, u64)>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LimitRecord {
    unit: Unit,
    count: Amount,
    /// Length of the window in nanoseconds.
    per: u64,
    burst: Option<Amount>,
    strict: bool,
    tat: Option<Instant>,
    taken: Instant,
    lacks_until: Instant,
    window: Vec<WindowEntry>,
}

/// A time span without a record of taken units: it counts as used to the full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// All units taken up to this instant are recorded; `None` if nothing at all is known.
    pub from: Option<Instant>,
    /// From this instant on units are recorded again.
    pub until: Instant,
}

// === impl Gap ===

impl Gap {
    /// A gap without any knowledge of units taken before `until`.
    pub fn lost(until: Instant) -> Self {
        Self { from: None, until }
    }
}

impl Budget {
    /// When a request last took units.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Returns true if some limit is so long that a persisted budget spends it in blocks.
    pub fn has_long_limits(&self) -> bool {
        self.long_limits().next().is_some()
    }

    /// Sets whether units of long limits are persisted before they are taken.
    pub fn set_kept(&mut self, kept: bool) {
        let units: Vec<Unit> = self.long_limits().filter(|_| kept).map(Meter::unit).collect();
        for book in self.books.iter_mut().filter(|book| !units.contains(&book.unit)) {
            book.ahead = None;
        }
        units.into_iter().for_each(|unit| _ = self.book(unit).ahead.get_or_insert_default());
    }

    /// Units that are persisted ahead.
    fn ahead(&mut self) -> impl Iterator<Item = (Unit, &mut WrittenAhead)> {
        self.books.iter_mut().filter_map(|book| Some((book.unit, book.ahead.as_deref_mut()?)))
    }

    /// Returns true, once for each block, if the next block has to be persisted.
    pub fn asks_for_block(&mut self) -> bool {
        let low = self.ahead().any(|(_, ahead)| ahead.is_low());
        if low {
            // The record contains the next block of every unit.
            self.ahead().for_each(|(_, ahead)| ahead.ask());
        }
        low
    }

    /// The record to store. With `last`, no units will be taken after it.
    pub fn record(&mut self, now: Instant, last: bool) -> BudgetRecord {
        let units: Vec<Unit> = self.ahead().filter(|_| !last).map(|(unit, _)| unit).collect();
        let mut promised = Vec::new();
        for unit in units {
            let block = self.block(unit, now);
            promised.extend(self.book(unit).ahead.as_mut().map(|ahead| (unit, ahead.promise(block))));
        }
        let ahead = (!last).then_some(promised);
        let margin = &self.margin;
        let configured = self.meters.windows_mut().filter(|limit| limit.source == Source::Config);
        let limits = configured.map(|limit| LimitRecord::of(limit, now, margin)).collect();
        BudgetRecord {
            at: now,
            limits,
            calendar: self.meters.calendars_mut().map(|count| count.record()).collect(),
            histories: self.books.iter().map(|book| (book.unit, book.history.record())).collect(),
            margin: self.margin.record(),
            last: self.last,
            ahead,
        }
    }

    /// Marks the record that was made last as written.
    pub fn written(&mut self) {
        self.ahead().for_each(|(_, ahead)| ahead.written());
    }

    /// Restores the budget of `record`, under the limits that held when it was made. A `gap` since then counts as used
    /// to the full. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn restored(
        record: &BudgetRecord,
        margin: MarginSpec,
        gap: Option<Gap>,
        now: Instant,
        epoch: Duration,
    ) -> Self {
        let mut budget = Self::new(&[], margin, now);
        // Learning begins at number 0 and tells units from earlier ones by their numbers, so units begin at 1.
        budget.next = 1;
        budget.margin = Margin::restored(margin, &record.margin);
        budget.books = record.histories.iter().map(|(unit, history)| UnitBook::restored(*unit, history)).collect();
        budget.last = record.last.map(|last| last.min(now));
        for limit in &record.limits {
            let limit = limit.restored(&mut budget, now);
            budget.meters.0.push(Meter::Window(limit));
        }
        let calendar = record.calendar.iter().filter_map(|record| CalendarCount::restored(record, epoch));
        budget.meters.0.extend(calendar.map(Meter::Calendar));
        // A process that persists ahead and ends in order withdraws the promise.
        let unknown = Gap { from: Some(record.at), until: now };
        let gap = gap.filter(|gap| record.at < gap.until);
        for unit in budget.units() {
            let ahead = record.ahead.iter().flatten().find(|(other, ahead)| *other == unit && *ahead > 0);
            match (gap, ahead) {
                (gap, Some((_, ahead))) => budget.presume_of(unit, gap.unwrap_or(unknown), Some(*ahead)),
                (Some(gap), None) => {
                    budget.presume_of(unit, Gap { from: gap.from.max(Some(record.at)), ..gap }, None);
                }
                (None, None) => {}
            }
        }
        budget
    }

    /// Counts as many units as could be taken in `gap`, as if they had been taken at its end.
    pub fn presume(&mut self, gap: Gap) {
        self.units().into_iter().for_each(|unit| self.presume_of(unit, gap, None));
    }

    /// Units that the limits count, and always requests.
    fn units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = self.meters.0.iter().map(Meter::unit).chain([Unit::REQUESTS]).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Presumes use of one `unit` in `gap`, at most `most`.
    fn presume_of(&mut self, unit: Unit, gap: Gap, most: Option<u32>) {
        let most = u64::from(most.unwrap_or(u32::MAX));
        let configured = self
            .meters
            .windows()
            .filter(|limit| limit.source == Source::Config && limit.spec.unit == unit && !self.yields);
        // Units that one limit stopped have counted for no limit.
        let possible = |limit: &Limit| gap.from.map_or(most, |from| limit.gcra.possible(from, gap.until));
        let units = u32::try_from(configured.map(possible).fold(most, u64::min)).unwrap_or(u32::MAX);
        let Some(all) = Amount::new(units) else { return };
        for limit in self.meters.windows_mut().filter(|limit| limit.spec.unit == unit) {
            let margin = limit.margin(&self.margin);
            let free = limit.spec.rate.count.get().saturating_sub(limit.window.used(gap.until, margin));
            limit.gcra.charge_all([(gap.until, units.into())].into_iter(), Some(gap.until));
            let Some(cost) = Amount::new(units.min(free)) else { continue };
            let late = limit.late(&self.margin);
            limit.window.count_answered(self.next, cost, gap.until, gap.until + late);
            limit.taken = gap.until;
            self.next += u64::from(cost.get());
        }
        for limit in self.meters.calendars_mut().filter(|limit| limit.unit() == unit) {
            limit.take(gap.until, self.next, all.min(limit.count()));
            self.next += u64::from(units);
        }
        if units < u32::MAX {
            let next = self.next;
            self.book(unit).history.take(gap.until, next, all);
        }
        self.last = self.last.max(Some(gap.until));
    }

    /// Counts short limits as used up, because nothing is known of units taken before `until`. Long limits do not:
    /// requests would wait for far longer than the risk is worth.
    pub fn presume_short(&mut self, until: Instant) {
        let long = self.meters.remove(Meter::is_long);
        self.presume(Gap::lost(until));
        self.meters.0.extend(long);
    }

    fn long_limits(&self) -> impl Iterator<Item = &Meter> {
        self.meters.0.iter().filter(|meter| meter.source() == Source::Config && meter.is_long())
    }

    /// Size of the next block of `unit` under its long limits.
    fn block(&mut self, unit: Unit, now: Instant) -> u32 {
        let margin = &self.margin;
        let long = self.meters.configured(unit).filter(|meter| meter.is_long());
        let blocks = long.map(|meter| {
            let (count, left) = meter.room(now, margin);
            ahead::block(count, left)
        });
        blocks.min().unwrap_or(1)
    }
}

// === impl LimitRecord ===

impl LimitRecord {
    fn of(limit: &mut Limit, now: Instant, margin: &Margin) -> Self {
        let LimitSpec { unit, rate, burst, strict } = limit.spec;
        Self {
            unit,
            count: rate.count,
            per: andante_clock::nanos(rate.per),
            burst,
            strict,
            tat: limit.gcra.tat(),
            taken: limit.taken,
            lacks_until: limit.lacks_until,
            window: limit.window.record(now, limit.margin(margin)),
        }
    }

    /// Restores this limit for `budget`. No response will arrive for requests that were in flight.
    fn restored(&self, budget: &mut Budget, now: Instant) -> Limit {
        // A file written by hand must not lead to a division by zero.
        let per = Duration::from_nanos(self.per.max(u64::from(self.count.get())));
        let rate = Rate { count: self.count, per };
        let mut limit = Limit::new(
            Source::Config,
            LimitSpec {
                unit: self.unit,
                rate,
                burst: self.burst.map(|burst| lesser(burst, self.count)),
                strict: self.strict,
            },
            0,
        );
        limit.gcra = Gcra::restored(&limit.spec, self.tat);
        limit.taken = self.taken.min(now);
        limit.lacks_until = self.lacks_until;
        let late = limit.late(&budget.margin);
        limit.window.restore(&self.window, now, late, &mut budget.next);
        limit
    }
}
