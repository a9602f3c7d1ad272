//! What goes wrong in a history, and the rules that can be left out.

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
}

// === impl Fault ===

impl Fault {
    pub(in super::super) const ALL: [Self; 9] =
        [Self::Net, Self::Crash, Self::Cut, Self::Flush, Self::Jump, Self::Freeze, Self::Rate, Self::Way, Self::Stop];

    /// The same, and an API that asks for pauses.
    pub(in super::super) const ALL_AND_PAUSES: [Self; 10] = [
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
    pub(in super::super) const ALL: [Self; 10] = [
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
    ];

    /// Those of pauses.
    pub(in super::super) const OF_PAUSES: [Self; 3] =
        [Self::ShortensPauses, Self::LastPauseHolds, Self::LateReplyTells];
}
