//! Values that a preset supplies to a rule.

use std::path::Path;

use super::values;
use crate::{
    config::{
        keys,
        reader::{self, Reader, Table},
        value::preset::Preset,
    },
    limit::Limits,
    policy::UsageSource,
};

/// Values of a preset, for keys that the rule does not have.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) limits: Limits,
    pub(super) usage: Vec<UsageSource>,
}

/// Reads `preset`. Presets are part of the program: tests read all of them.
pub(super) fn read(preset: Preset) -> Said {
    let mut reader = Reader::new(Path::new(preset.name), preset.text);
    let root = reader::parse(&mut reader).expect("presets are TOML");
    let table = Table::root(&root);
    let mut limits = Limits::default();
    for said in values(reader.several(&table, &keys::LIMITS)).unwrap_or_default() {
        limits.limits.extend(said.limits);
        limits.calendar.extend(said.calendar);
        limits.in_flight = limits.in_flight.or(said.in_flight);
    }
    let usage = values(reader.several(&table, &keys::USAGE)).unwrap_or_default();
    assert!(reader.problems.is_empty(), "{:?}", reader.problems);
    Said { limits, usage }
}
