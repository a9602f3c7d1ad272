//! HTTPS: what comes through tunnels, seen from both of its ends (R40 to R49).

mod handshakes;
