//! A member's side of the protocol with the store: its lease, and which replies still count.

use std::time::Duration;

use andante_clock::Instant;

use super::{
    lease::Lease,
    words::{CallAge, Entry, Epoch, Extent, MemberId, Pause, PoolGrant, Reply, Sync, Terms, micros},
};

/// A process among those that share budgets.
#[derive(Debug)]
pub struct Member {
    id: MemberId,
    terms: Terms,
    seq: u64,
    epoch: Option<Epoch>,
    lease: Lease,
    under_way: Option<SentCall>,
    /// The last call whose reply came soon.
    basis: Option<SentCall>,
    mode: Mode,
    members: u32,
    differing: u32,
    /// Number of the last change of pauses that the member has received in this epoch.
    pauses_known: u64,
}

#[derive(Clone, Copy, Debug)]
struct SentCall {
    seq: u64,
    sent: Instant,
}

/// State of a member, and the reason why it has no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The store has not answered yet.
    Joining,
    /// The store has no state yet: for this time it gives out only reported tokens.
    Learning(Duration),
    /// Normal operation.
    Member,
    /// The store is not the active one.
    Deposed,
    /// The store has replaced another one, which may still answer for this time.
    NotYet(Duration),
    /// The fleet has agreed on this other lease.
    Disagreed(Duration),
}

/// Outcome of a reply.
#[derive(Debug, PartialEq)]
pub enum ReplyOutcome {
    /// No effect: the reply belongs to a call that another one has followed.
    Stale,
    /// The call was executed.
    Granted {
        /// Grants in the order of the call's entries.
        given: Vec<PoolGrant>,
        /// Pauses that are new to this member.
        pauses: Vec<Pause>,
    },
    /// The next call has to report everything.
    Report,
    /// All held tokens are lost.
    Reset,
    /// The call failed; the next one may succeed.
    Refused,
}

/// The member's lease ends earlier by this than the store's.
const SLACK: Duration = Duration::from_millis(50);
/// A reply within this time makes the call usable as a measure of time for the store.
const SOON: Duration = Duration::from_millis(300);

// === impl Member ===

impl Member {
    /// A process without a reply from the store yet.
    pub fn new(id: MemberId, terms: Terms, lease: Lease) -> Self {
        Self {
            id,
            terms,
            seq: 0,
            epoch: None,
            lease,
            under_way: None,
            basis: None,
            mode: Mode::Joining,
            members: 0,
            differing: 0,
            pauses_known: 0,
        }
    }

    /// Id of the member.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// State of the member.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The store's epoch, if known.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Number of members with a lease.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Number of those members that divide unlent units differently.
    pub fn differing(&self) -> u32 {
        self.differing
    }

    /// Length of a lease.
    pub fn lease_length(&self) -> Duration {
        Duration::from_micros(self.terms.lease.unsigned_abs())
    }

    /// Returns true if the member knows the store's epoch. Otherwise it has to report everything that it holds.
    pub fn has_joined(&self) -> bool {
        self.epoch.is_some()
    }

    /// Makes a call at `now`. A reply to the call before it does not count any more.
    pub fn call(&mut self, now: Instant, extent: Extent, entries: Vec<Entry>, pauses: Vec<Pause>) -> Sync {
        self.seq += 1;
        self.under_way = Some(SentCall { seq: self.seq, sent: now });
        let basis = self.basis.map(|call| CallAge { seq: call.seq, elapsed: micros(now.since(call.sent)) });
        Sync {
            member: self.id,
            seq: self.seq,
            epoch: self.epoch,
            leased: self.epoch.is_some() && self.lease.holds(now),
            basis,
            terms: self.terms,
            nonce: (self.id.0 >> 16) as u32 ^ self.seq as u32,
            extent,
            pauses_known: self.pauses_known,
            pauses,
            entries,
        }
    }

    /// Handles the reply to call `seq`, received at `now`.
    pub fn heard(&mut self, now: Instant, seq: u64, reply: Reply) -> ReplyOutcome {
        let Some(call) = self.under_way.take_if(|call| call.seq == seq) else { return ReplyOutcome::Stale };
        self.basis = (now.since(call.sent) <= SOON).then_some(call);
        match reply {
            Reply::Done { epoch, learning, members, differing, given, pauses_known, pauses } => {
                self.epoch = Some(epoch);
                (self.members, self.differing, self.pauses_known) = (members, differing, pauses_known);
                let learning = Duration::from_micros(learning.unsigned_abs());
                self.mode = if learning.is_zero() { Mode::Member } else { Mode::Learning(learning) };
                if !learning.is_zero() {
                    self.lease.asks(now + learning);
                }
                let length = self.lease_length();
                // Counted from before the call, minus a little: the member's lease ends before the store's
                // record of it does.
                self.lease.set(call.sent + (length - length / 4000).saturating_sub(SLACK));
                ReplyOutcome::Granted { given, pauses }
            }
            Reply::Report => ReplyOutcome::Report,
            Reply::Reset => ReplyOutcome::Reset,
            Reply::Deposed => {
                self.mode = Mode::Deposed;
                ReplyOutcome::Refused
            }
            Reply::NotYet(left) => {
                self.mode = Mode::NotYet(Duration::from_micros(left.unsigned_abs()));
                ReplyOutcome::Refused
            }
            Reply::Disagreed(lease) => {
                self.mode = Mode::Disagreed(Duration::from_micros(lease.unsigned_abs()));
                ReplyOutcome::Refused
            }
            Reply::Ignored => ReplyOutcome::Refused,
        }
    }

    /// Increases the number of the next call by `calls`.
    pub fn skip(&mut self, calls: u64) {
        self.seq += calls;
    }

    /// Acts as if the member had received changes of pauses up to `known`.
    pub fn skip_pauses(&mut self, known: u64) {
        self.pauses_known = known;
    }

    /// Makes this process another member, which holds nothing.
    pub fn begin_anew(&mut self, id: MemberId) {
        self.lease.set(Instant::START);
        *self = Self::new(id, self.terms, self.lease.clone());
    }
}
