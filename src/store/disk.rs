//! A store in one file, by `redb`: a copy-on-write tree whose commits are whole or not there, after a kill and after a
//! power failure.

#[cfg(test)]
mod tests;

use std::fs::File;

use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageBackend, StorageError, TableDefinition,
    TableError, backends::FileBackend,
};

use super::{Batch, Header, Store, StoreError, Stored};

/// Keeps all in a file.
#[derive(Debug)]
pub struct Disk(Database);

const LANES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lanes");
const HEADER: TableDefinition<'_, (), &[u8]> = TableDefinition::new("header");
/// What is read again is little: so much of it stays in memory.
const CACHE: usize = 1 << 20;

// === impl Disk ===

impl Disk {
    /// The store in `file`, which nobody else has.
    pub fn open(file: File) -> Result<Self, StoreError> {
        let backend = FileBackend::new(file).map_err(|error| StoreError::Failed(error.to_string()))?;
        Self::over(backend)
    }

    /// The same over anything that reads, writes and synchronises.
    pub(super) fn over(backend: impl StorageBackend) -> Result<Self, StoreError> {
        let mut builder = Database::builder();
        Ok(Self(builder.set_cache_size(CACHE).create_with_backend(backend).map_err(StoreError::from)?))
    }
}

impl Store for Disk {
    fn read(&self) -> Result<Stored, StoreError> {
        let transaction = self.0.begin_read().map_err(failed)?;
        let header = match transaction.open_table(HEADER) {
            Ok(table) => table.get(()).map_err(failed)?.map(|text| text.value().to_vec()),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(failed(error)),
        };
        let Some(header) = header else { return Ok(Stored::default()) };
        let header = serde_json::from_slice::<Header>(&header)
            .map_err(|error| StoreError::Corrupt(format!("its header says nothing: {error}")))?;
        if header.version > Header::VERSION {
            return Err(StoreError::Newer(header.version));
        }
        let mut lanes = Vec::new();
        match transaction.open_table(LANES) {
            Ok(table) => {
                for row in table.iter().map_err(failed)? {
                    let (id, text) = row.map_err(failed)?;
                    lanes.push((id.value().to_owned(), text.value().to_vec()));
                }
            }
            Err(TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(Stored { header: Some(header), lanes })
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let header = serde_json::to_vec(batch.header).map_err(|error| StoreError::Failed(error.to_string()))?;
        // Durable, unless somebody says otherwise: returns when the system has synchronised the file.
        let transaction = self.0.begin_write().map_err(failed)?;
        {
            let mut lanes = transaction.open_table(LANES).map_err(failed)?;
            for id in batch.gone {
                lanes.remove(id.as_str()).map_err(failed)?;
            }
            for (id, text) in batch.lanes {
                lanes.insert(&**id, text.as_slice()).map_err(failed)?;
            }
            let mut table = transaction.open_table(HEADER).map_err(failed)?;
            table.insert((), header.as_slice()).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }
}

fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Corrupted(what) => StoreError::Corrupt(format!("it is damaged: {what}")),
        redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => {
            StoreError::Corrupt("it is no state of andante's".to_owned())
        }
        error => StoreError::Failed(error.to_string()),
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Storage(StorageError::Corrupted(what)) => Self::Corrupt(format!("it is damaged: {what}")),
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                Self::Corrupt(format!("it is no state of andante's: {error}"))
            }
            DatabaseError::UpgradeRequired(version) => {
                Self::Corrupt(format!("its file format is version {version} of redb's, which is not read any more"))
            }
            DatabaseError::RepairAborted => Self::Corrupt("it is damaged beyond repair".to_owned()),
            error => Self::Failed(error.to_string()),
        }
    }
}
