//! Everything that flows: upgrades, events one by one, large bodies, tunnels (R32, R33, R35, R54, R60).

mod bodies;
mod events;
mod tunnels;
mod upgrades;
