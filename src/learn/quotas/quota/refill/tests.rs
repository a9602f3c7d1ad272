use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A limiter that reports `depth` and a reset of one second: a bucket that refills `rate` a second, or a window of a
/// second.
struct Api {
    depth: f64,
    rate: Option<f64>,
    left: f64,
    at: f64,
}

impl Api {
    fn asked(&mut self, now: f64) -> bool {
        match self.rate {
            Some(rate) => self.left = (self.left + (now - self.at) * rate).min(self.depth),
            None if now.floor() > self.at.floor() => self.left = self.depth,
            None => {}
        }
        self.at = now;
        let serves = self.left >= 1.0;
        self.left -= f64::from(u8::from(serves));
        serves
    }
}

/// Sends evenly for 60 s, with 1 ms of latency each way. Returns the number served in the last 30 s, and the number
/// refused in all; a refusal costs a second.
fn asks(depth: f64, rate: Option<f64>, configured: Option<f64>) -> (u32, u32) {
    let mut api = Api { depth, rate, left: depth, at: 0.0 };
    let (mut refill, mut ledger) = (Refill::default(), SentLog::default());
    let (mut now, mut served, mut refused) = (0.0, 0, 0);
    while now < 60.0 {
        let at = |seconds: f64| Instant::START + Duration::from_secs_f64(seconds);
        let (sent, answered) = (at(now), at(now + 0.001));
        ledger.sent(sent);
        if api.asked(now) {
            served += u32::from(now >= 30.0);
            let used = depth - api.left.floor();
            refill.hear(&Report {
                limit: depth,
                used,
                served: true,
                sent,
                now: answered,
                window: SECOND,
                ledger: &ledger,
                configured,
            });
        } else {
            ledger.remove(sent);
            refused += 1;
            refill.refused(depth, sent, answered);
            now += 1.0;
        }
        // The sender is slightly slower, like a timer, so that no window gets an extra request by chance.
        let slot = refill.window(depth).unwrap_or(SECOND).as_secs_f64() * 1.001 / depth;
        now += configured.map_or(slot, |rate| slot.max(1.0 / rate));
    }
    (served, refused)
}

#[test]
fn a_bucket_is_used_at_the_rate_at_which_it_refills() {
    for depth in [3.0, 4.0, 5.0, 8.0] {
        let (served, refused) = asks(depth, Some(10.0), None);
        assert!(served >= 285, "{served} of 300 with a depth of {depth}");
        assert!(refused <= 2, "{refused} refused with a depth of {depth}");
    }
}

/// Only a refusal shows that the rate was too high.
#[test]
fn a_bucket_of_one_is_used_nearly_at_the_rate_at_which_it_refills() {
    let (served, refused) = asks(1.0, Some(10.0), None);
    assert!(served >= 270, "{served} of 300");
    assert!(refused <= 8, "{refused}");
}

#[test]
fn a_window_stays_what_it_reads_like() {
    for depth in [2.0, 5.0, 20.0] {
        let (served, refused) = asks(depth, None, None);
        assert_eq!(refused, 0, "{depth} a second");
        assert!(f64::from(served) >= depth * 29.0, "{served} of {depth} a second");
    }
    // With one per second, only a request that is sent sooner can tell.
    assert!(asks(1.0, None, None).1 <= 1);
}

#[test]
fn what_is_configured_is_tried_until_the_count_of_a_window_contradicts() {
    assert_eq!(asks(5.0, Some(10.0), Some(10.0)).1, 0);
    let (served, refused) = asks(5.0, None, Some(10.0));
    assert!(
        (145..=150).contains(&served) && refused <= 1,
        "5 a second are what it allows: {served}, {refused} refused"
    );
}
