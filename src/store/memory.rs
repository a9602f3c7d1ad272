//! A store that ends with the process: for tests, and as the model of other stores.

use std::collections::BTreeMap;

use super::{Batch, Header, Store, StoreError, Stored};

/// Keeps everything in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct InMemory {
    header: Option<Header>,
    lanes: BTreeMap<String, Vec<u8>>,
}

impl Store for InMemory {
    fn read(&self) -> Result<Stored, StoreError> {
        Ok(Stored { header: self.header.clone(), lanes: self.lanes.clone().into_iter().collect() })
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        self.header = Some(batch.header.clone());
        batch.gone.iter().for_each(|id| drop(self.lanes.remove(&**id)));
        self.lanes.extend(batch.lanes.iter().map(|(id, text)| (id.to_string(), text.clone())));
        Ok(())
    }
}
