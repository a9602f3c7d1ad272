//! Evidence about an answer, collected before it is judged.

use std::time::Duration;

use super::{
    Bucket, Cause, Dialect, Hopeless, Strength, count,
    time::{self, Now, When},
};

/// No real answer reports more budgets; a longer list is an attack or a mistake.
const MOST_BUCKETS: usize = 32;
/// Resets are rounded up to a second.
const ROUNDED_UP: Duration = Duration::from_secs(1);
/// Longest window that is worth waiting for if nothing says when it ends.
const SHORT_WINDOW: Duration = Duration::from_secs(60);

/// Findings from all parts of an answer.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) budgets: Vec<ReportedBudget>,
    /// Wait that the head asks for.
    pub(super) retry_after: Option<Duration>,
    /// Extra time until that wait is certainly over.
    pub(super) later: Duration,
    /// Wait that the body asks for. Anyone may have written it, so it counts only if something complains.
    pub(super) said: Option<Duration>,
    /// True if `retry_after` was reported as a time of day.
    pub(super) dated: bool,
    /// Wait for some requests only; nothing here tells which requests they are.
    pub(super) other_scope: Option<Duration>,
    /// Shortest wait if the answer does not ask for one.
    pub(super) at_least: Option<Duration>,
    pub(super) scope: Option<Box<str>>,
    pub(super) dialect: Option<Dialect>,
    /// True if a flag or a fraction warns that the limit is near.
    pub(super) warning: bool,
    /// Strength of the answer's statement that it is a refusal, whatever its status.
    pub(super) refusal: Option<Strength>,
    /// `true` if the body reports that something was done, `false` if that nothing was.
    pub(super) done: Option<bool>,
    /// Reason why waiting does not help, whatever else the answer says.
    pub(super) fatal: Option<Hopeless>,
    /// Reason why waiting does not help a refused request, according to a sentence that anyone may have written.
    pub(super) in_words: Option<Hopeless>,
    /// Time until a cap that the answer names is renewed.
    pub(super) renewed: Option<Duration>,
    /// True if the cap is one on spending, which outlasts any requested wait.
    pub(super) spends: bool,
    /// Cause of the refusal, if the answer reports it.
    pub(super) cause: Option<Cause>,
}

/// Bucket with what `classify` needs to know about it.
#[derive(Clone, Debug)]
pub(super) struct ReportedBudget {
    pub(super) bucket: Bucket,
    /// Wait before a probe if this budget refused the request and its reset is unknown.
    pub(super) probe: Option<Duration>,
    /// True if our requests stop when the budget is used up. This is not so for budgets that all clients share, that
    /// are only announced, or that count requests in flight.
    pub(super) binds: bool,
    /// True if the API calls this budget the nearest to its limit.
    pub(super) foremost: bool,
    /// True if the reset is a time of day without a `Date` to measure it by.
    unclocked: bool,
}

// === impl Evidence ===

impl Evidence {
    /// Adds a budget, unless nothing is known about it.
    pub(super) fn push(&mut self, mut budget: ReportedBudget) {
        budget.settle();
        let Bucket { limit, remaining, reset, window, .. } = &budget.bucket;
        let says_nothing = limit.is_none() && remaining.is_none() && reset.is_none() && window.is_none();
        let known = self.budgets.iter().any(|other| other.bucket == budget.bucket);
        if !says_nothing && !known && self.budgets.len() < MOST_BUCKETS {
            self.budgets.push(budget);
        }
    }

    /// Notes that the answer refuses; the surest evidence counts.
    pub(super) fn refuse(&mut self, strength: Strength) {
        self.refusal = self.refusal.max(Some(strength));
    }

    /// Notes the dialect. The first reader that understands something decides it; the most specific readers come first.
    pub(super) fn speaks(&mut self, dialect: Dialect) {
        self.dialect.get_or_insert(dialect);
    }

    /// Notes the subject of the wait.
    pub(super) fn concerns(&mut self, scope: &str) {
        let scope = scope.trim();
        if self.scope.is_none() && !scope.is_empty() {
            self.scope = Some(legible(scope));
        }
    }

    /// Gives a reset and a window of no budget in particular to the budgets that have none. If some budgets are used
    /// up, only these get them.
    pub(super) fn spread(&mut self, reset: Option<Duration>, window: Option<Duration>) {
        let used_up = self.budgets.iter().any(ReportedBudget::is_used_up);
        for budget in self.budgets.iter_mut().filter(|budget| !used_up || budget.is_used_up()) {
            budget.bucket.reset = budget.bucket.reset.or(reset);
            budget.bucket.window = budget.bucket.window.or(window);
        }
    }

    /// Puts the binding budget first.
    pub(super) fn sort(&mut self) {
        self.budgets.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
    }
}

// === impl ReportedBudget ===

impl ReportedBudget {
    /// Creates a budget of this `name` with no other facts. `None` stands for an answer's limit without a name.
    pub(super) fn new(name: Option<&str>) -> Self {
        let mut name = name.map(legible).filter(|name| !name.is_empty());
        name.iter_mut().for_each(|name| name.make_ascii_lowercase());
        let requests = name.as_deref().is_none_or(counts_requests);
        let bucket = Bucket {
            requests,
            name,
            limit: None,
            remaining: None,
            reset: None,
            window: None,
            coarse: false,
            refills: false,
        };
        Self { bucket, probe: None, binds: true, foremost: false, unclocked: false }
    }

    /// Returns whether nothing of the budget is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.bucket.remaining == Some(0.0)
    }

    /// Sets how much was used; an unknown limit or remainder follows from it.
    pub(super) fn used(&mut self, used: f64) {
        let Bucket { limit, remaining, .. } = &mut self.bucket;
        match (*limit, *remaining) {
            (Some(limit), None) => *remaining = Some((limit - used).max(0.0)),
            (None, Some(left)) => *limit = Some(left + used),
            _ => {}
        }
    }

    /// Sets when the budget is reset.
    pub(super) fn resets(&mut self, when: Option<When>, now: Now) {
        self.bucket.coarse = matches!(when, Some(When::At { coarse: true, .. }));
        self.bucket.reset = when.and_then(|when| when.from(now));
        self.unclocked = now.date.is_none() && matches!(when, Some(When::At { .. }));
    }

    /// Makes the numbers of the budget consistent.
    fn settle(&mut self) {
        let Self { bucket, probe, unclocked, .. } = &mut *self;
        if let (true, Some(reset), Some(window)) = (*unclocked, bucket.reset, bucket.window) {
            // A reset beyond the end of the window means that the clock that wrote it is ahead of ours.
            bucket.reset = Some(reset.min(window + ROUNDED_UP));
        }
        for count in [&mut bucket.limit, &mut bucket.remaining] {
            *count = count.filter(|count| count.is_finite() && *count >= 0.0).map(|count| count.min(count::MOST));
        }
        if let (Some(limit), Some(remaining)) = (bucket.limit, bucket.remaining) {
            bucket.remaining = Some(remaining.clamp(0.0, limit.max(0.0)));
        }
        for length in [&mut bucket.reset, &mut bucket.window, probe].into_iter().flatten() {
            *length = (*length).min(time::CAP);
        }
        if self.bucket.refills && self.bucket.window.is_none() {
            self.bucket.window = self.refilled_in();
        }
        if self.probe.is_none() && self.bucket.reset.is_none() {
            self.probe = self.bucket.window.filter(|window| *window <= SHORT_WINDOW);
        }
    }

    /// Time in which a continuously refilling bucket fills up, if that is a usual window. A limit per day and a limit
    /// per minute may have the same name.
    fn refilled_in(&self) -> Option<Duration> {
        const USUAL: [f64; 4] = [1.0, 60.0, 3600.0, 86_400.0];
        let Bucket { limit: Some(limit), remaining, reset: Some(reset), .. } = self.bucket else { return None };
        // Without a count, at least the answered request was used.
        let used = remaining.map_or(1.0, |remaining| limit - remaining);
        let whole = reset.as_secs_f64() * limit / used;
        let usual = USUAL.into_iter().find(|usual| (whole / usual - 1.0).abs() < 0.05);
        usual.filter(|_| used > 0.0).map(Duration::from_secs_f64)
    }

    /// Distance from stopping our requests; the smallest rank is the binding budget. Used-up budgets come first, the
    /// longest wait before the others. Next is the budget that the API calls the nearest, then the limit without a
    /// name, which is the API's answer to "how much is left?". Then the smallest remaining share counts. Budgets that
    /// report less come later, and budgets that do not bind last.
    fn rank(&self) -> f64 {
        let Bucket { limit, remaining, reset, window, requests, name, .. } = &self.bucket;
        let (seconds, of) = (|time: &Option<Duration>| time.map_or(0.0, |time| time.as_secs_f64()), *requests);
        let class = match (limit, remaining) {
            _ if !self.binds => return 8.0,
            (_, Some(left)) if *left == 0.0 => {
                return 1.0 - seconds(reset) / time::CAP.as_secs_f64() / 2.0 + if of { 0.0 } else { 1e-9 };
            }
            _ if self.foremost => return 2.0,
            (Some(_), Some(_)) if name.is_none() => 3.0,
            (Some(_), Some(_)) => 4.0,
            (Some(_), None) => 5.0 + seconds(window) / time::CAP.as_secs_f64() / 2.0 + if of { 0.0 } else { 0.5 },
            _ => 7.0 + seconds(window) / time::CAP.as_secs_f64() / 2.0,
        };
        match (limit, remaining) {
            (Some(limit), Some(left)) if *limit > 0.0 => class + (left / limit).clamp(0.0, 1.0) / 2.0,
            _ => class,
        }
    }
}

/// Returns whether a budget of this name counts requests, as far as the name shows.
pub(super) fn counts_requests(name: &str) -> bool {
    let is_other = |word: &str| {
        matches!(
            word,
            "tokens"
                | "tpm"
                | "tpd"
                | "usd"
                | "complexity"
                | "points"
                | "point"
                | "cost"
                | "bytes"
                | "neurons"
                | "weight"
                | "units"
                | "unit"
                | "credits"
                | "characters"
                | "chars"
                | "images"
                | "audio"
                | "bysize"
                | "size"
                | "concurrency"
                | "concurrent"
                | "orders"
                | "order"
                | "spend"
                | "bandwidth"
                | "pixels"
                | "pages"
                | "ru"
                | "cpu"
                | "cputime"
                | "time"
                | "graphql"
        )
    };
    !name.split(|c: char| !c.is_ascii_alphanumeric()).any(is_other)
}

/// `text` without control characters, and of bounded length.
fn legible(text: &str) -> Box<str> {
    const LONGEST: usize = 100;
    let mut legible = String::with_capacity(text.len().min(LONGEST));
    legible.extend(text.chars().filter(|c| !c.is_control()).take(LONGEST));
    legible.into_boxed_str()
}

/// Window that a name contains, e.g. that of `requests-day`.
pub(super) fn window_in(name: &str) -> Option<Duration> {
    name.split(['-', '_', ' ']).find_map(count::window).map(time::duration)
}
