//! Messages between a member and the store. Only relative times cross the wire.

use std::{fmt, sync::Arc, time::Duration};

/// A time or a duration in whole microseconds, the unit of the store's scripts.
pub type Micros = i64;

/// Id of one process from its start to its end: a restarted process is another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// A period in which a store has forgotten nothing. Two epochs differ if anything may be lost between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Count of epochs.
    pub counter: u64,
    /// Distinguishes two epochs with equal counters.
    pub id: u32,
}

/// Settings on which all members of a fleet have to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time for which a member may spend its tokens without a reply from the store.
    pub lease: Micros,
    /// Time for which a replaced store may continue to answer.
    pub split: Micros,
    /// Division of the units that are not lent. A member with another division is admitted, and told so.
    pub division: Division,
}

/// Division of the units that are not lent, equal for all members of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Division {
    /// Number of members that share; 0 if nothing is divided.
    pub members: u32,
    /// Size of the floors, in percent; 0 without floors.
    pub floor: u8,
}

/// Call of a member to the store.
#[derive(Clone, Debug)]
pub struct Sync {
    /// The calling member.
    pub member: MemberId,
    /// Number of the call, increasing for each member: reveals late and repeated calls.
    pub seq: u64,
    /// The epoch that the member knows; `None` before its first reply.
    pub epoch: Option<Epoch>,
    /// The member's lease holds, by its own clock.
    pub leased: bool,
    /// The call before this one, with its age, if its reply came soon.
    pub basis: Option<CallAge>,
    /// Terms that the member assumes.
    pub terms: Terms,
    /// Id for an epoch that this call may found.
    pub nonce: u32,
    /// Extent of the report.
    pub extent: Extent,
    /// Number of the last change of pauses that the member has received in this epoch.
    pub pauses_known: u64,
    /// Pauses that may be unknown to the store.
    pub pauses: Vec<Pause>,
    /// Entries of the reported pools.
    pub entries: Vec<Entry>,
}

/// A pause that an API has asked one member for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Name of what pauses: a lane, followed by a line feed and the API's budget if only that pauses.
    pub name: Arc<str>,
    /// Remaining time of the pause; 0 if an operator has ended it.
    pub left: Micros,
    /// Cause of the pause.
    pub cause: PauseCause,
}

/// Cause of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseCause {
    /// The API asked for a delay.
    RetryAfter,
    /// The API reported that a quota is exhausted until a reset.
    Exhausted,
    /// The API has banned the client.
    Banned,
}

/// An answered call as a measure of time that the store can trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallAge {
    /// Number of the call.
    pub seq: u64,
    /// Time since the call was sent.
    pub elapsed: Micros,
}

/// Extent of a member's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Some pools.
    Some,
    /// All pools in which the member holds tokens.
    All,
    /// All pools, and the member leaves.
    Leaving,
}

/// A member's report on one pool, which is one limit of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the pool.
    pub pool: Arc<str>,
    /// Tokens of the limit, as the member is configured.
    pub limit: u32,
    /// Length of the window.
    pub per: Micros,
    /// Time after the sending in which the API may count a request, including the shortest way to the API.
    pub settle: Micros,
    /// Tokens that the member holds, gifts already deducted.
    pub holds: u32,
    /// Further tokens that the member would use now.
    pub want: u32,
    /// Tokens that the next waiting request takes at once; 0 if none waits.
    pub cost: u32,
    /// Tokens that the next request lacks: fewer are of no use to it.
    pub need: u32,
    /// Units that wait or were used lately.
    pub demand: u32,
    /// If present, the member gives up the pool: its tokens are free after this time.
    pub ends: Option<Micros>,
    /// Information about the limit for the other members; empty if this member has none. All members receive the latest
    /// word.
    pub word: Box<str>,
}

/// Reply of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The call was executed.
    Done {
        /// The store's epoch.
        epoch: Epoch,
        /// Time for which the store gives out only reported tokens, for short windows.
        learning: Micros,
        /// Number of members with a lease.
        members: u32,
        /// Number of these members with another division.
        differing: u32,
        /// Grants in the order of the entries.
        given: Vec<PoolGrant>,
        /// Number of the last change of pauses.
        pauses_known: u64,
        /// Pauses that are new to the member.
        pauses: Vec<Pause>,
    },
    /// The store has another epoch: report everything.
    Report,
    /// The member's tokens are the store's again: the member has to join again under another id.
    Reset,
    /// This store is no longer the active one.
    Deposed,
    /// The store that this one has replaced may continue to answer for this time.
    NotYet(Micros),
    /// The fleet has agreed on this other lease.
    Disagreed(Micros),
    /// The call came late, or twice.
    Ignored,
}

/// Grant of the store for one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolGrant {
    /// Tokens that the member holds now.
    pub holds: u32,
    /// Number of tokens that the member may keep while others want more.
    pub target: f64,
    /// Members want more than there is.
    pub wanted: bool,
    /// More was given out than there is.
    pub over: bool,
    /// The member is queued and will be told.
    pub queued: bool,
    /// The smallest limit that any member is configured with.
    pub limit: u32,
    /// Share of each member if only those with waiting requests counted.
    pub pace: f64,
    /// Latest word of a member about the limit.
    pub word: Box<str>,
}

/// Hint to call soon, which wakes members and grants nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// Hint because of a pool.
    Pool {
        /// The member to wake; `None` for all others.
        member: Option<MemberId>,
        /// Name of the pool.
        pool: Arc<str>,
    },
    /// Hint to all other members: there are pauses that they do not know.
    Pauses,
}

// === impl Reply ===

impl Reply {
    /// Returns true if a store can reply this to `call`: no store grants more than was requested.
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

/// A response may be late by this much, in microseconds, beyond what members know of.
pub const RESPONSE_LATENESS: Micros = 2_000_000;
/// Maximum length of a word, in bytes.
pub const LONGEST_WORD: usize = 1000;
/// Maximum length of a pause, whatever an API asks for: after a day the pause is decided again.
pub const LONGEST_PAUSE: Micros = 86_400_000_000;
/// Numbers in scripts are exact below this value.
const EXACT: u64 = 1 << 53;
/// Clock rates differ by at most `1 / DRIFT`.
const DRIFT: Micros = 4000;

/// The time that has surely passed on every clock once `time` has passed on one of them.
pub fn stretched(time: Micros) -> Micros {
    time + time / DRIFT + 1
}

/// Whole microseconds, rounded up.
pub fn micros(of: Duration) -> Micros {
    Micros::try_from(of.as_nanos().div_ceil(1000)).unwrap_or(Micros::MAX / 8)
}

// === impl PauseCause ===

impl PauseCause {
    /// Name of the cause in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry-after",
            Self::Exhausted => "exhausted",
            Self::Banned => "banned",
        }
    }

    /// Parses a cause. A cause that only later versions know pauses all the same.
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
