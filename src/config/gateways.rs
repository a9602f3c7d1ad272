//! Turns `[[gateway]]` tables into gateway routes.

use std::{collections::HashMap, sync::Arc};

use super::{
    problem::{Place, Placed, Problem},
    reader::{Reader, Table},
    value::gateway::{PATH, TO},
};
use crate::policy::Gateway;

/// Keys of a `[[gateway]]`.
pub(super) const KEYS: &[&str] = &["path", "to"];

/// All gateways of a file.
pub(super) fn read<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Vec<Gateway> {
    let mut gateways = Vec::new();
    let mut seen: HashMap<Arc<str>, Place> = HashMap::new();
    for table in reader.tables(root, "gateway") {
        reader.only(&table, KEYS, &[("a [[rule]]", super::rules::KEYS), ("the first table", super::layer::TOP)]);
        for (key, example) in [("path", PATH.example), ("to", TO.example)] {
            if !table.has(key) {
                let missing = Placed { key: Some(key.to_owned()), ..reader.header(&table) };
                let hint = format!("write {key} = {example} below [[gateway]]");
                reader.problems.push(Problem::error(&missing, format!("a gateway needs its `{key}`"), hint));
            }
        }
        let (path, to) = (reader.one(&table, "path", &PATH), reader.one(&table, "to", &TO));
        if let Some(path) = &path {
            if let Some(earlier) = seen.get(&path.value) {
                let what = format!("{} is a gateway already, at {earlier}", path.value);
                reader.problems.push(Problem::error(path, what, "give each gateway a path of its own"));
            } else {
                seen.insert(path.value.clone(), path.place.clone());
            }
        }
        if let (Some(path), Some(to)) = (path, to) {
            gateways.push(Gateway { path: path.value, to: to.value.to, base: to.value.base });
        }
    }
    gateways
}
