//! What a member and the store say to each other. Only relative times cross the wire.

use std::{fmt, sync::Arc, time::Duration};

/// A time or a duration in whole microseconds, as the store's scripts reckon.
pub type Micros = i64;

/// One process, from its start to its end: a process that starts again is another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// Since when a store has known everything. Two differ if anything may have been forgotten between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Grows with each beginning.
    pub counter: u64,
    /// Tells apart two beginnings with the same counter.
    pub id: u32,
}

/// What all members of a fleet have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For how long a member may spend what it holds without having heard from the store.
    pub lease: Micros,
    /// For how long a store may go on answering after another one has taken its place.
    pub split: Micros,
    /// How what is not lent is divided. A member with another one is let in, and told so.
    pub division: Division,
}

/// How a fleet divides what is not lent: the same for all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Division {
    /// Among how many; 0 if nothing is divided.
    pub members: u32,
    /// How large floors are, in percent; 0 without any.
    pub floor: u8,
}

/// One call of a member.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Who calls.
    pub member: MemberId,
    /// Grows with each call of this member: what arrives late or twice is known by it.
    pub seq: u64,
    /// The epoch that the member knows; `None` before its first reply.
    pub epoch: Option<Epoch>,
    /// Whether its lease holds, by its own clock.
    pub leased: bool,
    /// The call before this one and the time since that was sent, if its reply came soon.
    pub basis: Option<CallAge>,
    /// What it takes for agreed.
    pub terms: Terms,
    /// Names an epoch, should one begin.
    pub nonce: u32,
    /// Which of its pools it speaks of.
    pub extent: Extent,
    /// The number of the last change of pauses that it has heard of in this epoch.
    pub pauses_known: u64,
    /// Pauses that the store may not know of.
    pub pauses: Vec<Pause>,
    /// One for each of these pools.
    pub entries: Vec<Entry>,
}

/// A pause that an API has asked one member for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// What pauses: the name of a lane, and after a line feed that of the API's budget, if it is about one.
    pub name: Arc<str>,
    /// How long it lasts yet; 0 if an operator has ended it.
    pub left: Micros,
    /// Why.
    pub cause: PauseCause,
}

/// Why an API has asked for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseCause {
    /// It said for how long.
    RetryAfter,
    /// It said that nothing is left until a reset.
    Exhausted,
    /// It has banned the client.
    Banned,
}

/// An answered call, as a measure of time that the store can believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallAge {
    /// Its number.
    pub seq: u64,
    /// The time since it was sent.
    pub elapsed: Micros,
}

/// Of which of its pools a member speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Of some.
    Some,
    /// Of all in which it holds anything.
    All,
    /// Of all, and it leaves.
    Leaving,
}

/// What a member says of one pool: one limit of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of the pool.
    pub pool: Arc<str>,
    /// How many tokens the limit has by the member's configuration.
    pub limit: u32,
    /// The length of its window.
    pub per: Micros,
    /// How long after it was sent a request may be counted by the API, the shortest way to it included.
    pub settle: Micros,
    /// What the member holds, gifts already taken off.
    pub holds: u32,
    /// How many more it would use now.
    pub want: u32,
    /// What the next request that waits takes at once; 0 if none waits.
    pub cost: u32,
    /// How many of these it lacks: fewer are of no use to it.
    pub need: u32,
    /// Units that wait or were used lately.
    pub demand: u32,
    /// The member forgets this pool: what it holds is free after this time.
    pub ends: Option<Micros>,
    /// What the others are to know of it, if this member knows anything: the last word of all is told.
    pub word: Box<str>,
}

/// What the store says.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The call was executed.
    Done {
        /// The store's epoch.
        epoch: Epoch,
        /// How long nothing is given out that nobody has reported, where windows are short.
        learning: Micros,
        /// How many members have a lease.
        members: u32,
        /// How many of them divide otherwise.
        differing: u32,
        /// In the order of the entries.
        given: Vec<PoolGrant>,
        /// The number of the last change of pauses.
        pauses_known: u64,
        /// Pauses that the member has not heard of.
        pauses: Vec<Pause>,
    },
    /// The store has another epoch: report everything.
    Report,
    /// The member's tokens are the store's again: it has to begin anew, under another name.
    Reset,
    /// This store is no longer the one that counts.
    Deposed,
    /// For so long the store whose place this one has taken may go on answering.
    NotYet(Micros),
    /// The fleet has agreed on another lease, which is this.
    Disagreed(Micros),
    /// The call came late, or twice.
    Ignored,
}

/// What the store says of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolGrant {
    /// What the member holds now.
    pub holds: u32,
    /// What it may keep while others want more.
    pub target: f64,
    /// Somebody wants more than there is.
    pub wanted: bool,
    /// More was given out than there is.
    pub over: bool,
    /// The member stands in line, and will be told.
    pub queued: bool,
    /// The smallest limit that a member is configured with.
    pub limit: u32,
    /// What would be the share of each member in which requests wait.
    pub pace: f64,
    /// What a member has said of it last.
    pub word: Box<str>,
}

/// Somebody is to call soon. It wakes, and never grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// For the sake of a pool.
    Pool {
        /// Who; `None` is everybody else.
        member: Option<MemberId>,
        /// The pool.
        pool: Arc<str>,
    },
    /// Everybody else: there are pauses that it does not know.
    Pauses,
}

// === impl Reply ===

impl Reply {
    /// Whether a store can say this to `call`: none gives more than was asked for.
    pub fn answers(&self, call: &Sync) -> bool {
        match self {
            Self::Done { epoch, learning, given, pauses_known, pauses, .. } => {
                let sound = |(entry, given): (&Entry, &PoolGrant)| given.answers(entry);
                epoch.counter < EXACT
                    && *pauses_known < EXACT
                    && pauses.iter().all(|pause| (0..=LONGEST_PAUSE).contains(&pause.left))
                    && (0..EXACT as Micros).contains(learning)
                    && given.len() == call.entries.len()
                    && call.entries.iter().zip(given).all(sound)
            }
            Self::Disagreed(time) | Self::NotYet(time) => *time > 0,
            Self::Report | Self::Reset | Self::Deposed | Self::Ignored => true,
        }
    }
}

// === impl PoolGrant ===

impl PoolGrant {
    fn answers(&self, entry: &Entry) -> bool {
        let counts = |number: f64| (0.0..=f64::from(u32::MAX)).contains(&number);
        let most = if entry.ends.is_some() { 0 } else { entry.holds.saturating_add(entry.want) };
        let sound = self.limit > 0 || entry.ends.is_some();
        self.holds <= most && counts(self.target) && counts(self.pace) && sound && self.word.len() <= LONGEST_WORD
    }
}

/// No word is longer, in bytes.
pub const LONGEST_WORD: usize = 1000;
/// No pause is longer, whatever an API says: after a day it is looked at anew.
pub(super) const LONGEST_PAUSE: Micros = 86_400_000_000;
/// Scripts reckon in numbers that are exact up to here.
const EXACT: u64 = 1 << 53;
/// Clock rates differ by one part in so many at most.
const DRIFT: Micros = 4000;

/// The time that has surely passed on every clock once this much has on one of them.
pub fn stretched(time: Micros) -> Micros {
    time + time / DRIFT + 1
}

/// Whole microseconds, rounded up.
pub fn micros(of: Duration) -> Micros {
    Micros::try_from(of.as_nanos().div_ceil(1000)).unwrap_or(Micros::MAX / 8)
}

// === impl PauseCause ===

impl PauseCause {
    /// As members write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry-after",
            Self::Exhausted => "exhausted",
            Self::Banned => "banned",
        }
    }

    /// As a member has written it. A cause that only later members know pauses all the same.
    pub fn read(written: &str) -> Self {
        [Self::Exhausted, Self::Banned].into_iter().find(|cause| cause.as_str() == written).unwrap_or(Self::RetryAfter)
    }
}

// === impl Division ===

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.members, self.floor)
    }
}

// === impl MemberId ===

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
