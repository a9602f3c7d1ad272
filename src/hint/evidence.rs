//! What is found out about an answer, before it is judged.

use std::time::Duration;

use super::{
    Bucket, Cause, Dialect, Hopeless, Strength, count,
    time::{self, Now, When},
};

/// No real answer reports more budgets; a longer list is an attack or a mistake.
const MOST_BUCKETS: usize = 32;
/// Resets are rounded up to a second.
const ROUNDED_UP: Duration = Duration::from_secs(1);
/// Up to here it is worth waiting for a whole window, if nothing says when it ends.
const SHORT_WINDOW: Duration = Duration::from_secs(60);

/// All that the parts of an answer say.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) budgets: Vec<ReportedBudget>,
    /// The wait that the head asks for.
    pub(super) retry_after: Option<Duration>,
    /// By so much later that wait may be over.
    pub(super) later: Duration,
    /// The wait that the body asks for. Anybody may have written it: it counts if something complains.
    pub(super) said: Option<Duration>,
    /// `retry_after` was told as a time of day.
    pub(super) dated: bool,
    /// A wait asked of some requests only, which cannot be told apart from here.
    pub(super) other_scope: Option<Duration>,
    /// The least to wait if the answer does not ask for a wait.
    pub(super) at_least: Option<Duration>,
    pub(super) scope: Option<Box<str>>,
    pub(super) dialect: Option<Dialect>,
    /// A flag or a fraction warns that the limit is near.
    pub(super) warning: bool,
    /// The answer says that it is a refusal, whatever its status, and so surely.
    pub(super) refusal: Option<Strength>,
    /// Whether something was done, if the body tells.
    pub(super) done: Option<bool>,
    /// Why waiting does not help, whatever else the answer says.
    pub(super) fatal: Option<Hopeless>,
    /// Why waiting does not help if the request was refused, as a sentence says. Anybody may have written it.
    pub(super) in_words: Option<Hopeless>,
    /// When a cap that the answer names is renewed.
    pub(super) renewed: Option<Duration>,
    /// It is a cap on spending, which lasts longer than any wait that is asked for.
    pub(super) spends: bool,
    /// The cause, if the answer reports it.
    pub(super) cause: Option<Cause>,
}

/// A bucket, and what `classify` needs to know about it.
#[derive(Clone, Debug)]
pub(super) struct ReportedBudget {
    pub(super) bucket: Bucket,
    /// When a try makes sense if this is what refused it and nothing tells when it is reset.
    pub(super) probe: Option<Duration>,
    /// Whether being used up stops our requests. Not so for budgets that all clients share, that are only announced, or
    /// that count requests in flight.
    pub(super) binds: bool,
    /// The API says that this one is the nearest to its limit.
    pub(super) foremost: bool,
    /// Its reset is a time of day, and nothing says how late it is by the clock that wrote it.
    unclocked: bool,
}

// === impl Evidence ===

impl Evidence {
    /// Adds a budget, unless nothing is known of it.
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

    /// The first reader that understands something names the dialect: the most specific readers come first.
    pub(super) fn speaks(&mut self, dialect: Dialect) {
        self.dialect.get_or_insert(dialect);
    }

    /// What the wait is for.
    pub(super) fn concerns(&mut self, scope: &str) {
        let scope = scope.trim();
        if self.scope.is_none() && !scope.is_empty() {
            self.scope = Some(legible(scope));
        }
    }

    /// Gives a reset and a window that belong to no budget in particular to the budgets that have none; to the budgets
    /// that are used up, if some are.
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
    /// A budget of this `name`, of which nothing else is known yet. `None` is an answer's limit without a name.
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

    /// Whether nothing is left of it.
    pub(super) fn is_used_up(&self) -> bool {
        self.bucket.remaining == Some(0.0)
    }

    /// Says how much was used; the others follow from it where they are unknown.
    pub(super) fn used(&mut self, used: f64) {
        let Bucket { limit, remaining, .. } = &mut self.bucket;
        match (*limit, *remaining) {
            (Some(limit), None) => *remaining = Some((limit - used).max(0.0)),
            (None, Some(left)) => *limit = Some(left + used),
            _ => {}
        }
    }

    /// Says when it is reset.
    pub(super) fn resets(&mut self, when: Option<When>, now: Now) {
        self.bucket.coarse = matches!(when, Some(When::At { coarse: true, .. }));
        self.bucket.reset = when.and_then(|when| when.from(now));
        self.unclocked = now.date.is_none() && matches!(when, Some(When::At { .. }));
    }

    /// Makes it agree with itself.
    fn settle(&mut self) {
        let Self { bucket, probe, unclocked, .. } = &mut *self;
        if let (true, Some(reset), Some(window)) = (*unclocked, bucket.reset, bucket.window) {
            // No reset is further away than its window is long: the clock that wrote it is ahead of ours.
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

    /// In what time a bucket that refills all the time does so, if that comes out as a window that people use: a limit
    /// per day and one per minute may have the same name.
    fn refilled_in(&self) -> Option<Duration> {
        const USUAL: [f64; 4] = [1.0, 60.0, 3600.0, 86_400.0];
        let Bucket { limit: Some(limit), remaining, reset: Some(reset), .. } = self.bucket else { return None };
        // Without a count there is at least the request that was answered.
        let used = remaining.map_or(1.0, |remaining| limit - remaining);
        let whole = reset.as_secs_f64() * limit / used;
        let usual = USUAL.into_iter().find(|usual| (whole / usual - 1.0).abs() < 0.05);
        usual.filter(|_| used > 0.0).map(Duration::from_secs_f64)
    }

    /// How near it is to stopping us; the smallest is the binding one. First what is used up, the longest wait before
    /// others; then what the API says itself; then its limit without a name, which is its answer to "how much is
    /// left?"; then the smallest share that is left; last what shows less.
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

/// Whether a budget of this name counts requests, as far as its name tells.
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

/// `text` without what cannot be shown, and of bounded length.
fn legible(text: &str) -> Box<str> {
    const LONGEST: usize = 100;
    let mut legible = String::with_capacity(text.len().min(LONGEST));
    legible.extend(text.chars().filter(|c| !c.is_control()).take(LONGEST));
    legible.into_boxed_str()
}

/// The window that a name contains, e.g. that of `requests-day`.
pub(super) fn window_in(name: &str) -> Option<Duration> {
    name.split(['-', '_', ' ']).find_map(count::window).map(time::duration)
}
