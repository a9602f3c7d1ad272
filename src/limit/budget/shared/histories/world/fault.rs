//! What goes wrong in a history, and the rules that can be left out.

use super::{S, World};
use crate::fleet::Micros;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Fault {
    /// Calls and replies are lost, late, or executed twice.
    Net,
    /// A process is killed, and another one started.
    Crash,
    /// A member is cut off.
    Cut,
    /// The store forgets.
    Flush,
    /// The store's clock is set.
    Jump,
    /// The store answers nobody for a while.
    Freeze,
    /// Clocks go at different rates.
    Rate,
    /// Some have a longer way to the API.
    Way,
    /// The system stops a member that waits for a reply. It reads that when it goes on, and is cut off.
    Stop,
    /// Another store takes the place of the one that counts, which goes on answering for a while.
    Failover,
    /// The API asks a member for a pause.
    Refused,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Wrong {
    /// The lease is counted from the reply.
    LeaseFromReply,
    /// A store that has forgotten gives everything out.
    OpensAtOnce,
    /// What is spent is given back.
    GivesSpent,
    /// A call that comes twice is executed twice.
    NoSeq,
    /// The reply to a call that was given up counts.
    LateReply,
    /// A process that starts again has the name of the one before.
    SameName,
    /// A message grants.
    HintGrants,
    /// What a dead member held is free when its lease is over.
    NoWindowAfterDeath,
    /// A process uses its floor from its first moment on.
    SeatedAtOnce,
    /// What is never lent is lent as well.
    LendsFloors,
    /// What the store says of a pause counts, though a member knows of a longer one.
    ShortensPauses,
    /// Of two pauses the last one holds in the store, and not the longer one.
    LastPauseHolds,
    /// A reply to a call that was given up says up to which change a member has heard of pauses.
    LateReplyTells,
    /// What was under way at a dead member is free when its lease is over.
    NoHold,
    /// Who is cut off goes on with what it holds of an in-flight limit.
    NoLease,
    /// A store opens as if the one whose place it has taken answered no more.
    NoSplit,
    /// A store that counts again goes on with what it knew, if it is the same process.
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

    /// The same, and an API that asks for pauses.
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

    /// Those of limits on how many requests are under way.
    pub(in super::super) const OF_IN_FLIGHT: [Self; 7] = [
        Self::NoHold,
        Self::NoLease,
        Self::OpensAtOnce,
        Self::GivesSpent,
        Self::NoSeq,
        Self::SameName,
        Self::SeatedAtOnce,
    ];

    /// Those of pauses.
    pub(in super::super) const OF_PAUSES: [Self; 3] =
        [Self::ShortensPauses, Self::LastPauseHolds, Self::LateReplyTells];
}

// === impl World ===

impl World {
    /// It goes wrong now.
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
                    // As one that counts on where it ended.
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
