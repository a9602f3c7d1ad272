//! Turns `[[gateway]]` tables into gateway routes.

use std::{collections::HashMap, sync::Arc};

use super::{
    diagnostic::{Diagnostic, Place, Spanned},
    keys::{self, PATH, TO},
    reader::{Reader, Table},
};
use crate::policy::Gateway;

/// Reads all gateways of a file.
pub(super) fn read<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Vec<Gateway> {
    let mut gateways = Vec::new();
    let mut seen: HashMap<Arc<str>, Place> = HashMap::new();
    for table in reader.tables(root, "gateway") {
        reader.only(&table, &keys::GATEWAY);
        for (key, example) in [(PATH.entry.name, PATH.grammar.example), (TO.entry.name, TO.grammar.example)] {
            if !table.has(key) {
                let missing = Spanned { key: Some(key.to_owned()), ..reader.header(&table) };
                let hint = format!("write {key} = {example} below [[gateway]]");
                reader.problems.push(Diagnostic::error(&missing, format!("a gateway needs its `{key}`"), hint));
            }
        }
        let (path, to) = (reader.one(&table, &PATH), reader.one(&table, &TO));
        if let Some(path) = &path {
            if let Some(earlier) = seen.get(&path.value) {
                let what = format!("{} is a gateway already, at {earlier}", path.value);
                reader.problems.push(Diagnostic::error(path, what, "give each gateway a path of its own"));
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
