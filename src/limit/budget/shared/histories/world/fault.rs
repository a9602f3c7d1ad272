//! Faults in a history, and rules that can be left out.

use andante_fleet::Micros;

use super::{S, World};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Fault {
    /// Calls and replies are lost, late, or executed twice.
    Net,
    /// A process is killed, and another is started.
    Crash,
    /// A member is cut off.
    Cut,
    /// The store loses its state.
    Flush,
    /// The store's clock is set.
    Jump,
    /// The store answers no call for a while.
    Freeze,
    /// Clocks run at different rates.
    Rate,
    /// The way to the API is longer for some members.
    Way,
    /// The system stops a member that waits for a reply. The member reads the reply when it resumes,
    /// and is cut off.
    Stop,
    /// The active store is replaced by another, and continues to answer for a while.
    Failover,
    /// The API asks a member for a pause.
    Refused,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Wrong {
    /// The lease is counted from the reply.
    LeaseFromReply,
    /// A store without state gives everything out.
    OpensAtOnce,
    /// Used tokens are given back.
    GivesSpent,
    /// A call that comes twice is executed twice.
    NoSeq,
    /// The reply to an abandoned call counts.
    LateReply,
    /// A restarted process has the name of the one before.
    SameName,
    /// A message grants.
    HintGrants,
    /// A dead member's tokens are free when its lease is over.
    NoWindowAfterDeath,
    /// A process uses its floor from the first moment on.
    SeatedAtOnce,
    /// Tokens that must never be lent are lent as well.
    LendsFloors,
    /// The store's word on a pause counts, though the member knows of a longer one.
    ShortensPauses,
    /// Of two pauses, the store keeps the last one instead of the longer one.
    LastPauseHolds,
    /// A reply to an abandoned call advances the member's position in the changes of pauses.
    LateReplyTells,
    /// Tokens in flight at a dead member are free when its lease is over.
    NoHold,
    /// A cut-off member continues to use its tokens of an in-flight limit.
    NoLease,
    /// A store opens as if its predecessor did not answer any more.
    NoSplit,
    /// A store that becomes active again continues with its old state, if it is the same process.
    KeepsItsName,
}

// === impl Fault ===

impl Fault {
    pub(in super::super) const ALL: [Self; 10] = [
        Self::Failover,
        Self::Net,
        Self::Crash,
        Self::Cut,
        Self::Flush,
        Self::Jump,
        Self::Freeze,
        Self::Rate,
        Self::Way,
        Self::Stop,
    ];

    /// All faults, and an API that asks for pauses.
    pub(in super::super) const ALL_AND_PAUSES: [Self; 11] = [
        Self::Failover,
        Self::Net,
        Self::Crash,
        Self::Cut,
        Self::Flush,
        Self::Jump,
        Self::Freeze,
        Self::Rate,
        Self::Way,
        Self::Stop,
        Self::Refused,
    ];
}

// === impl Wrong ===

impl Wrong {
    pub(in super::super) const ALL: [Self; 11] = [
        Self::LeaseFromReply,
        Self::OpensAtOnce,
        Self::GivesSpent,
        Self::NoSeq,
        Self::LateReply,
        Self::SameName,
        Self::HintGrants,
        Self::NoWindowAfterDeath,
        Self::SeatedAtOnce,
        Self::LendsFloors,
        Self::NoSplit,
    ];

    /// Rules about limits on requests in flight.
    pub(in super::super) const OF_IN_FLIGHT: [Self; 7] = [
        Self::NoHold,
        Self::NoLease,
        Self::OpensAtOnce,
        Self::GivesSpent,
        Self::NoSeq,
        Self::SameName,
        Self::SeatedAtOnce,
    ];

    /// Rules about pauses.
    pub(in super::super) const OF_PAUSES: [Self; 3] =
        [Self::ShortensPauses, Self::LastPauseHolds, Self::LateReplyTells];
}

// === impl World ===

impl World {
    /// Makes the fault happen now.
    pub(super) fn fault(&mut self, fault: Fault) {
        let now = self.now;
        let at = self.below(self.processes.len() as Micros) as usize;
        self.tell(|| format!("--- {fault:?} ({at})"));
        match fault {
            Fault::Crash => {
                let before = &self.processes[at];
                let (id, greedy, waiting, life, sent) =
                    (before.member.id(), before.greedy, before.waiting, before.life, before.sent);
                let mut process = self.process(life + 1);
                (process.greedy, process.waiting, process.sent) = (greedy, waiting, sent);
                process.way = self.processes[at].way;
                process.starts_at = now + self.below(3 * S);
                process.began = process.starts_at;
                if self.wrong == Some(Wrong::SameName) {
                    process.member.begin_anew(id);
                    // The new member's counter continues where the old one ended.
                    process.member.skip(1_000_000);
                }
                self.streams.left(at, now);
                self.processes[at] = process;
                self.wake(at);
            }
            Fault::Cut => {
                let long = self.below(2) == 0;
                self.processes[at].cut_until =
                    now + if long { 9 * S + self.below(20 * S) } else { S + self.below(8 * S) };
            }
            Fault::Flush => {
                self.pauses_forgotten();
                self.stores.forget();
                if self.wrong == Some(Wrong::OpensAtOnce) {
                    self.stores.declare_new();
                }
                self.stores.frozen_until = now + self.below(2) * self.below(6 * S);
            }
            Fault::Failover => self.fail_over(),
            Fault::Jump => {
                self.clock_was_set();
                let by = self.pick(&[-3600 * S, -5 * S, 3 * S, 60 * S, 3600 * S]);
                self.stores.wall += by;
            }
            Fault::Freeze => self.stores.frozen_until = now + S + self.below(20 * S),
            Fault::Stop => self.processes[at].stops = true,
            Fault::Refused => self.refuse(at),
            Fault::Net | Fault::Rate | Fault::Way => {}
        }
    }
}
