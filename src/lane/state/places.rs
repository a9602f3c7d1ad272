//! Places in flight of each client, where a limit on requests in flight holds.
//!
//! A place is held for as long as its request lasts, which a client can draw out: it withholds a body, or reads no
//! answer. So some places stay free for clients that hold none, and a client with its fair share lets others go first.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{Map, Sharer};

/// The places that clients hold, and the clients that may want one.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Number of places of each client that holds some.
    holders: Map<Sharer, u32>,
    /// Clients that hold none, and when each asked for one or gave one back.
    others: Map<Sharer, Instant>,
    swept: Option<Instant>,
}

/// Clients that a decision holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBack {
    /// Clients that have their share, or may not have one of the last places.
    Satisfied,
    /// Clients that may not have one of the last places: no other client can use the rest.
    Last,
}

/// A client that was here within this time may come back soon: longer than most clients pause between two requests.
const LATELY: Duration = Duration::from_secs(60);
/// The time between two looks for clients that have gone.
pub(super) const SWEEP: Duration = Duration::from_secs(1);
/// At most one in this many places stays free, so that clients that pause cost others little.
const KEPT: u32 = 4;

/// Most clients without a place that are remembered: enough for the places that stay free, whatever names come.
const MOST_OTHERS: usize = 1024;

// === impl Places ===

impl Places {
    /// Records a request that asks for a place.
    pub(super) fn asked(&mut self, client: Sharer, now: Instant) {
        if !self.holders.contains_key(&client) && (self.others.len() < MOST_OTHERS || self.others.contains_key(&client))
        {
            self.others.insert(client, now);
        }
    }

    /// Records a request that has taken a place.
    pub(super) fn took(&mut self, client: Sharer) {
        self.others.remove(&client);
        *self.holders.entry(client).or_default() += 1;
    }

    /// Records a request that has given its place back. A request that left before the limit was configured is unknown.
    pub(super) fn ended(&mut self, client: Sharer, now: Instant) {
        let Some(places) = self.holders.get_mut(&client) else { return };
        *places -= 1;
        if *places == 0 {
            self.holders.remove(&client);
            self.others.insert(client, now);
        }
    }

    /// Forgets clients that hold nothing and have not been here lately.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| swept + SWEEP <= now) {
            self.others.retain(|_, at| *at + LATELY > now);
            self.swept = Some(now);
        }
    }

    /// Returns whether a client may not have a further place, of which `free` of `most` are left.
    pub(super) fn holds_back(&self, client: Sharer, most: u32, free: u32) -> bool {
        free <= self.kept(most) && self.holders.contains_key(&client)
    }

    /// The clients held back while `free` of `most` places are left.
    pub(super) fn held_back(&self, which: HeldBack, most: u32, free: u32) -> Vec<Sharer> {
        let clients = self.holders.len() + self.others.len();
        if self.holders.is_empty() || clients == 1 {
            return Vec::new();
        }
        let share = most.div_ceil(u32::try_from(clients).unwrap_or(u32::MAX));
        let all = free <= self.kept(most);
        let satisfied = which == HeldBack::Satisfied;
        let held = self.holders.iter().filter(|(_, places)| all || satisfied && **places >= share);
        let mut held: Vec<_> = held.map(|(client, _)| *client).collect();
        held.sort_unstable();
        held
    }

    /// The places that stay free for clients that hold none.
    fn kept(&self, most: u32) -> u32 {
        let others = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
        others.min(most.div_ceil(KEPT)).min(most.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use andante_order::{Claim, ClientId};

    use super::*;

    fn client(number: u8) -> Sharer {
        Claim { client: ClientId::of([10, 0, 0, number].into()), ..Claim::USUAL }.upper()
    }

    fn holding(places: &[(u8, u32)], others: &[u8]) -> Places {
        let mut all = Places::default();
        places.iter().for_each(|(number, places)| (0..*places).for_each(|_| all.took(client(*number))));
        others.iter().for_each(|number| all.asked(client(*number), Instant::START));
        all
    }

    #[test]
    fn lone_client_has_all_places() {
        let alone = holding(&[(1, 9)], &[]);
        assert_eq!(alone.held_back(HeldBack::Satisfied, 10, 1), []);
        assert!(!alone.holds_back(client(1), 10, 1));
    }

    #[test]
    fn last_places_stay_free_for_as_many_clients_that_hold_none() {
        let one = holding(&[(1, 9)], &[2]);
        assert!(one.holds_back(client(1), 10, 1) && !one.holds_back(client(2), 10, 1));
        assert!(!one.holds_back(client(1), 10, 2));
        // A quarter of 10, rounded up, is 3; the only place is nobody's in particular.
        let many = holding(&[(1, 7)], &[2, 3, 4, 5, 6]);
        assert!(many.holds_back(client(1), 10, 3) && !many.holds_back(client(1), 10, 4));
        assert!(!many.holds_back(client(1), 1, 1));
    }

    #[test]
    fn client_with_its_share_is_held_back_only_while_others_want_the_places() {
        let both = holding(&[(1, 5), (2, 2)], &[]);
        assert_eq!(both.held_back(HeldBack::Satisfied, 10, 3), [client(1)]);
        assert_eq!(both.held_back(HeldBack::Last, 10, 3), []);
    }

    #[test]
    fn client_that_has_gone_is_forgotten() {
        let mut places = holding(&[(1, 9), (2, 1)], &[]);
        places.ended(client(2), Instant::START);
        places.sweep(Instant::START + LATELY / 2);
        assert!(places.holds_back(client(1), 10, 1));
        places.sweep(Instant::START + LATELY * 2);
        assert!(!places.holds_back(client(1), 10, 1));
    }
}
