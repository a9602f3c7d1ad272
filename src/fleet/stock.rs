//! A member's use of one limit at one instant, and the report that follows.

/// A member's use of one limit at one instant, and its needs.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Units that count in the member's own windows.
    pub used: u32,
    /// Units that count no more for the member, but still for others.
    pub lingering: u32,
    /// Units recently in use at once: the member keeps as many, up to its share. 0 for a window, where they are `used`.
    pub lately: u32,
    /// Maximum number of units of use to the member while no other wants any: a crash would withhold them.
    pub most: u32,
    /// Units that waiting requests take.
    pub backlog: u32,
    /// Units per window that each waiting unit stands for, if its worker sent a new request with each response.
    pub again: u32,
    /// Units that the next request takes at once; 0 if none waits.
    pub cost: u32,
}

/// Report to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareNeed {
    /// There is something to report.
    pub speaks: bool,
    /// Further tokens that are of use.
    pub want: u32,
    /// Tokens that the next request takes; 0 if none waits.
    pub cost: u32,
    /// Tokens that the next request lacks.
    pub need: u32,
    /// Demand to report.
    pub demand: u32,
    /// No tokens are held or needed any more.
    pub ends: bool,
}

/// Requests that lack only this limit may grow by `1 / SLACK` beyond what other limits admit: their costs differ.
const SLACK: f64 = 8.0;

/// Amounts that differ by less than `1 / ALIKE` are about equal.
const ALIKE: u32 = 16;

// === impl ShareNeed ===

impl ShareNeed {
    /// Returns true if the store would act about the same on this report as on `said`. A report can wait, whatever its
    /// size, if the next request lacks nothing.
    pub(super) fn is_like(self, said: Self) -> bool {
        let less = |now: u32, before: u32| now <= before && before - now <= before / ALIKE;
        let waits = less(self.cost, said.cost) && less(self.need, said.need) && less(self.want, said.want);
        let about = self.demand.abs_diff(said.demand) <= said.demand / ALIKE;
        about && self.ends == said.ends && (waits || self.need == 0 && said.need == 0)
    }
}

// === impl Stock ===

impl Stock {
    /// Bounds the backlog: other limits admit at most `growth` times the current use, and units beyond that do not wait
    /// for this limit. The next request is always included; it may take as much as `next`. If it `lacks` tokens of this
    /// limit, the bound is a little larger.
    pub fn at_most(self, growth: f64, lacks: bool, next: u32) -> Self {
        if self.used == 0 {
            return self;
        }
        let slack = if lacks { 1.0 + 1.0 / SLACK } else { 1.0 };
        // Float casts saturate.
        let more = (f64::from(self.used) * (growth.max(1.0) * slack - 1.0)).ceil() as u32;
        Self { backlog: self.backlog.min(more.max(self.cost).max(next)), ..self }
    }

    /// Use and need beyond `own` units, which no store knows of. No member can be granted more than `most` tokens for a
    /// request.
    pub(super) fn beyond(self, own: u32, most: u32) -> Self {
        let free = own.saturating_sub(self.used);
        let cost = self.cost.saturating_sub(free).max(self.cost.min(1));
        let (backlog, cost) = if cost > most { (0, 0) } else { (self.backlog, cost) };
        Self {
            used: self.used.saturating_sub(own),
            lingering: self.lingering.saturating_sub(free),
            lately: self.lately.saturating_sub(own),
            backlog,
            cost,
            ..self
        }
    }

    /// Free units that the member keeps, because it has used as many at once.
    pub(super) fn kept(self) -> u32 {
        self.lately.saturating_sub(self.used.saturating_add(self.lingering))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5,000 units wait, 50 of them for the next request, while 100 are used.
    #[test]
    fn what_other_limits_do_not_let_through_does_not_wait_for_this_one() {
        let stock = Stock { used: 100, lingering: 0, lately: 0, most: u32::MAX, backlog: 5000, again: 1, cost: 50 };
        let waits = |growth, lacks, next| stock.at_most(growth, lacks, next).backlog;
        // The other limits admit three times as much: 200 more.
        assert_eq!((waits(3.0, false, 0), waits(3.0, true, 0)), (200, 238));
        // The other limits admit no more: only the next request waits, which may be as large as those before.
        assert_eq!((waits(1.0, false, 0), waits(0.5, true, 0), waits(1.0, false, 80)), (50, 50, 80));
        // An unused limit has no backlog that other limits block.
        assert_eq!(
            (waits(f64::MAX, false, 0), Stock { used: 0, ..stock }.at_most(1.0, false, 0).backlog),
            (5000, 5000)
        );
    }
}
