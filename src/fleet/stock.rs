//! What a member has of one limit at one instant, and what it has to say of that.

/// What a member has of a limit at one instant, and what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Units that count in the member's own windows.
    pub used: u32,
    /// Units that count no more for itself, and still do for others.
    pub lingering: u32,
    /// How many it has used at once lately: it keeps as many, up to its share. Of a window, 0: there they are `used`.
    pub lately: u32,
    /// More are of no use to it, as long as nobody else wants any: a crash would withhold them.
    pub most: u32,
    /// Units that wait.
    pub backlog: u32,
    /// How many each of these would take in a window if it did not have to wait, and were asked for again with each answer.
    pub again: u32,
    /// What the next request takes at once; 0 if none waits.
    pub cost: u32,
}

/// What is to be said to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareNeed {
    /// Whether anything is.
    pub speaks: bool,
    /// How many more are of use.
    pub want: u32,
    /// How many the next request takes; 0 if none waits.
    pub cost: u32,
    /// How many of these it lacks.
    pub need: u32,
    /// What is to be told of the demand.
    pub demand: u32,
    /// Nothing is held and needed any more.
    pub ends: bool,
}

/// What is short of its limit alone may grow by such a part beyond what other limits let through: uses differ.
const SLACK: f64 = 8.0;

/// Amounts that differ by less than such a part of them are about the same.
const ALIKE: u32 = 16;

// === impl ShareNeed ===

impl ShareNeed {
    /// Whether the store would do about the same if it heard this, and not what was `said`. What lacks nothing for the next
    /// request can wait, however much it is.
    pub(super) fn is_like(self, said: Self) -> bool {
        let less = |now: u32, before: u32| now <= before && before - now <= before / ALIKE;
        let waits = less(self.cost, said.cost) && less(self.need, said.need) && less(self.want, said.want);
        let about = self.demand.abs_diff(said.demand) <= said.demand / ALIKE;
        about && self.ends == said.ends && (waits || self.need == 0 && said.need == 0)
    }
}

// === impl Stock ===

impl Stock {
    /// Other limits let through at most `growth` times what is used now: what waits beyond that does not wait for this one,
    /// except for the next request, which may take as much as `next`. If that `lacks` some of this limit, a little more waits for it.
    pub fn at_most(self, growth: f64, lacks: bool, next: u32) -> Self {
        if self.used == 0 {
            return self;
        }
        let slack = if lacks { 1.0 + 1.0 / SLACK } else { 1.0 };
        // As saturating casts do.
        let more = (f64::from(self.used) * (growth.max(1.0) * slack - 1.0)).ceil() as u32;
        Self { backlog: self.backlog.min(more.max(self.cost).max(next)), ..self }
    }

    /// What is used and needed beyond `own` units, which no store knows of. What takes more than `most` tokens nobody can
    /// grant.
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

    /// How many of the free ones it keeps, because it has used as many at once.
    pub(super) fn kept(self) -> u32 {
        self.lately.saturating_sub(self.used.saturating_add(self.lingering))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5,000 wait, of which the next one takes 50, while 100 are used.
    #[test]
    fn what_other_limits_do_not_let_through_does_not_wait_for_this_one() {
        let stock = Stock { used: 100, lingering: 0, lately: 0, most: u32::MAX, backlog: 5000, again: 1, cost: 50 };
        let waits = |growth, lacks, next| stock.at_most(growth, lacks, next).backlog;
        // They let through three times as much: 200 more.
        assert_eq!((waits(3.0, false, 0), waits(3.0, true, 0)), (200, 238));
        // They let nothing more through: only the next one waits, which may be as large as those before.
        assert_eq!((waits(1.0, false, 0), waits(0.5, true, 0), waits(1.0, false, 80)), (50, 50, 80));
        // What is not used yet no other limit has held up.
        assert_eq!(
            (waits(f64::MAX, false, 0), Stock { used: 0, ..stock }.at_most(1.0, false, 0).backlog),
            (5000, 5000)
        );
    }
}
