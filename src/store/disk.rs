//! A store in one file, with `redb`: a copy-on-write tree whose commits are complete or absent, after a kill and after
//! a power failure.
//!
//! The checksum of every page is verified on opening: in a file that something else has changed, redb may panic
//! otherwise, at every start.

#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
mod tests;

use std::{fmt, fs::File, io, os::unix::fs::FileExt as _};

use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageBackend, StorageError, TableDefinition,
    TableError,
    backends::{FileBackend, InMemoryBackend},
};

use super::{Batch, Header, Store, StoreError, Stored};

/// A store in one file. Opens the file when it is needed: at first, and again after a failure. After a failure redb
/// can do nothing but fail.
pub struct Disk {
    open: Box<dyn Fn() -> Result<Database, StoreError> + Send>,
    database: Option<Database>,
}

const LANES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lanes");
const HEADER: TableDefinition<'_, (), &[u8]> = TableDefinition::new("header");
/// Bytes of redb's cache: few pages are read twice.
const CACHE: usize = 1 << 20;
/// A file begins with this many zeros until its store is made.
const MAGIC: usize = 9;

// === impl Disk ===

impl Disk {
    /// The store in `file`, which no other process uses.
    pub fn in_file(file: File) -> Self {
        // The open file keeps its lock, even if its name is removed or changed.
        Self::over(move || {
            let mut begins = [0; MAGIC];
            if file.read_at(&mut begins, 0)? == MAGIC && is_unmade(&begins) {
                file.set_len(0)?;
            }
            FileBackend::new(file.try_clone()?).map_err(io::Error::other)
        })
    }

    /// The store over any backend that reads, writes and synchronises.
    pub(crate) fn over<B: StorageBackend>(backend: impl Fn() -> io::Result<B> + Send + 'static) -> Self {
        let open = move || open(backend().map_err(|error| StoreError::Failed(error.to_string()))?);
        Self { open: Box::new(open), database: None }
    }

    /// Contents of `copy`, the bytes of a store's file. Every failure is reported as damage to the copy.
    pub fn read_copy(copy: &[u8]) -> Result<Stored, StoreError> {
        let backend = InMemoryBackend::new();
        let filled = backend.set_len(copy.len() as u64).and_then(|()| backend.write(0, copy));
        filled.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let blame = |error| match error {
            StoreError::Failed(what) => StoreError::Corrupt(format!("it is damaged: {what}")),
            error => error,
        };
        open(backend).and_then(|database| read(&database)).map_err(blame)
    }
}

impl Store for Disk {
    fn read(&self) -> Result<Stored, StoreError> {
        match &self.database {
            Some(database) => read(database),
            None => read(&(self.open)()?),
        }
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)()?,
        };
        // A failure drops the database, which closes the file.
        commit(&database, batch)?;
        self.database = Some(database);
        Ok(())
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("database", &self.database).finish_non_exhaustive()
    }
}

/// Returns whether the making of the store in this file was interrupted early: nothing was ever in it.
pub(super) fn is_unmade(copy: &[u8]) -> bool {
    copy.iter().take(MAGIC).all(|byte| *byte == 0)
}

fn open(backend: impl StorageBackend) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    Ok(builder.create_with_backend(backend)?)
}

fn read(database: &Database) -> Result<Stored, StoreError> {
    let transaction = database.begin_read().map_err(failed)?;
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

fn commit(database: &Database, batch: &Batch<'_>) -> Result<(), StoreError> {
    let header = serde_json::to_vec(batch.header).map_err(|error| StoreError::Failed(error.to_string()))?;
    // Durable by default: returns when the system has synchronised the file.
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut lanes = transaction.open_table(LANES).map_err(failed)?;
        for id in batch.gone {
            lanes.remove(&**id).map_err(failed)?;
        }
        for (id, text) in batch.lanes {
            lanes.insert(&**id, text.as_slice()).map_err(failed)?;
        }
        let mut table = transaction.open_table(HEADER).map_err(failed)?;
        table.insert((), header.as_slice()).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
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
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
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
