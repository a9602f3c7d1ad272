//! A member's side of the talk with the store: its lease, and which replies still count.

use std::time::Duration;

use super::{
    lease::Lease,
    words::{CallAge, Entry, Epoch, Extent, MemberId, Pause, PoolGrant, Reply, Sync, Terms, micros},
};
use crate::clock::Instant;

/// One process among those that share budgets.
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
    /// The last change of pauses that it has heard of in this epoch.
    pauses_known: u64,
}

#[derive(Clone, Copy, Debug)]
struct SentCall {
    seq: u64,
    sent: Instant,
}

/// What holds the budgets of this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It has not heard from the store yet.
    Joining,
    /// The store is new or has forgotten: for so long nothing is given out that nobody reports.
    Learning(Duration),
    /// All is well.
    Member,
    /// This is not the store that counts.
    Deposed,
    /// It has taken another store's place, which may answer for so long yet.
    NotYet(Duration),
    /// The fleet has agreed on another lease.
    Disagreed(Duration),
}

/// What a reply leads to.
#[derive(Debug, PartialEq)]
pub enum ReplyOutcome {
    /// Nothing: it answers a call that another one has followed.
    Stale,
    /// The call was executed.
    Granted {
        /// What its entries were given, in their order.
        given: Vec<PoolGrant>,
        /// The pauses that this member did not know of.
        pauses: Vec<Pause>,
    },
    /// The next call has to report everything.
    Report,
    /// Everything is lost that was held.
    Reset,
    /// The call was of no use; the next one may be.
    Refused,
}

/// The member lets its lease end earlier than the store does.
const SLACK: Duration = Duration::from_millis(50);
/// A reply that came within this time tells the store how long the call before was ago.
const SOON: Duration = Duration::from_millis(300);

// === impl Member ===

impl Member {
    /// A process that has not heard of the store yet.
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

    /// Its name.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// How it stands with the store.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The store's epoch, as far as is known.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// How many members have a lease.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// How many of them divide otherwise what is not lent.
    pub fn differing(&self) -> u32 {
        self.differing
    }

    /// How long a lease is.
    pub fn lease_length(&self) -> Duration {
        Duration::from_micros(self.terms.lease.unsigned_abs())
    }

    /// Whether it has to report everything that it holds: its epoch is none, or another than the store's.
    pub fn has_joined(&self) -> bool {
        self.epoch.is_some()
    }

    /// Makes a call at `now`. The one before it is answered no more.
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

    /// The reply to the call with this number came at `now`.
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
                // Counted from before the call, and a little less: its own lease ends before the store lets it.
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

    /// Goes on with numbers of calls that are so much higher.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, calls: u64) {
        self.seq += calls;
    }

    /// As if it had heard of pauses up to this change.
    #[cfg(test)]
    pub(crate) fn skip_pauses(&mut self, known: u64) {
        self.pauses_known = known;
    }

    /// From now on it is another member, which holds nothing.
    pub fn begin_anew(&mut self, id: MemberId) {
        self.lease.set(Instant::START);
        *self = Self::new(id, self.terms, self.lease.clone());
    }
}
