//! Journal of the requests that have begun and must not be sent twice. Each is recorded before it is sent, so that the
//! record survives a crash.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::line_file::{LineFile, LineFileError, WholeLine};

/// Journal of a batch, locked by this process.
#[derive(Debug)]
pub struct BatchJournal {
    pub(super) lines: LineFile,
    /// Length of the first line in bytes, if `finish` keeps that line: it identifies the input.
    head: Option<u64>,
    /// Length of the file at each sync, in bytes.
    #[cfg(test)]
    pub(super) synced: Vec<u64>,
}

/// Failure to open or write the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] LineFileError),
    /// Another process holds the lock.
    #[error("another batch is at work on {}", path.display())]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file contains a line that belongs to no journal.
    #[error("{}, line {line}: this is no journal of a batch", path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// Number of the first line that belongs to no journal, from 1.
        line: u64,
    },
    /// The journal is of another input, and the names of items do not tell the two apart.
    #[error("the input is not the one that {} was begun with, and its lines have no names of their own", path.display())]
    OtherInput {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Line of the journal.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum BatchEntry {
    /// First line, with the id of the input; `None` if the names of the items suffice.
    Input(Option<String>),
    /// The item of this name has begun.
    Begun(String),
}

// === impl BatchJournal ===

impl BatchJournal {
    /// Opens `path`, and returns the names of the items that have begun. `input` identifies the input; `None` if the
    /// names of the items suffice. `anew` states that there are no answers yet. Then another input may replace the
    /// earlier one, if none of its items has begun.
    pub fn open(path: &Path, input: Option<String>, anew: bool) -> Result<(Self, HashSet<String>), JournalError> {
        let mut lines = LineFile::open(path)?;
        if !lines.try_lock()? {
            return Err(JournalError::InUse { path: path.to_owned() });
        }
        let (mut whole, mut head, mut other, mut begun) = (0, 0, false, HashSet::new());
        // A partial last line was not synced, so its item did not begin.
        for line in lines.read()? {
            let WholeLine { number, end, text } = line?;
            whole = end;
            match (number, serde_json::from_slice(&text)) {
                (1, Ok(BatchEntry::Input(before))) => (head, other) = (end, before != input),
                (2.., Ok(BatchEntry::Begun(name))) => drop(begun.insert(name)),
                (line, _) => return Err(JournalError::Foreign { path: path.to_owned(), line }),
            }
        }
        if other && anew && begun.is_empty() {
            whole = 0;
        } else if other {
            return Err(JournalError::OtherInput { path: path.to_owned() });
        }
        lines.shorten(whole)?;
        if whole == 0 {
            lines.append(&written(&[BatchEntry::Input(input.clone())]))?;
            head = lines.whole();
            lines.sync_name()?;
        }
        let journal = Self {
            lines,
            head: input.map(|_| head),
            #[cfg(test)]
            synced: Vec::new(),
        };
        Ok((journal, begun))
    }

    /// Records that the items of these names begin. Returns when the record survives a loss of power.
    pub fn begin(&mut self, names: &[String]) -> Result<(), JournalError> {
        let entries: Vec<_> = names.iter().cloned().map(BatchEntry::Begun).collect();
        self.lines.append(&written(&entries))?;
        self.lines.sync()()?;
        #[cfg(test)]
        self.synced.push(self.lines.whole());
        Ok(())
    }

    /// Ends the journal, because all items are answered. The file is removed, unless its first line has to identify the
    /// input.
    pub fn finish(&mut self) -> Result<(), JournalError> {
        match self.head {
            Some(head) => self.lines.shorten(head)?,
            None => fs::remove_file(self.lines.path()).map_err(LineFileError::of("remove", self.lines.path()))?,
        }
        Ok(())
    }
}

/// Returns one line for each entry.
fn written(entries: &[BatchEntry]) -> Vec<u8> {
    let mut lines = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut lines, entry).expect("names can be written");
        lines.push(b'\n');
    }
    lines
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
        let (mut journal, begun) = BatchJournal::open(&path, None, false).unwrap();
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
