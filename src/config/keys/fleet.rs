//! Keys for sharing limits between several andantes.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Key,
    entry::Form::{Number, One, Words},
};
use crate::config::{
    fleet::StoreUrl,
    value::{self, WhenDown},
};

pub(in crate::config) const STORE: Key<Option<StoreUrl>> = Key::new(
    "store",
    value::STORE,
    One("URL of a Redis, or `\"off\"`"),
    "store through which several andantes share their limits",
)
.default("\"off\"")
.flag("--store", "ANDANTE_STORE", Some("off"))
.secret();
pub(in crate::config) const LEASE: Key<Duration> = Key::new(
    "lease",
    value::LEASE,
    One("duration from 1s to 10m"),
    "time for which an andante continues without an answer from the store; the same for all members of a fleet",
)
.default("\"10s\"")
.flag("--lease", "ANDANTE_LEASE", Some("10s"));
pub(in crate::config) const IN_FLIGHT_HOLD: Key<Duration> = Key::new(
    "in-flight-hold",
    value::IN_FLIGHT_HOLD,
    One("duration from 1s to 1d"),
    "longest duration of an answer to an andante that is cut off from the store or killed: its \
     part of in-flight limits is withheld for this time after its lease",
)
.default("\"5m\"");
pub(in crate::config) const FLEET_SIZE: Key<NonZeroU32> = Key::new(
    "fleet-size",
    value::FLEET_SIZE,
    Number("number from 1"),
    "maximum number of andantes at once: it divides limits that the store does not share, and floors",
)
.otherwise("none: with a store, such limits are an error")
.flag("--fleet-size", "ANDANTE_FLEET_SIZE", None);
pub(in crate::config) const STORE_DOWN: Key<WhenDown> = Key::new(
    "store-down",
    value::STORE_DOWN,
    Words(&["wait", "floor", "open"]),
    "behaviour when the store has not answered for the length of the lease: `wait` holds requests; \
     `floor` continues with each andante's `floor`; `open` continues with each andante's last known part, which may exceed the limits",
)
.default("\"wait\"")
.flag("--store-down", "ANDANTE_STORE_DOWN", Some("wait"));
pub(in crate::config) const FLOOR: Key<u8> = Key::new(
    "floor",
    value::FLOOR,
    One("percentage from 1% to 90%"),
    "for `store-down = \"floor\"`: part of each limit that is never lent, divided among `fleet-size` andantes",
)
.otherwise("20%")
.flag("--floor", "ANDANTE_FLOOR", Some("20%"));
