//! Remembers which requests have begun that must not be sent twice. Written before they are, so that it is known after a
//! crash.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The file, which belongs to this process alone.
#[derive(Debug)]
pub struct BatchJournal {
    file: File,
    pub(super) path: PathBuf,
    /// The length of its first line, which stays if items go by their lines.
    head: Option<u64>,
    /// The length of its whole lines.
    whole: u64,
    /// How much of the file each sync has made to last.
    #[cfg(test)]
    pub(super) synced: Vec<u64>,
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("could not {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it.
    #[error("another batch is at work on {}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Something else is written there.
    #[error("{}, line {line}: this is no journal of a batch", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The first line that is none of a journal.
        line: u64,
    },
    /// It is of an input that was another one.
    #[error("the input is not the one that {} was begun with, and its lines have no names of their own", path.display())]
    OtherInput {
        /// The file.
        path: PathBuf,
    },
}

/// A line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum BatchEntry {
    /// The first one: what is known of the input, if its items go by their lines.
    Input(Option<String>),
    /// The item of this name has begun.
    Begun(String),
}

// === impl BatchJournal ===

impl BatchJournal {
    /// Opens `path`, and returns the names of what has begun so far. The `input` is what distinguishes it from others, if
    /// its items go by their lines. `anew` says that there are no answers yet: then another input may follow one that has
    /// ended.
    pub fn open(path: &Path, input: Option<String>, anew: bool) -> Result<(Self, HashSet<String>), JournalError> {
        let failed = |what| move |source| JournalError::File { what, path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let mut journal = Self {
            file,
            path: path.to_owned(),
            head: None,
            whole: 0,
            #[cfg(test)]
            synced: Vec::new(),
        };
        let mut begun = HashSet::new();
        let (mut number, mut head, mut other, mut text) = (0, 0, false, Vec::new());
        let mut reader = BufReader::new(File::open(path).map_err(failed("read"))?);
        loop {
            text.clear();
            let read = reader.read_until(b'\n', &mut text).map_err(failed("read"))?;
            // What was cut off was about to begin, and did not.
            if text.last() != Some(&b'\n') {
                break;
            }
            (number, journal.whole) = (number + 1, journal.whole + read as u64);
            match (number, serde_json::from_slice(&text)) {
                (1, Ok(BatchEntry::Input(before))) => (head, other) = (journal.whole, before != input),
                (2.., Ok(BatchEntry::Begun(name))) => drop(begun.insert(name)),
                (line, _) => return Err(JournalError::Foreign { path: path.to_owned(), line }),
            }
        }
        if other && anew && begun.is_empty() {
            (number, journal.whole) = (0, 0);
        } else if other {
            return Err(JournalError::OtherInput { path: path.to_owned() });
        }
        journal.file.set_len(journal.whole).map_err(failed("write"))?;
        if number == 0 {
            journal.append(&[BatchEntry::Input(input.clone())])?;
            head = journal.whole;
            sync_name(path).map_err(failed("write"))?;
        }
        journal.head = input.map(|_| head);
        Ok((journal, begun))
    }

    /// The items of these names are about to begin. Returns when that outlives a loss of power.
    pub fn begin(&mut self, names: &[String]) -> Result<(), JournalError> {
        let entries: Vec<_> = names.iter().cloned().map(BatchEntry::Begun).collect();
        self.append(&entries)?;
        self.file.sync_data().map_err(|source| self.failed(source))?;
        #[cfg(test)]
        self.synced.push(self.whole);
        Ok(())
    }

    /// All is answered. Where items go by their lines, it stays known which input that was.
    pub fn finish(&self) -> Result<(), JournalError> {
        match self.head {
            Some(head) => self.file.set_len(head).map_err(|source| self.failed(source)),
            None => fs::remove_file(&self.path).map_err(|source| JournalError::File {
                what: "remove",
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn append(&mut self, entries: &[BatchEntry]) -> Result<(), JournalError> {
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry).expect("names can be written");
            lines.push(b'\n');
        }
        if let Err(source) = self.file.write_all(&lines) {
            let _ = self.file.set_len(self.whole);
            return Err(self.failed(source));
        }
        self.whole += lines.len() as u64;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::File { what: "write", path: self.path.clone(), source }
    }
}

/// Returns when the name of the file at `path` outlives a loss of power: it stands in its folder, not in the file.
pub(super) fn sync_name(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_is_known_to_the_next_one_and_only_one_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, begun) = BatchJournal::open(&path, None, false).unwrap();
        assert!(begun.is_empty());
        journal.begin(&["a\n\"".to_owned()]).unwrap();
        assert!(matches!(BatchJournal::open(&path, None, false), Err(JournalError::InUse { .. })));
        drop(journal);
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"begun\":\"hal").unwrap();
        let (journal, begun) = BatchJournal::open(&path, None, false).unwrap();
        assert_eq!(begun, HashSet::from(["a\n\"".to_owned()]));
        journal.finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_was_cut_off_within_a_character_did_not_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = BatchJournal::open(&path, None, false).unwrap();
        journal.begin(&["caf\u{e9}".to_owned()]).unwrap();
        drop(journal);
        fs::write(&path, [&fs::read(&path).unwrap()[..], b"{\"begun\":\"caf\xc3"].concat()).unwrap();
        let (_, begun) = BatchJournal::open(&path, None, false).unwrap();
        assert_eq!(begun, HashSet::from(["caf\u{e9}".to_owned()]));
    }

    #[test]
    fn an_input_without_names_stays_known_when_all_is_answered_until_the_answers_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let open = |input: &str, anew| BatchJournal::open(&path, Some(input.into()), anew);
        let (mut journal, _) = open("one", true).unwrap();
        journal.begin(&["1".to_owned()]).unwrap();
        drop(journal);
        assert!(matches!(open("other", true), Err(JournalError::OtherInput { .. })), "its first item has begun");
        open("one", false).unwrap().0.finish().unwrap();
        assert!(matches!(open("other", false), Err(JournalError::OtherInput { .. })));
        assert!(open("one", false).unwrap().1.is_empty());
        drop(open("other", true).unwrap());
        assert!(matches!(open("one", false), Err(JournalError::OtherInput { .. })));
    }

    #[test]
    fn another_input_and_another_file_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        drop(BatchJournal::open(&path, Some("one".into()), false).unwrap());
        assert!(BatchJournal::open(&path, Some("one".into()), false).is_ok());
        assert!(matches!(BatchJournal::open(&path, Some("other".into()), false), Err(JournalError::OtherInput { .. })));
        fs::write(&path, "my notes\n").unwrap();
        assert!(matches!(BatchJournal::open(&path, None, false), Err(JournalError::Foreign { line: 1, .. })));
    }
}
