//! Counts of the API.

use std::collections::VecDeque;

use super::*;

/// The API's count of one of a lane's limits: units of the last window one by one, their sum, and the total.
#[derive(Clone, Default)]
pub(super) struct CountedWindow {
    requests: VecDeque<(Micros, u32)>,
    used: u32,
    accepted: u64,
}

impl Fleet {
    /// Counts `cost` units of limit `number` of a lane.
    pub(super) fn arrive(&mut self, lane: usize, number: usize, cost: u32) {
        let Taken { limit, takes, .. } = self.shape.limits[number];
        let (now, per) = (self.now, micros(limit.rate.per));
        let window = &mut self.counted[lane][number];
        while let Some((_, gone)) = window.requests.pop_front_if(|(first, _)| *first <= now - per) {
            window.used -= gone;
        }
        window.requests.push_back((now, cost));
        window.used += cost;
        window.accepted += u64::from(cost);
        let (used, most) = (window.used, limit.rate.count.get());
        match takes {
            Some(_) => self.beyond = self.beyond.max(used.saturating_sub(most)),
            None => assert!(used <= most, "{used} of {most} in a window of lane {lane}"),
        }
    }

    /// Units counted so far for each limit of each lane.
    pub(super) fn accepted(&self) -> Vec<Vec<u64>> {
        self.counted.iter().map(|limits| limits.iter().map(|window| window.accepted).collect()).collect()
    }

    /// Part of limit `number` that was used in `seconds`: by all lanes, and by the lane with the least usage.
    pub(super) fn used(&self, number: usize, before: &[Vec<u64>], seconds: f64) -> (f64, f64) {
        let rate = self.shape.limits[number].limit.rate;
        let most = f64::from(rate.count.get()) / rate.per.as_secs_f64() * seconds;
        let used = self.accepted().into_iter().zip(before).map(|(after, before)| after[number] - before[number]);
        let (all, least) = used.fold((0, u64::MAX), |(all, least), used| (all + used, least.min(used)));
        (all as f64 / most / self.shape.lanes as f64, least as f64 / most)
    }
}
