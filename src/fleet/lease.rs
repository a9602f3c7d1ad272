//! Leases: how long a member may spend its tokens, and what it may spend after that.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use andante_clock::Instant;

use super::words::{RESPONSE_LATENESS, micros, stretched};

/// Right of a member to spend its tokens until an instant, and rules for spending without the store. All lanes read one
/// lease.
#[derive(Clone, Debug)]
pub struct Lease {
    clocks: Arc<Clocks>,
    down: StoreDown,
    hold: Duration,
}

/// Behaviour of a member after the store has not answered for the length of the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreDown {
    /// Let no request through.
    #[default]
    Wait,
    /// Continue with the member's floor.
    Floor(Floor),
    /// Continue with an equal part among the last known members. All together may exceed the limit.
    Open,
}

/// Part of each limit that is never lent: every member permanently owns an equal piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Size of the part in percent, from 1 to 90.
    pub percent: u8,
    /// Number of members that divide the part.
    pub members: NonZeroU32,
}

#[derive(Debug)]
struct Clocks {
    until: AtomicU64,
    /// When this member became an owner of a floor.
    seated: AtomicU64,
    /// Number of members; 0 if unknown.
    members: AtomicU32,
    /// Until then a store without state asks members what they hold.
    asks: AtomicU64,
}

// === impl Clocks ===

impl Default for Clocks {
    fn default() -> Self {
        let seated = AtomicU64::new(Instant::FAR.as_nanos());
        Self { until: AtomicU64::new(0), seated, members: AtomicU32::new(0), asks: AtomicU64::new(0) }
    }
}

// === impl Floor ===

impl Floor {
    /// Units of `limit` that one member owns. All members together never own more than the part.
    pub fn of(&self, limit: u32) -> u32 {
        let part = u64::from(limit) * u64::from(self.percent) / 100;
        (part / u64::from(self.members.get())) as u32
    }

    /// Units that all members own together.
    pub fn of_all(&self, limit: u32) -> u32 {
        self.of(limit) * self.members.get()
    }

    /// Units that the store can lend.
    pub fn lendable(&self, limit: u32) -> u32 {
        limit - self.of_all(limit)
    }
}

// === impl Lease ===

impl Default for Lease {
    fn default() -> Self {
        Self::new(StoreDown::default())
    }
}

impl Lease {
    /// The default [hold](Self::hold).
    pub const HOLD: Duration = Duration::from_secs(300);

    /// A lease that has not begun.
    pub fn new(down: StoreDown) -> Self {
        Self { clocks: Arc::default(), down, hold: Self::HOLD }
    }

    /// This lease, with tokens of in-flight limits withheld for `hold` after its end.
    pub fn holding(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Time after a silent member's lease in which no other member gets its tokens of in-flight limits. No response to
    /// the member may last longer.
    pub fn hold(&self) -> Duration {
        self.hold
    }

    /// Behaviour after the end of the lease.
    pub fn down(&self) -> StoreDown {
        self.down
    }

    /// End of the lease.
    pub fn until(&self) -> Instant {
        Instant::from_nanos(self.clocks.until.load(Ordering::Relaxed))
    }

    /// Returns true if the lease holds.
    pub fn holds(&self, now: Instant) -> bool {
        now < self.until()
    }

    /// Sets the end of the lease.
    pub fn set(&self, until: Instant) {
        self.clocks.until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Records that a store without state asks members until `until` what they hold.
    pub fn asks(&self, until: Instant) {
        self.clocks.asks.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// When a store without state knows what members hold, if that is still to come. Limits open their window's length
    /// later.
    pub fn learns_until(&self, now: Instant) -> Option<Instant> {
        Some(self.opens(Duration::ZERO)).filter(|until| *until > now)
    }

    /// When the store begins to give out unreported tokens of a limit with this window's length. By then no unreported
    /// unit counts any more. [`Instant::START`] if the store never lost its state.
    pub fn opens(&self, per: Duration) -> Instant {
        match self.clocks.asks.load(Ordering::Relaxed) {
            0 => Instant::START,
            until => {
                Instant::from_nanos(until) + Duration::from_micros((stretched(micros(per)) + RESPONSE_LATENESS) as u64)
            }
        }
    }

    /// Records the number of members, this one included, and how many of them divide differently. Returns true if there
    /// is a floor for this member. Members beyond the number of floors own none; nor does a member that joins others
    /// with different floors.
    pub fn count(&self, now: Instant, members: u32, differing: u32) -> bool {
        self.clocks.members.store(members, Ordering::Relaxed);
        match self.down {
            StoreDown::Floor(floor) if members > floor.members.get() || differing > 0 => self.is_seated(),
            _ => {
                self.clocks.seated.fetch_min(now.as_nanos(), Ordering::Relaxed);
                true
            }
        }
    }

    /// Number of members; 0 if unknown.
    pub fn members(&self) -> u32 {
        self.clocks.members.load(Ordering::Relaxed)
    }

    /// Returns true if this member may own a floor.
    pub fn is_seated(&self) -> bool {
        self.seated() < Instant::FAR
    }

    /// Ends the lease and the floor.
    pub fn end(&self) {
        self.clocks.until.store(0, Ordering::Relaxed);
        self.clocks.seated.store(Instant::FAR.as_nanos(), Ordering::Relaxed);
        self.clocks.members.store(0, Ordering::Relaxed);
    }

    /// Returns true if units may be spent after the end of the lease.
    pub fn goes_on(&self) -> bool {
        match self.down {
            StoreDown::Wait => false,
            StoreDown::Floor(_) => self.is_seated(),
            StoreDown::Open => self.clocks.members.load(Ordering::Relaxed) > 0,
        }
    }

    /// Units of `limit` that may be lent at all.
    pub fn lendable(&self, limit: u32) -> u32 {
        match self.down {
            StoreDown::Floor(floor) => floor.lendable(limit),
            StoreDown::Wait | StoreDown::Open => limit,
        }
    }

    /// Units of `limit` that this member owns. Units that an earlier member spent leave the API's window after
    /// `clears`, so a new owner waits that long.
    pub fn own(&self, now: Instant, limit: u32, clears: Duration) -> u32 {
        match self.down {
            StoreDown::Floor(floor) if self.is_seated() && now >= self.seated() + clears => floor.of(limit),
            _ => 0,
        }
    }

    /// Units of `limit` that may be used after the end of the lease.
    pub fn alone(&self, now: Instant, limit: u32, clears: Duration) -> u32 {
        match self.down {
            StoreDown::Wait => 0,
            StoreDown::Floor(_) => self.own(now, limit, clears),
            StoreDown::Open => {
                limit.checked_div(self.clocks.members.load(Ordering::Relaxed)).map_or(0, |part| part.max(1))
            }
        }
    }

    fn seated(&self) -> Instant {
        Instant::from_nanos(self.clocks.seated.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn floor(percent: u8, members: u32) -> Lease {
        Lease::new(StoreDown::Floor(Floor { percent, members: NonZeroU32::new(members).unwrap() }))
    }

    const CLEARS: Duration = Duration::from_secs(60);

    #[test]
    fn a_fifth_of_five_hundred_is_twenty_five_for_each_of_four() {
        let lease = floor(20, 4);
        let now = Instant::START + Duration::from_secs(100);
        assert!(lease.count(now, 4, 0));
        assert_eq!(lease.lendable(500), 400);
        // A process before this one may have spent the floor.
        assert_eq!(lease.own(now + CLEARS - Duration::from_nanos(1), 500, CLEARS), 0);
        assert_eq!(lease.own(now + CLEARS, 500, CLEARS), 25);
        assert_eq!(lease.alone(now + CLEARS, 500, CLEARS), 25);
        lease.end();
        assert_eq!(lease.own(now + CLEARS, 500, CLEARS), 0);
    }

    #[test]
    fn one_more_than_the_floors_are_for_owns_none() {
        let (lease, now) = (floor(20, 4), Instant::START + CLEARS);
        assert!(!lease.count(now, 5, 0) && !lease.goes_on());
        assert_eq!(lease.own(now + CLEARS, 500, CLEARS), 0);
        // A member has left, and its spent units clear.
        assert!(lease.count(now + CLEARS, 4, 0) && lease.goes_on());
        assert_eq!(lease.own(now + CLEARS, 500, CLEARS), 0);
        // A member keeps the floor that it once has.
        assert!(lease.count(now + CLEARS, 5, 0));
        assert_eq!(lease.own(now + CLEARS + CLEARS, 500, CLEARS), 25);
    }

    /// Four floors of a fifth, and one member configured with a half for two: 4 × 25 + 1 × 125 + 400 would be 625.
    #[test]
    fn one_that_comes_to_others_with_other_floors_owns_none() {
        let (lease, now) = (floor(50, 2), Instant::START + CLEARS);
        assert!(!lease.count(now, 2, 1) && !lease.goes_on());
        assert_eq!(lease.own(now + CLEARS, 500, CLEARS), 0);
        // The other member has gone, or has the same floors now.
        assert!(lease.count(now + CLEARS, 2, 0));
        assert_eq!(lease.own(now + CLEARS + CLEARS, 500, CLEARS), 125);
    }

    #[test]
    fn an_open_one_goes_on_with_its_part_of_what_it_knew() {
        let (lease, now) = (Lease::new(StoreDown::Open), Instant::START);
        assert_eq!(lease.alone(now, 500, CLEARS), 0);
        lease.count(now, 4, 0);
        assert_eq!((lease.alone(now, 500, CLEARS), lease.own(now, 500, CLEARS)), (125, 0));
        assert_eq!(lease.alone(now, 2, CLEARS), 1);
        assert_eq!((Lease::default().alone(now, 500, CLEARS), Lease::default().lendable(500)), (0, 500));
    }

    proptest! {
        #[test]
        fn floors_and_what_is_lent_are_the_limit(limit in 1..u32::MAX, percent in 1..=90_u8, members in 1..5000_u32) {
            let lease = floor(percent, members);
            lease.count(Instant::START, 1, 0);
            let owned = u64::from(lease.own(Instant::START, limit, Duration::ZERO)) * u64::from(members);
            prop_assert_eq!(owned + u64::from(lease.lendable(limit)), u64::from(limit));
            prop_assert!(owned * 100 <= u64::from(limit) * u64::from(percent) && lease.lendable(limit) > 0);
        }
    }
}
