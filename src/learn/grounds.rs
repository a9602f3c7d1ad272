//! Evidence for learned limits, as one line for people. Stored as a few numbers, and formatted only on demand.

use std::{cmp::Ordering, fmt, iter, time::Duration};

use andante_hint::Dialect;
use serde::{Deserialize, Serialize};

/// Evidence for a learned limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grounds {
    /// A rate learned from refusals.
    Rate(RateEvidence),
    /// A learned concurrency limit.
    AtOnce(ConcurrencyEvidence),
    /// Numbers in the API's answers.
    Said(ReportedEvidence),
}

/// Evidence for a rate learned from refusals. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateEvidence {
    pub(super) basis: Basis,
    /// The configured rate, per second.
    pub(super) configured: Option<f64>,
    pub(super) lowered: Lowered,
    /// Time of the report.
    pub(super) now: f64,
    /// True if only a lower bound is known.
    pub(super) rising: bool,
    /// Share of requests that is refused at any rate.
    pub(super) noise: Option<f64>,
}

/// Origin of a rate. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) enum Basis {
    /// The configured rate, without a measurement.
    #[default]
    Configured,
    /// `served` requests in `took` seconds, then a refusal, and after a pause requests were served again.
    Cycle { served: f64, took: f64, pause: f64 },
    /// `served` requests in a time that ended when requests were served again after a pause.
    Window { served: f64, length: f64, pause: f64 },
    /// `served` recent requests, in `over` seconds.
    Lately { served: f64, over: f64 },
    /// A group of requests with this share of all recently served requests.
    Share { served: f64, over: f64 },
}

/// Refusals that have lowered a rate since its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Lowered {
    times: u32,
    /// Lowest and highest refused rate, and the time of the last refusal.
    least: f64,
    most: f64,
    last: f64,
}

/// Evidence for a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyEvidence {
    pub(super) most: u32,
    /// Number of requests in flight when one was refused.
    pub(super) refused: u32,
    /// Number of requests served since, with this limit or a lower one.
    pub(super) served: u32,
    /// True if the API named concurrency as the reason.
    pub(super) said: bool,
    /// True if the limit is believed, and not only tried.
    pub(super) certain: bool,
}

/// Evidence for a limit that an API reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportedEvidence {
    pub(super) dialect: Dialect,
    pub(super) limit: f64,
    /// Number of answers that reported the limit.
    pub(super) answers: u32,
    pub(super) window: Duration,
    /// True if the answers, or the provider's page, say how long the window is.
    pub(super) window_said: bool,
    /// Number of new windows that were seen to begin.
    pub(super) resets: u32,
    pub(super) count: Agreement,
}

/// Agreement of an API's count with what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Nothing could be compared yet, or the evidence is balanced.
    Open,
    Agrees,
    /// There is more evidence against the count than for it, but not enough to distrust it.
    Doubtful,
}

/// A group of requests that turned out to have a limit of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnGroup {
    pub(super) who: Who,
    /// Lower bounds: recent refusals of the group, and requests of others that were served while it was refused.
    pub(super) refused: u32,
    pub(super) others: u32,
}

/// Common property of a group's requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// A method and a path, as far as it may be shown.
    Route(Option<Box<str>>),
    /// Budget of a sub-limit, with the name of its rule if it may be shown.
    Rule(Option<Box<str>>),
    /// Credential, numbered in the order of discovery. Nothing derived from the credential is shown.
    Credential(u32),
}

/// A limit of one group of requests, for status output.
#[derive(Clone, Debug)]
pub struct OwnLimit {
    /// The group.
    pub group: OwnGroup,
    /// Requests per second, if a rate is known.
    pub per_second: Option<f64>,
    /// Number of concurrent requests, if that is limited.
    pub at_once: Option<u32>,
    /// Evidence for both.
    pub grounds: Vec<Grounds>,
    /// Time until the next request of the group may leave, by the group's own limit.
    pub next_slot: Duration,
}

// === impl Lowered ===

impl Lowered {
    /// Records that requests were refused at `now`, at a pace of `rate`.
    pub(super) fn refused(&mut self, rate: f64, now: f64) {
        let least = if self.times == 0 { rate } else { self.least.min(rate) };
        *self = Self { times: self.times.saturating_add(1), least, most: self.most.max(rate), last: now };
    }
}

impl fmt::Display for Grounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(grounds) => grounds.fmt(f),
            Self::AtOnce(grounds) => grounds.fmt(f),
            Self::Said(grounds) => grounds.fmt(f),
        }
    }
}

impl fmt::Display for RateEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.basis {
            Basis::Configured => match self.configured {
                Some(rate) => write!(f, "configured {}/s", ShortNumber(rate))?,
                None => f.write_str("refusals")?,
            },
            Basis::Cycle { served, took, pause } => {
                let (took, pause) = (Seconds(took), Seconds(pause));
                write!(f, "{} served in {took}, then refused; served again after {pause}", served.round())?;
            }
            Basis::Window { served, length, pause } => {
                let (length, pause) = (Seconds(length), Seconds(pause));
                write!(f, "about {} served in {length}, refused for the last {pause} of them", served.round())?;
            }
            Basis::Lately { served, over } => {
                write!(f, "about {} served within {}, though some were refused", served.round(), Seconds(over))?;
            }
            Basis::Share { served, over } => {
                write!(f, "its share of what was served in {}: about {}", Seconds(over), served.round())?;
            }
        }
        let Lowered { times, least, most, last } = self.lowered;
        if times > 0 {
            let (times, ago) = (Times(times), Seconds((self.now - last).max(0.0)));
            let (least, most) = (ShortNumber(least).to_string(), ShortNumber(most).to_string());
            write!(f, "; refused {times} since at ")?;
            if least == most {
                write!(f, "{most}/s")?
            } else {
                write!(f, "{least}/s to {most}/s")?
            }
            write!(f, ", last {ago} ago")?;
        }
        if self.rising {
            f.write_str("; a lower bound: more is tried")?;
        }
        match self.noise {
            Some(share) => write!(f, "; about {}% are refused at any rate", ShortNumber(share * 100.0)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ConcurrencyEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most, refused, served, said, certain } = self;
        if *said {
            write!(f, "the API said that {refused} at once are too many")?;
        } else {
            write!(f, "refused with {refused} at once")?;
        }
        write!(f, "; {served} served since with {most} at most")?;
        f.write_str(if *certain { "" } else { "; still on trial" })
    }
}

impl fmt::Display for ReportedEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialect, limit, answers, window, window_said, resets, count } = self;
        match *dialect {
            Dialect::BODY => f.write_str("the body")?,
            Dialect::VENDOR => f.write_str("fields of the API's own")?,
            Dialect::NONE | Dialect::STATUS => f.write_str("the answers")?,
            dialect => write!(f, "{} fields", dialect.as_str())?,
        }
        write!(f, ": {limit}, said {}; a window of {}, ", Times(*answers), Seconds(window.as_secs_f64()))?;
        f.write_str(if *window_said { "as the provider says" } else { "measured" })?;
        if *resets > 0 {
            write!(f, ", restarted {}", Times(*resets))?;
        }
        f.write_str(match count {
            Agreement::Agrees => "; the count agrees with what was sent",
            Agreement::Open => "; the count is not checked yet",
            Agreement::Doubtful => "; the count agrees with what was sent only in part",
        })
    }
}

impl OwnLimit {
    /// Evidence for the limit, and for the group having one of its own.
    pub fn evidence(&self) -> String {
        let own = iter::once(self.group.evidence());
        own.chain(self.grounds.iter().map(ToString::to_string)).collect::<Vec<_>>().join("; ")
    }
}

impl OwnGroup {
    /// Evidence that the group has a limit of its own.
    pub fn evidence(&self) -> String {
        let Self { refused, others, .. } = *self;
        if matches!(self.who, Who::Rule(_)) {
            return "refused within what its rule allows, while others were served".to_owned();
        }
        format!("at least {refused} refused while at least {others} others were served")
    }

    /// Compares groups for output: routes by name, then credentials by number.
    pub fn in_order(&self, other: &Self) -> Ordering {
        self.who.cmp(&other.who)
    }
}

impl fmt::Display for OwnGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::Route(Some(name)) => f.write_str(name),
            Who::Route(None) => f.write_str("one method and path"),
            Who::Rule(Some(name)) => write!(f, "a budget of {name}"),
            Who::Rule(None) => f.write_str("a budget of one rule"),
            Who::Credential(number) => write!(f, "credential {number}"),
        }
    }
}

/// A number with as many digits as people read: 21, 9.8, 0.25.
struct ShortNumber(f64);

impl fmt::Display for ShortNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            of if of >= 99.95 => write!(f, "{of:.0}"),
            of if of >= 0.95 => write!(f, "{}", (of * 10.0).round() / 10.0),
            of if of >= 0.1 || of <= 0.0 => write!(f, "{}", (of * 1000.0).round() / 1000.0),
            // Two significant digits.
            of => write!(f, "{of:.*}", (1.0 - of.log10().floor()).min(9.0) as usize),
        }
    }
}

struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", ShortNumber(self.0))
    }
}

struct Times(u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            2 => f.write_str("twice"),
            times => write!(f, "{times} times"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(basis: Basis) -> RateEvidence {
        RateEvidence { basis, configured: None, lowered: Lowered::default(), now: 100.0, rising: false, noise: None }
    }

    #[test]
    fn a_rate_says_what_was_served_and_what_was_refused_since() {
        // 100 in a second, and then none for nine seconds: a window of ten.
        let cycle = Basis::Cycle { served: 100.0, took: 0.98, pause: 9.04 };
        assert_eq!(rate(cycle).to_string(), "100 served in 1 s, then refused; served again after 9 s");
        let mut lowered = Lowered::default();
        lowered.refused(9.8, 60.0);
        let once = RateEvidence { lowered, ..rate(cycle) }.to_string();
        assert!(once.ends_with("; refused once since at 9.8/s, last 40 s ago"), "{once}");
        lowered.refused(10.04, 90.0);
        lowered.refused(9.9, 97.5);
        let thrice = RateEvidence { lowered, ..rate(cycle) }.to_string();
        assert!(thrice.ends_with("; refused 3 times since at 9.8/s to 10/s, last 2.5 s ago"), "{thrice}");
    }

    #[test]
    fn what_is_configured_says_so() {
        let mut lowered = Lowered::default();
        lowered.refused(20.0, 99.0);
        let grounds = RateEvidence { configured: Some(20.0), lowered, ..rate(Basis::Configured) };
        assert_eq!(grounds.to_string(), "configured 20/s; refused once since at 20/s, last 1 s ago");
    }

    #[test]
    fn what_is_not_certain_says_so() {
        let grounds = RateEvidence { rising: true, ..rate(Basis::Lately { served: 59.6, over: 30.0 }) };
        let line = "about 60 served within 30 s, though some were refused; a lower bound: more is tried";
        assert_eq!(grounds.to_string(), line);
        let window = Basis::Window { served: 41.0, length: 10.0, pause: 3.2 };
        let grounds = RateEvidence { noise: Some(0.05), ..rate(window) };
        let line = "about 41 served in 10 s, refused for the last 3.2 s of them; about 5% are refused at any rate";
        assert_eq!(grounds.to_string(), line);
    }

    #[test]
    fn requests_at_once_say_how_many_were_refused_and_how_many_served() {
        let grounds = ConcurrencyEvidence { most: 5, refused: 6, served: 340, said: false, certain: true };
        assert_eq!(grounds.to_string(), "refused with 6 at once; 340 served since with 5 at most");
        let grounds = ConcurrencyEvidence { served: 2, said: true, certain: false, ..grounds };
        let line = "the API said that 6 at once are too many; 2 served since with 5 at most; still on trial";
        assert_eq!(grounds.to_string(), line);
    }

    #[test]
    fn what_an_api_says_has_who_says_it_how_often_and_whether_that_is_borne_out() {
        let grounds = ReportedEvidence {
            dialect: Dialect::X_RATELIMIT,
            limit: 100.0,
            answers: 340,
            window: Duration::from_secs(10),
            window_said: false,
            resets: 3,
            count: Agreement::Agrees,
        };
        let line = "x-ratelimit fields: 100, said 340 times; a window of 10 s, measured, restarted 3 times; the \
                    count agrees with what was sent";
        assert_eq!(grounds.to_string(), line);
        let grounds = ReportedEvidence { answers: 1, window_said: true, resets: 0, count: Agreement::Open, ..grounds };
        let line =
            "x-ratelimit fields: 100, said once; a window of 10 s, as the provider says; the count is not checked yet";
        assert_eq!(grounds.to_string(), line);
    }

    #[test]
    fn a_group_is_shown_by_what_it_has_in_common_and_a_credential_by_a_number_alone() {
        let group = |who| OwnGroup { who, refused: 3, others: 12 };
        assert_eq!(group(Who::Route(Some("GET /search".into()))).to_string(), "GET /search");
        assert_eq!(group(Who::Route(None)).to_string(), "one method and path");
        assert_eq!(group(Who::Credential(1)).to_string(), "credential 1");
        assert_eq!(group(Who::Rule(Some("tenant".into()))).to_string(), "a budget of tenant");
        let evidence = group(Who::Credential(1)).evidence();
        assert_eq!(evidence, "at least 3 refused while at least 12 others were served");
    }
}
