//! Remaining amount of one quota of an API, as its answers report, less the requests that they cannot include yet.

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::Bucket;
use andante_limit::{Cost, LONGEST_PACE, Seq};
use andante_policy::Spend;

use super::window_estimator::Return;

/// Remaining amount of one quota.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Name by which later answers are recognised.
    pub(super) name: Option<Box<str>>,
    /// Units that fit into one window.
    pub(super) limit: Option<f64>,
    /// Least that was left in this window.
    remaining: f64,
    /// When `remaining` was reported.
    said: Instant,
    /// Latest request with an answer that was used here.
    seq: Seq,
    /// When the quota is reset, if the API reports that.
    pub(super) reset: Option<Instant>,
    /// Uncertainty of `reset`.
    blur: Duration,
    /// Units that are replenished every second, if the quota refills continuously; otherwise 0.
    refill: f64,
    /// Cost of a request: 1 if requests are counted, and otherwise an average of recent requests.
    cost: f64,
    /// Answers since the cost was last measured.
    unpriced: u32,
    /// True if the quota counts requests.
    pub(super) requests: bool,
    /// True if the quota blocks nothing: our own finer counts explain the reported usage, or the report is not trusted.
    pub(super) overruled: bool,
    /// When the last request was dispatched.
    taken: Instant,
    /// Request in flight that will renew an outdated report, and when it was sent.
    asking: Option<(Seq, Instant)>,
}

/// If a request that should renew a report stays unanswered this long, another one is sent.
const NEWS: Duration = Duration::from_secs(1);
/// Share of a quota below which the rest is spent evenly.
const RESERVE: f64 = 0.1;
/// Error of a reset in whole seconds, with a margin.
const SECOND: Duration = Duration::from_millis(1050);
/// After this long the proxy asks again, however long an API blocks it.
const LONGEST: Duration = Duration::from_secs(86_400);

// === impl Allowance ===

impl Allowance {
    pub(super) fn new(bucket: &Bucket, seq: Seq, now: Instant) -> Self {
        Self {
            name: bucket.name.clone(),
            limit: None,
            remaining: f64::INFINITY,
            said: now,
            seq,
            reset: None,
            blur: Duration::ZERO,
            refill: 0.0,
            cost: if bucket.requests { 1.0 } else { 0.0 },
            unpriced: 0,
            requests: bucket.requests,
            overruled: false,
            taken: now,
            asking: None,
        }
    }

    /// Discards the reports so far, because they were misunderstood.
    pub(super) fn start_over(&mut self) {
        (self.reset, self.remaining, self.refill) = (None, f64::INFINITY, 0.0);
    }

    /// Applies the report of an answer to the request `seq`.
    pub(super) fn hear(&mut self, bucket: &Bucket, returns: Return, seq: Seq, now: Instant) {
        let refills = returns == Return::Refill;
        self.asking.take_if(|(asked, _)| *asked <= seq);
        self.unpriced = self.unpriced.saturating_add(1);
        let reset = bucket.reset.map(|reset| now + reset);
        // A reset without a fraction of a second is taken to be in whole seconds.
        let whole = bucket.coarse || bucket.reset.is_some_and(|reset| reset.subsec_nanos() == 0);
        let blur = if whole { SECOND } else { bucket.reset.unwrap_or_default() / 20 + Duration::from_millis(5) };
        self.limit = bucket.limit.filter(|limit| *limit > 0.0).or(self.limit);
        let Some(remaining) = bucket.remaining else { return };
        let (same, newer) = match (self.reset, reset) {
            (Some(old), Some(new)) => (new <= old + blur.max(self.blur) && now < old + blur, new > old),
            _ => (true, seq >= self.seq),
        };
        if !self.requests {
            self.price(remaining, seq, now);
        }
        if same && self.reset.is_some() && returns == Return::AtReset {
            // Answers overtake each other: within one window the lowest value is right.
            self.remaining = self.remaining.min(remaining);
        } else if newer || seq >= self.seq {
            (self.remaining, self.said) = (remaining, now);
        }
        self.seq = self.seq.max(seq);
        if newer || self.reset.is_none_or(|old| old <= now) || refills {
            (self.reset, self.blur) = (reset, blur);
        }
        self.refill = match (refills, self.limit, bucket.reset) {
            (true, Some(limit), Some(reset)) if !reset.is_zero() && limit > remaining => {
                (limit - remaining) / reset.as_secs_f64()
            }
            (true, ..) => self.refill,
            _ => 0.0,
        };
    }

    /// Returns the first instant at which `cost` more may be sent. `unanswered`: requests that no answer has reported
    /// on yet. `part`: share of the remaining quota that this member may use; other members of the fleet use the rest.
    /// An instant more than a day away is replaced by a check after a day.
    pub(super) fn earliest(&self, now: Instant, cost: Cost, unanswered: u32, part: f64, spend: Spend) -> Instant {
        self.due(now, cost, unanswered, part, spend).min(self.look_anew()).max(now)
    }

    fn due(&self, now: Instant, cost: Cost, unanswered: u32, part: f64, spend: Spend) -> Instant {
        if self.overruled || self.cost == 0.0 && self.remaining > 0.0 {
            return now;
        }
        // A window without refill is full at its reset.
        if self.refill == 0.0 && self.reset.is_some_and(|reset| reset <= now) {
            return self.after_news(now);
        }
        let price = self.cost.max(f64::MIN_POSITIVE);
        let of_all = self.left(now) / price;
        // Shares of less than one request: the last few go to members that have not used their shares of the limit.
        let left = f64::max(of_all * part, of_all.min(1.0)) - f64::from(unanswered);
        let lacking = f64::from(cost.requests()) - left;
        if lacking > 0.0 {
            let refilled = (self.refill > 0.0).then(|| now + seconds(lacking * self.cost / self.refill / part));
            // Without a reported reset, a request tries from time to time.
            let reset = self.reset.unwrap_or(self.taken.max(self.said) + NEWS);
            return refilled.map_or(reset, |refilled| refilled.min(reset));
        }
        let reserve = match spend {
            Spend::Greedy => return now,
            Spend::Mostly => self.limit.unwrap_or_default() / price * RESERVE * part,
            Spend::Even => f64::INFINITY,
        };
        match self.reset {
            Some(reset)
                if left <= reserve && self.refill == 0.0 && (spend == Spend::Even || reset <= now + LONGEST_PACE) =>
            {
                // Spreads the remaining quota evenly over the remaining time, from the last request on.
                let from = self.taken.max(self.said);
                from + reset.since(from).div_f64(left + 1.0)
            }
            _ => now,
        }
    }

    /// Records that the window ends at `end` at the latest, which is finer than a reset in whole seconds.
    pub(super) fn resets_by(&mut self, end: Instant) {
        if end > self.said && self.reset.is_some_and(|reset| end < reset + self.blur) {
            (self.reset, self.blur) = (Some(end), Duration::ZERO);
        }
    }

    /// Treats the quota as empty until `until`, whatever was reported.
    pub(super) fn hold(&mut self, until: Instant) {
        (self.remaining, self.reset, self.blur, self.overruled) = (0.0, Some(until), Duration::ZERO, false);
    }

    /// Records that an answer to the request `seq` does not mention the quota. `served`: the answer might have
    /// mentioned it.
    pub(super) fn unmentioned(&mut self, seq: Seq, served: bool) {
        self.unpriced = self.unpriced.saturating_add(1);
        let asked = self.asking.take_if(|(asked, _)| *asked <= seq);
        if asked.is_some() && served {
            // The window is over and answers no longer report the quota, so it blocks nothing until one does.
            self.start_over();
        } else if served && self.requests && seq > self.seq {
            // The API is assumed to have counted the request nevertheless.
            self.remaining -= self.cost;
        }
    }

    /// Records that a request was dispatched as `seq`.
    pub(super) fn take(&mut self, now: Instant, seq: Seq) {
        self.taken = now;
        // The request is a probe after the reset, or with nothing left and no reported reset.
        if self.reset.map_or_else(|| self.left(now) < self.cost, |reset| reset <= now) {
            self.asking = Some((seq, now));
        }
    }

    /// Records that the request `seq` will get no answer. `sent`: the API may have counted it nevertheless.
    pub(super) fn ended(&mut self, seq: Seq, sent: bool) {
        self.asking.take_if(|(asked, _)| *asked == seq);
        if sent {
            self.remaining -= self.cost;
        }
    }

    /// Remaining amount at `now`, as far as answers tell.
    pub(super) fn left(&self, now: Instant) -> f64 {
        let left = self.remaining + now.since(self.said).as_secs_f64() * self.refill;
        left.min(self.limit.unwrap_or(f64::INFINITY)).max(0.0)
    }

    /// Known end of the time for which the empty quota blocks every request.
    pub(super) fn empty_until(&self, now: Instant) -> Option<Instant> {
        let holds = !self.overruled && self.is_current(now);
        let reset = self.reset.filter(|_| holds && self.is_empty(now))?;
        Some(self.refilled(now).map_or(reset, |refilled| refilled.min(reset)).min(self.look_anew()))
    }

    /// When the empty quota, which blocks requests now, lets one leave again.
    pub(super) fn opens(&self, now: Instant) -> Option<Instant> {
        let over = self.over().filter(|over| *over > now && !self.overruled && self.is_empty(now))?;
        Some(self.refilled(now).map_or(over, |refilled| refilled.min(over)).min(self.look_anew()))
    }

    /// When a refilling quota has enough for one request again; it is full only at its reset.
    fn refilled(&self, now: Instant) -> Option<Instant> {
        let lacking = (self.cost - self.left(now)).max(0.0);
        (self.refill > 0.0).then(|| now + seconds(lacking / self.refill))
    }

    fn is_empty(&self, now: Instant) -> bool {
        self.left(now) < self.cost.max(f64::MIN_POSITIVE)
    }

    /// When the window is certainly over: a reset in whole seconds may be up to one second late.
    fn over(&self) -> Option<Instant> {
        if self.remaining <= 0.0 { self.over_by() } else { self.reset }
    }

    /// When the window is certainly over, however much is left.
    pub(super) fn over_by(&self) -> Option<Instant> {
        let later = if self.blur == SECOND { SECOND } else { Duration::ZERO };
        self.reset.map(|reset| reset + later)
    }

    fn look_anew(&self) -> Instant {
        self.taken.max(self.said) + LONGEST
    }

    /// Returns true if the report still holds at `now`.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.reset.map_or(now.since(self.said) < Duration::from_secs(60), |reset| reset > now)
    }

    /// When the next request may ask about a window that no answer has reported yet: one asks, and after a while
    /// another.
    fn after_news(&self, now: Instant) -> Instant {
        let over = self.over().unwrap_or(now);
        match self.asking {
            Some((_, since)) => over.max(since + NEWS).max(now),
            None => over.max(now),
        }
    }

    /// Measures the cost of a request by the decrease of the remaining amount between two answers.
    fn price(&mut self, remaining: f64, seq: Seq, now: Instant) {
        let since = self.remaining + now.since(self.said).as_secs_f64() * self.refill;
        let spent = since - remaining;
        if seq > self.seq && spent > 0.0 && spent.is_finite() {
            let cost = spent / f64::from(self.unpriced.max(1));
            self.unpriced = 0;
            self.cost = if self.cost == 0.0 { cost } else { self.cost + (cost - self.cost) / 8.0 };
        }
    }
}

fn seconds(of: f64) -> Duration {
    Duration::try_from_secs_f64(of).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(of: u64) -> Instant {
        Instant::START + Duration::from_secs(of)
    }

    /// A third of 12 remaining requests is four. A third of two is less than one, so the member gets one request, not
    /// two.
    #[test]
    fn a_part_of_what_is_left_is_one_at_least() {
        let due = |left: f64, unanswered: u32| {
            let bucket = Bucket::of_requests(100.0, left, Duration::from_secs(10));
            let mut allowance = Allowance::new(&bucket, Seq::default(), s(1));
            allowance.hear(&bucket, Return::AtReset, Seq::default(), s(1));
            allowance.earliest(s(1), Cost::MIN, unanswered, 1.0 / 3.0, Spend::Greedy)
        };
        assert_eq!([3, 4].map(|unanswered| due(12.0, unanswered)), [s(1), s(11)]);
        assert_eq!([0, 1].map(|unanswered| due(2.0, unanswered)), [s(1), s(11)]);
        assert_eq!([0, 1].map(|unanswered| due(3.5, unanswered)), [s(1), s(11)]);
        assert_eq!(due(0.0, 0), s(11));
    }
}
