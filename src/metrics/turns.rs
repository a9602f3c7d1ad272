//! What becomes of turns inside of tunnels.

/// What became of a turn inside of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// It had its slot and was sent.
    Sent,
    /// It could not have a slot in time, and its tunnel was closed.
    Refused,
    /// The client left while it waited.
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
