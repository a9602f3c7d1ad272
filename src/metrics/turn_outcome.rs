//! Outcome of a client's turn inside of a tunnel.

/// Outcome of a turn inside of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// Sent with a slot.
    Sent,
    /// Got no slot in time, and its tunnel was closed.
    Refused,
    /// A side closed the tunnel while the turn waited.
    Left,
    /// The API closed the idle connection while the turn waited.
    Closed,
    /// The API had closed the connection, or closed it with an answer: the turn may be the rest of an upload.
    Ended,
}

// === impl TurnOutcome ===

impl TurnOutcome {
    pub(super) const ALL: [Self; 5] = [Self::Sent, Self::Refused, Self::Left, Self::Closed, Self::Ended];

    /// The value of the `outcome` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Refused => "refused",
            Self::Left => "left",
            Self::Closed => "closed",
            Self::Ended => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_the_index_of_its_counter() {
        for (at, outcome) in TurnOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
    }
}
