//! What became of a turn of a client inside of a tunnel.

/// What became of a turn inside of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// It had its slot and was sent.
    Sent,
    /// It could not have a slot in time, and its tunnel was closed.
    Refused,
    /// One side left while it waited.
    Left,
    /// The API closed the connection while it waited.
    Closed,
}

// === impl TurnOutcome ===

impl TurnOutcome {
    pub(super) const ALL: [Self; 4] = [Self::Sent, Self::Refused, Self::Left, Self::Closed];

    /// The value of the `outcome` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Refused => "refused",
            Self::Left => "left",
            Self::Closed => "closed",
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
