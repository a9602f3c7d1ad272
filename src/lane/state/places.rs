//! Places in flight of each client, where the number of requests in flight is limited.
//!
//! A request holds its place until it ends, and a client can draw that out: it withholds a body, reads no answer, or
//! names a port that answers no SYN. So a few places stay free for other clients that were here lately.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{Claim, Map, Sharer};

/// The clients that hold places, or held or asked for one lately.
#[derive(Debug, Default)]
pub(super) struct Places {
    clients: Map<Sharer, Holder>,
    /// The sum of the clients' weights.
    weights: u64,
    /// Number of the current period since [`Instant::START`].
    period: u64,
    /// The number of places that clients share.
    limit: Option<u32>,
}

/// A client's places.
#[derive(Debug)]
struct Holder {
    places: u32,
    weight: u64,
    /// The period in which it last asked for a place or gave one back.
    seen: u64,
}

/// Clients count as present for this long after their last request, and at most for twice as long. Most workers pause
/// for less between two requests.
const PERIOD: Duration = Duration::from_secs(10);
/// At most one place in this many stays free for others: a client that has gone costs the rest no more.
const PLACES_PER_FREE_PLACE: u32 = 4;
/// Beyond this many clients, others count as present only once they hold places.
const MAX_CLIENTS: usize = 4096;

// === impl Places ===

impl Places {
    /// Advances the time, and sets the number of places that clients share. Returns true if some client may have more
    /// places than before: others have gone, or the number has changed.
    pub(super) fn advance(&mut self, now: Instant, limit: Option<u32>) -> bool {
        let changes = std::mem::replace(&mut self.limit, limit) != limit;
        let period = now.since(Instant::START).as_secs() / PERIOD.as_secs();
        let begins = self.period != period;
        if begins {
            self.period = period;
            let Self { clients, weights, .. } = self;
            clients.retain(|_, holder| {
                let stays = holder.places > 0 || holder.seen + 1 >= period;
                *weights -= if stays { 0 } else { holder.weight };
                stays
            });
        }
        begins || changes
    }

    /// The end of the current period.
    pub(super) fn period_end(&self) -> Instant {
        Instant::START + PERIOD.saturating_mul(u32::try_from(self.period + 1).unwrap_or(u32::MAX))
    }

    /// Records a request that asks for a place.
    pub(super) fn asked(&mut self, claim: &Claim) {
        if self.limit.is_some() && (self.clients.len() < MAX_CLIENTS || self.clients.contains_key(&claim.upper())) {
            self.sees(claim);
        }
    }

    fn sees(&mut self, claim: &Claim) {
        let (period, weight) = (self.period, claim.weights().0.get());
        let holder = self.clients.entry(claim.upper()).or_insert(Holder { places: 0, weight: 0, seen: period });
        self.weights = self.weights - holder.weight + weight;
        (holder.weight, holder.seen) = (weight, period);
    }

    /// Records a request that takes a place. Returns false if places are not shared now: then its end is not recorded.
    pub(super) fn took(&mut self, claim: &Claim) -> bool {
        if self.limit.is_none() {
            return false;
        }
        self.sees(claim);
        self.clients.entry(claim.upper()).and_modify(|holder| holder.places += 1);
        true
    }

    /// Records a request that gives its place back.
    pub(super) fn ended(&mut self, claim: &Claim) {
        let period = self.period;
        if let Some(holder) = self.clients.get_mut(&claim.upper()) {
            (holder.places, holder.seen) = (holder.places - 1, period);
        }
    }

    /// Returns whether the client may take one more place, if there is one.
    pub(super) fn has_place(&self, claim: &Claim) -> bool {
        let Some(limit) = self.limit else { return true };
        let places = self.clients.get(&claim.upper()).map_or(0, |holder| holder.places);
        places < limit - self.free_beside(claim)
    }

    /// The number of places that stay free for others while this client has its most: one for each other client, at
    /// most their fair share, and at most a part of all.
    pub(super) fn free_beside(&self, claim: &Claim) -> u32 {
        let limit = self.limit.unwrap_or(0);
        let own = self.clients.get(&claim.upper()).map_or(0, |holder| holder.weight);
        let others = self.clients.len() - usize::from(own > 0);
        let fair = u64::from(limit) * (self.weights - own) / self.weights.max(1);
        (others as u64).min(fair).min(u64::from(limit / PLACES_PER_FREE_PLACE)) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use andante_order::{ClientId, Weight};

    use super::*;

    fn claim(client: u8, weight: u16) -> Claim {
        let client_weight = Weight(NonZeroU16::new(weight).unwrap());
        Claim { client: ClientId::of([10, 0, 0, client].into()), client_weight, ..Claim::USUAL }
    }

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    /// Places that `others` further clients asked for, `limit` in all.
    fn places(limit: u32, others: u8) -> Places {
        let mut places = Places::default();
        places.advance(at(0), Some(limit));
        (2..2 + others).for_each(|client| places.asked(&claim(client, 1)));
        places
    }

    /// The number of places that one client gets.
    fn most(places: &mut Places, claim: &Claim) -> u32 {
        (0..).find(|_| !places.has_place(claim) || !places.took(claim)).unwrap()
    }

    #[test]
    fn lone_client_has_all_places() {
        assert_eq!(most(&mut places(10, 0), &claim(1, 1)), 10);
    }

    /// Of 12 places 3 stay free at most, and none of 3.
    #[test]
    fn one_place_stays_free_for_each_other_client_and_a_quarter_at_most() {
        for (others, limit, expected) in [(1, 12, 11), (2, 12, 10), (3, 12, 9), (30, 12, 9), (30, 4, 3), (30, 3, 3)] {
            let most = most(&mut places(limit, others), &claim(1, 1));
            assert_eq!(most, expected, "{others} others, {limit} places");
        }
    }

    /// 100 of 102 parts of 12 places are 11.8: the two others have less than one place together.
    #[test]
    fn others_keep_no_more_than_their_weights_allow() {
        assert_eq!(most(&mut places(12, 2), &claim(1, 100)), 12);
    }

    #[test]
    fn client_that_has_not_been_here_for_two_periods_keeps_no_place() {
        let mut places = places(12, 0);
        places.advance(at(9), Some(12));
        places.asked(&claim(2, 1));
        places.took(&claim(3, 1));
        for (seconds, free) in [(9, 2), (19, 2), (20, 1), (400, 1)] {
            places.advance(at(seconds), Some(12));
            assert_eq!(places.free_beside(&claim(1, 1)), free, "after {seconds} s");
        }
        places.ended(&claim(3, 1));
        assert_eq!(places.period_end(), at(410));
        places.advance(at(420), Some(12));
        assert_eq!((places.free_beside(&claim(1, 1)), places.weights), (0, 0));
    }

    #[test]
    fn made_up_clients_take_no_memory_and_each_holder_counts() {
        let mut places = places(12, 0);
        for number in 0..100_000_u32 {
            places.asked(&Claim { client: ClientId::of(number.to_be_bytes().into()), ..Claim::USUAL });
        }
        assert_eq!(places.clients.len(), MAX_CLIENTS);
        assert_eq!(most(&mut places, &claim(1, 1)), 9);
    }

    #[test]
    fn request_that_left_before_the_limit_gives_no_place_back() {
        let mut places = Places::default();
        assert!(!places.took(&claim(1, 1)));
        assert!(places.advance(at(0), Some(4)), "there are fewer places than before");
        assert!(!places.advance(at(0), Some(4)) && places.took(&claim(1, 1)));
    }
}
