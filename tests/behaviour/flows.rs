//! Everything that flows: upgrades, events one by one, large bodies, tunnels.

mod bodies;
mod events;
mod tunnels;
mod upgrades;
