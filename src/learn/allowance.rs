//! What is left of one budget of an API, as its answers report, less requests that they cannot include yet.

use std::time::Duration;

use super::window_estimator::Return;
use crate::{
    clock::Instant,
    hint::Bucket,
    limit::{Cost, LONGEST_PACE, Seq},
    policy::Spend,
};

/// What is left of one budget.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Its name, by which later answers are recognised.
    pub(super) name: Option<Box<str>>,
    /// How much fits into a window.
    pub(super) limit: Option<f64>,
    /// The least that was left in this window.
    remaining: f64,
    /// When that was said.
    said: Instant,
    /// The latest request whose answer was listened to.
    seq: Seq,
    /// When it is reset, if that was said.
    pub(super) reset: Option<Instant>,
    /// How far off the reset may be.
    blur: Duration,
    /// What comes back every second, if it comes back little by little.
    refill: f64,
    /// What a request costs: 1 if requests are counted, and what it was of late otherwise.
    cost: f64,
    /// How many answers came since that was last looked at.
    unpriced: u32,
    /// Whether it counts requests.
    pub(super) requests: bool,
    /// It holds nothing back: our own books explain what is said to be used, and are finer, or it is not believed.
    pub(super) overruled: bool,
    /// When the last request was taken.
    taken: Instant,
    /// The request under way that will renew an outdated report, and since when.
    asking: Option<(Seq, Instant)>,
}

/// A request that is to bring news is given this long before another one is sent after it.
const NEWS: Duration = Duration::from_secs(1);
/// The share of a budget below which it is spent evenly.
const RESERVE: f64 = 0.1;
/// Whole seconds hide up to this much.
const SECOND: Duration = Duration::from_millis(1050);
/// Nothing is held back for longer than this without asking again, whatever an API says.
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

    /// What was said so far was misunderstood.
    pub(super) fn start_over(&mut self) {
        (self.reset, self.remaining, self.refill) = (None, f64::INFINITY, 0.0);
    }

    /// An answer to the request `seq` says this.
    pub(super) fn hear(&mut self, bucket: &Bucket, returns: Return, seq: Seq, now: Instant) {
        let refills = returns == Return::Refill;
        self.asking.take_if(|(asked, _)| *asked <= seq);
        self.unpriced = self.unpriced.saturating_add(1);
        let reset = bucket.reset.map(|reset| now + reset);
        // Whole seconds show themselves by being whole.
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
            // Answers overtake each other: of one window, the lowest is the truth.
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

    /// The first instant at which `cost` more may be sent, with `unanswered` requests that no answer has reported on
    /// yet, of a `part` of what is left: others of a fleet use the rest. An instant further away than a day is looked at
    /// anew after a day.
    pub(super) fn earliest(&self, now: Instant, cost: Cost, unanswered: u32, part: f64, spend: Spend) -> Instant {
        self.due(now, cost, unanswered, part, spend).min(self.look_anew()).max(now)
    }

    fn due(&self, now: Instant, cost: Cost, unanswered: u32, part: f64, spend: Spend) -> Instant {
        if self.overruled || self.cost == 0.0 && self.remaining > 0.0 {
            return now;
        }
        // What refills is full then.
        if self.refill == 0.0 && self.reset.is_some_and(|reset| reset <= now) {
            return self.after_news(now);
        }
        let price = self.cost.max(f64::MIN_POSITIVE);
        let of_all = self.left(now) / price;
        // The last few are less than one for each: they are for those who have not used their parts of the limit.
        let left = f64::max(of_all * part, of_all.min(1.0)) - f64::from(unanswered);
        let lacking = f64::from(cost.requests()) - left;
        if lacking > 0.0 {
            let refilled = (self.refill > 0.0).then(|| now + seconds(lacking * self.cost / self.refill / part));
            // No reset is reported: it is tried now and then.
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
                // What is left is spread over what is left of the time, as seen from the last request.
                let from = self.taken.max(self.said);
                from + reset.since(from).div_f64(left + 1.0)
            }
            _ => now,
        }
    }

    /// Its window is over at `end`, at the latest: that is finer than a reset in whole seconds.
    pub(super) fn resets_by(&mut self, end: Instant) {
        if end > self.said && self.reset.is_some_and(|reset| end < reset + self.blur) {
            (self.reset, self.blur) = (Some(end), Duration::ZERO);
        }
    }

    /// Nothing is left until `until`, whatever was said.
    pub(super) fn hold(&mut self, until: Instant) {
        (self.remaining, self.reset, self.blur, self.overruled) = (0.0, Some(until), Duration::ZERO, false);
    }

    /// An answer to the request `seq` does not mention it. `served` says that it might have.
    pub(super) fn unmentioned(&mut self, seq: Seq, served: bool) {
        self.unpriced = self.unpriced.saturating_add(1);
        let asked = self.asking.take_if(|(asked, _)| *asked <= seq);
        if asked.is_some() && served {
            // Its window is over, and no answer reports it any more: it holds nothing back until one does.
            self.start_over();
        } else if served && self.requests && seq > self.seq {
            // As far as is known, it was counted nevertheless.
            self.remaining -= self.cost;
        }
    }

    /// A request was taken as `seq`.
    pub(super) fn take(&mut self, now: Instant, seq: Seq) {
        self.taken = now;
        // Where nothing is left and no reset is reported, it is a try.
        if self.reset.map_or_else(|| self.left(now) < self.cost, |reset| reset <= now) {
            self.asking = Some((seq, now));
        }
    }

    /// The request `seq` will bring no answer. `sent` tells that the API may have counted it nevertheless.
    pub(super) fn ended(&mut self, seq: Seq, sent: bool) {
        self.asking.take_if(|(asked, _)| *asked == seq);
        if sent {
            self.remaining -= self.cost;
        }
    }

    /// What is left at `now`, as far as answers tell.
    pub(super) fn left(&self, now: Instant) -> f64 {
        let left = self.remaining + now.since(self.said).as_secs_f64() * self.refill;
        left.min(self.limit.unwrap_or(f64::INFINITY)).max(0.0)
    }

    /// Until when it holds everything back because nothing is left, if it does and that is known.
    pub(super) fn empty_until(&self, now: Instant) -> Option<Instant> {
        let holds = !self.overruled && self.is_current(now);
        let reset = self.reset.filter(|_| holds && self.is_empty(now))?;
        Some(self.refilled(now).map_or(reset, |refilled| refilled.min(reset)).min(self.look_anew()))
    }

    /// When it lets something leave again that it holds back because nothing is left, if it does.
    pub(super) fn opens(&self, now: Instant) -> Option<Instant> {
        let over = self.over().filter(|over| *over > now && !self.overruled && self.is_empty(now))?;
        Some(self.refilled(now).map_or(over, |refilled| refilled.min(over)).min(self.look_anew()))
    }

    /// When there is enough for one more again, if it refills: it is full only at its reset.
    fn refilled(&self, now: Instant) -> Option<Instant> {
        let lacking = (self.cost - self.left(now)).max(0.0);
        (self.refill > 0.0).then(|| now + seconds(lacking / self.refill))
    }

    fn is_empty(&self, now: Instant) -> bool {
        self.left(now) < self.cost.max(f64::MIN_POSITIVE)
    }

    /// When its window is certainly over: the reset of whole seconds may be up to one later.
    fn over(&self) -> Option<Instant> {
        if self.remaining <= 0.0 { self.over_by() } else { self.reset }
    }

    /// The same, however much is left.
    pub(super) fn over_by(&self) -> Option<Instant> {
        let later = if self.blur == SECOND { SECOND } else { Duration::ZERO };
        self.reset.map(|reset| reset + later)
    }

    fn look_anew(&self) -> Instant {
        self.taken.max(self.said) + LONGEST
    }

    /// Whether what was said still holds at `now`.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.reset.map_or(now.since(self.said) < Duration::from_secs(60), |reset| reset > now)
    }

    /// The window is over, and no answer has reported the next one yet: one request asks, and after a while another.
    fn after_news(&self, now: Instant) -> Instant {
        let over = self.over().unwrap_or(now);
        match self.asking {
            Some((_, since)) => over.max(since + NEWS).max(now),
            None => over.max(now),
        }
    }

    /// Learns what a request costs, from what has become less between two answers.
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

    /// Of 12 that are left for ten seconds a third is four. Of two it is less than one: whoever asks has one, and not two.
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
