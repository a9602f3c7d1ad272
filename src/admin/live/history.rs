//! Samples of the last 15 minutes, one every 5 seconds: of all lanes together, and of each active lane. A page that is
//! opened later shows them too. Quiet lanes cost nothing.

mod series;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use hyper::body::Bytes;
use serde::Serialize;

pub(super) use self::series::LaneSeries;
use self::series::{Counts, LanePoint, LaneTrace, TotalPoint, TotalSeries, percentiles};
use super::stream::event;
use crate::{
    admin::{
        detail::{LaneName, Sample, WaitBucket},
        status::Requests,
    },
    lane::LaneActivity,
};

/// Samples that are remembered: 15 minutes.
const SAMPLES: usize = 180;
/// Time between two samples, as reported to pages.
const STEP_SECONDS: u64 = 5;
/// Lanes that are remembered, the busiest: 8 KiB each, 4 MiB in all. Others have no charts.
const MOST_LANES: usize = 500;

/// The last samples.
#[derive(Default)]
pub(super) struct History {
    /// Samples so far.
    number: u64,
    totals: VecDeque<TotalPoint>,
    lanes: HashMap<LaneName, VecDeque<LanePoint>>,
    before: Counted,
}

/// Counts at the last sample, from which the next one counts on.
#[derive(Default)]
struct Counted {
    lanes: HashMap<LaneName, LaneActivity>,
    waits: HashMap<Arc<str>, Vec<WaitBucket>>,
    requests: Requests,
}

/// Samples, as a page is sent them.
#[derive(Serialize)]
struct HistoryEvent {
    /// True if the samples are complete, false if they continue those that the page has.
    whole: bool,
    /// The number of the last one.
    number: u64,
    step_s: u64,
    samples: usize,
    total: TotalSeries,
    lanes: BTreeMap<String, LaneTrace>,
}

// === impl History ===

impl History {
    /// Number of samples so far.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Remembers what happened since the sample before. Lanes that are not named are gone.
    pub(super) fn add(&mut self, sample: Sample) {
        self.number += 1;
        let Sample { lanes: named, waits, requests } = sample;
        let mut lanes = HashMap::<LaneName, LaneActivity>::new();
        for (name, activity) in named {
            // Two lanes may have one name for a moment, while rules change.
            lanes.entry(name).and_modify(|other| merge(other, &activity)).or_insert(activity);
        }
        let mut longest = HashMap::<&Arc<str>, Duration>::new();
        for (name, lane) in &lanes {
            let longest = longest.entry(&name.rule).or_default();
            *longest = lane.waited_most.max(*longest);
        }
        let none = Vec::new();
        let waited: HashMap<&Arc<str>, _> = waits
            .iter()
            .map(|(rule, now)| {
                let before = self.before.waits.get(rule).unwrap_or(&none);
                (rule, percentiles(now, before, longest.get(rule).copied().unwrap_or_default()))
            })
            .collect();
        let mut total = total(&requests, &self.before.requests);
        let mut points: HashMap<&LaneName, LanePoint> = lanes
            .iter()
            .map(|(name, now)| {
                let waits = waited.get(&name.rule).copied().flatten();
                (name, LanePoint { waits, ..point(now, self.before.lanes.get(name)) })
            })
            .collect();
        for point in points.values() {
            // Some refusals are of no lane: they are counted in `total` already.
            total.counts.waiting += point.counts.waiting;
            total.counts.sent += point.counts.sent;
            total.counts.refused_by_api += point.counts.refused_by_api;
            total.paused += u32::from(point.paused);
        }
        push(&mut self.totals, total);
        for (name, samples) in &mut self.lanes {
            push(samples, points.remove(name).unwrap_or_default());
        }
        let new = points.into_iter().filter(|(_, point)| !point.is_quiet());
        self.lanes.extend(new.map(|(name, point)| (name.clone(), [point].into())));
        self.lanes.retain(|_, samples| samples.iter().any(|point| !point.is_quiet()));
        drop(waited);
        self.keep_busiest();
        self.before = Counted { lanes, waits, requests };
    }

    /// Forgets all but the [`MOST_LANES`] lanes with the busiest sample. A sum over the samples would shut out a lane
    /// that has just become busy. Of lanes that are equally busy, the ones with the most samples stay.
    fn keep_busiest(&mut self) {
        let extra = self.lanes.len().saturating_sub(MOST_LANES);
        if extra == 0 {
            return;
        }
        let peak = |samples: &VecDeque<LanePoint>| samples.iter().map(|point| point.counts.sum()).max();
        let mut ranks: Vec<_> =
            self.lanes.iter().map(|(name, samples)| (peak(samples), samples.len(), name.clone())).collect();
        ranks.select_nth_unstable_by_key(extra, |(peak, length, _)| (*peak, *length));
        for (_, _, name) in &ranks[..extra] {
            self.lanes.remove(name);
        }
    }

    /// The samples of this lane, the oldest first; it was quiet before the first.
    pub(super) fn of(&self, lane: &LaneName) -> LaneSeries {
        self.lanes.get(lane).into_iter().flatten().collect()
    }

    /// All samples.
    pub(super) fn whole(&self) -> Bytes {
        self.event(true, SAMPLES)
    }

    /// The samples after that of this `number`; `None` if there are none.
    pub(super) fn after(&self, number: u64) -> Option<Bytes> {
        let count = usize::try_from(self.number.saturating_sub(number)).unwrap_or(SAMPLES);
        (count > 0).then(|| self.event(false, count))
    }

    /// The last `count` samples. Lanes that were quiet in all of them are left out.
    fn event(&self, whole: bool, count: usize) -> Bytes {
        let trace = |samples: &VecDeque<LanePoint>| {
            let skipped = samples.len().saturating_sub(count);
            let first = self.number + 1 - samples.len() as u64;
            (first..).zip(samples).skip(skipped).collect()
        };
        let is_active = |samples: &VecDeque<LanePoint>| samples.iter().rev().take(count).any(|point| !point.is_quiet());
        let lanes = self.lanes.iter().filter(|(_, samples)| is_active(samples));
        let event_of = HistoryEvent {
            whole,
            number: self.number,
            step_s: STEP_SECONDS,
            samples: SAMPLES,
            total: self.totals.iter().skip(self.totals.len().saturating_sub(count)).collect(),
            lanes: lanes.map(|(name, samples)| (name.to_string(), trace(samples))).collect(),
        };
        event("history", &serde_json::to_string(&event_of).unwrap_or_default())
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The activity of two lanes as if they were one.
fn merge(one: &mut LaneActivity, other: &LaneActivity) {
    one.waiting += other.waiting;
    one.sent += other.sent;
    one.refused += other.refused;
    one.refused_by_api += other.refused_by_api;
    one.pauses += other.pauses;
    one.paused |= other.paused;
    one.waited_most = one.waited_most.max(other.waited_most);
}

/// Activity of a lane since `before`, or since its beginning if it is new.
fn point(now: &LaneActivity, before: Option<&LaneActivity>) -> LanePoint {
    let since = |count: fn(&LaneActivity) -> u64| growth(count(now), before.map_or(0, count));
    LanePoint {
        counts: Counts {
            waiting: u32::try_from(now.waiting).unwrap_or(u32::MAX),
            sent: since(|lane| lane.sent),
            refused: since(|lane| lane.refused),
            refused_by_api: since(|lane| lane.refused_by_api),
        },
        paused: now.paused || since(|lane| lane.pauses) > 0,
        limit: now.per_second.map(|pace| pace as f32),
        waits: None,
    }
}

/// Requests that ended since `before`, in the ways that no lane counts.
fn total(now: &Requests, before: &Requests) -> TotalPoint {
    TotalPoint {
        counts: Counts { refused: growth(now.refused, before.refused), ..Counts::default() },
        failed: growth(now.failed, before.failed),
        left: growth(now.left, before.left),
        paused: 0,
    }
}

/// Growth of a count since the sample before.
fn growth(now: u64, before: u64) -> u32 {
    u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn name(host: &str) -> LaneName {
        LaneName { rule: "api".into(), host: host.into() }
    }

    fn lane(host: &str, waiting: usize, sent: u64) -> (LaneName, LaneActivity) {
        let (refused, refused_by_api, pauses, paused, waited_most) = (0, 0, 0, false, Duration::from_secs(60));
        let per_second = Some(10.0);
        let lane = LaneActivity { waiting, sent, refused, refused_by_api, pauses, paused, waited_most, per_second };
        (name(host), lane)
    }

    fn sample(lanes: &[(LaneName, LaneActivity)]) -> Sample {
        Sample { lanes: lanes.to_vec(), ..Sample::default() }
    }

    fn series(history: &History, host: &str) -> Value {
        // As text: pages see the shortest digits of a number.
        serde_json::from_str(&serde_json::to_string(&history.of(&name(host))).unwrap()).unwrap()
    }

    fn told(bytes: &Bytes) -> Value {
        let text = str::from_utf8(bytes).unwrap();
        serde_json::from_str(text.strip_prefix("event: history\ndata: ").unwrap().trim_end()).unwrap()
    }

    #[test]
    fn a_lane_is_remembered_for_a_while_after_its_last_request() {
        let mut history = History::default();
        history.add(sample(&[lane("a", 3, 0), lane("b", 0, 0)]));
        history.add(sample(&[lane("a", 1, 0)]));
        history.add(Sample::default());
        assert_eq!(series(&history, "a")["waiting"], json!([3, 1, 0]));
        assert_eq!(series(&history, "b")["waiting"], json!([]));
        for _ in 0..SAMPLES {
            history.add(sample(&[lane("b", 1, 0)]));
        }
        let length = |host: &str| series(&history, host)["waiting"].as_array().unwrap().len();
        assert_eq!((length("a"), length("b")), (0, SAMPLES));
    }

    #[test]
    fn counts_are_those_since_the_sample_before() {
        let mut history = History::default();
        history.add(sample(&[lane("a", 0, 50)]));
        let mut paused = lane("a", 9, 90);
        (paused.1.pauses, paused.1.refused_by_api) = (1, 2);
        history.add(sample(&[paused.clone()]));
        // The pause is over before the sample: it was counted.
        paused.1.sent = 140;
        history.add(sample(&[paused]));
        let series = series(&history, "a");
        assert_eq!((&series["sent"], &series["paused"]), (&json!([50, 40, 50]), &json!([0, 1, 0])));
        assert_eq!((&series["refused_by_api"], &series["limit"]), (&json!([0, 2, 0]), &json!([10.0, 10.0, 10.0])));
        let whole = told(&history.whole());
        assert_eq!((&whole["number"], &whole["total"]["sent"]), (&json!(3), &json!([50, 40, 50])));
        let row = json!({ "sent": [50, 40, 50], "limit": 10.0, "paused": [2], "refused": [[2, 2]] });
        assert_eq!(whole["lanes"]["api a"], row);
        let last = told(&history.after(2).unwrap());
        let row = json!({ "sent": [50], "limit": 10.0, "paused": [], "refused": [] });
        assert_eq!((&last["lanes"]["api a"], &last["whole"]), (&row, &json!(false)));
        assert!(history.after(3).is_none());
        history.add(Sample::default());
        assert_eq!(told(&history.after(3).unwrap())["lanes"], json!({}), "it was quiet");
    }

    #[test]
    fn waits_are_those_of_the_rule() {
        let mut history = History::default();
        let bucket = |count| vec![WaitBucket { at_most_s: Some(1.0), count }, WaitBucket { at_most_s: None, count: 0 }];
        for count in [10, 20] {
            let waits = HashMap::from([("api".into(), bucket(count))]);
            history.add(Sample { waits, ..sample(&[lane("a", 1, count)]) });
        }
        let series = series(&history, "a");
        assert_eq!((&series["p50"], &series["p99"]), (&json!([0.5, 0.5]), &json!([0.99, 0.99])));
    }

    #[test]
    fn the_busiest_lanes_are_remembered_and_equal_ones_keep_their_history() {
        let mut history = History::default();
        let mut lanes: Vec<_> = (0..MOST_LANES).map(|n| lane(&format!("old-{n}"), 5, 0)).collect();
        history.add(sample(&lanes));
        lanes.extend([lane("as busy", 5, 0), lane("busier", 0, 6)]);
        lanes.extend((0..10).map(|n| lane(&format!("less busy-{n}"), 1, 0)));
        history.add(sample(&lanes));
        let length = |host: &str| series(&history, host)["waiting"].as_array().unwrap().len();
        assert_eq!((length("busier"), length("as busy"), length("less busy-0")), (1, 0, 0));
        let old = (0..MOST_LANES).filter(|n| length(&format!("old-{n}")) == 2).count();
        assert_eq!((history.lanes.len(), old), (MOST_LANES, MOST_LANES - 1));
        history.add(sample(&[lane("later", 400, 0)]));
        assert_eq!(series(&history, "later")["waiting"], json!([400]));
        assert_eq!(history.lanes.len(), MOST_LANES);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        let lanes: Vec<_> = (0..MOST_LANES + 10).map(|n| lane(&n.to_string(), 1, 0)).collect();
        history.add(sample(&lanes));
        assert_eq!(history.lanes.len(), MOST_LANES);
        assert!(size_of::<LanePoint>() * SAMPLES <= 8 * 1024);
    }
}
