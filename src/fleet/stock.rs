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

// === impl Stock ===

impl Stock {
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
