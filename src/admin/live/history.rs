//! Waiting requests in each lane during the last quarter of an hour. Lanes without waiting requests cost
//! nothing.

use std::collections::{HashMap, VecDeque};

use crate::admin::detail::{LaneName, QueueLength};

/// Samples that are kept of a lane.
const SAMPLES: usize = 180;

/// The queues' lengths over time.
#[derive(Default)]
pub(super) struct History(HashMap<LaneName, VecDeque<u32>>);

// === impl History ===

impl History {
    /// Adds the present lengths. Lanes that are not named have no waiting requests.
    pub(super) fn add(&mut self, queues: &[QueueLength]) {
        for samples in self.0.values_mut() {
            if samples.len() == SAMPLES {
                samples.pop_front();
            }
            samples.push_back(0);
        }
        for QueueLength { lane, waiting } in queues.iter().filter(|queue| queue.waiting > 0) {
            let waiting = u32::try_from(*waiting).unwrap_or(u32::MAX);
            match self.0.get_mut(lane).and_then(VecDeque::back_mut) {
                // Two lanes may have one name for a moment, while rules change.
                Some(last) => *last = last.saturating_add(waiting),
                None => drop(self.0.insert(lane.clone(), [waiting].into())),
            }
        }
        self.0.retain(|_, samples| samples.iter().any(|waiting| *waiting > 0));
    }

    /// Waiting requests in this lane, the oldest sample first; before that sample the queue was empty.
    pub(super) fn of(&self, lane: &LaneName) -> impl Iterator<Item = u32> {
        self.0.get(lane).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str) -> LaneName {
        LaneName { rule: "api".into(), host: host.into() }
    }

    fn queue(host: &str, waiting: u64) -> QueueLength {
        QueueLength { lane: name(host), waiting }
    }

    #[test]
    fn a_lane_is_remembered_for_a_while_after_its_last_request() {
        let mut history = History::default();
        history.add(&[queue("a", 3), queue("b", 0)]);
        history.add(&[queue("a", 1)]);
        history.add(&[]);
        assert_eq!(history.of(&name("a")).collect::<Vec<_>>(), [3, 1, 0]);
        assert_eq!(history.of(&name("b")).count(), 0);
        for _ in 0..SAMPLES {
            history.add(&[queue("b", 1)]);
        }
        assert_eq!((history.of(&name("a")).count(), history.of(&name("b")).count()), (0, SAMPLES));
    }
}
