//! Reads all requests once before the first one is sent, so that a mistake in the last line is reported at once.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fs,
    io::{self, BufRead as _, BufReader},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::NamedTempFile;
use url::Url;

use super::{BatchOptions, Failure, stream};
use crate::{
    app::Unmatched,
    batch::{AnswerFile, BatchJournal, Format, Id, Input, InputError, JournalError, KnownOutcome, input::Defaults},
    ca::sha256,
    cli::wording,
    clock::{Clock, Instant},
    policy::{Origin, Rules, Scheme},
};

/// A batch whose requests are all valid.
pub(super) struct Prepared {
    path: PathBuf,
    format: Format,
    /// Copy of standard input in a file.
    _spooled: Option<NamedTempFile>,
    /// Number of requests.
    pub(super) total: u64,
    /// Names of the requests, with their lines.
    names: HashMap<String, u64>,
    /// Duplicates of a request, by its name.
    pub(super) twins: HashMap<String, Vec<Id>>,
    /// Id of the input, if its requests are named by their lines.
    fingerprint: Option<String>,
    /// Sends requests as they arrive, so that none is known in advance.
    streams: bool,
    /// Hosts of the requests.
    origins: HashSet<Origin>,
}

/// The files of a batch, with the results of an earlier run.
pub(super) struct BatchFiles {
    pub(super) answers: AnswerFile,
    pub(super) journal: BatchJournal,
    /// Names of requests that are not sent.
    pub(super) skipped: HashSet<String>,
    /// Requests that already have a line, those that failed, and those without an answer.
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) unanswered: u64,
    /// Requests that may have been executed, and are not sent again.
    pub(super) unknown: Vec<String>,
    /// Number of requests to send.
    pub(super) left: u64,
}

/// Mistakes of an input, each kind once: 1,500 relative URLs are one kind.
#[derive(Default)]
struct Mistakes {
    /// Description, first line, and number of lines.
    kinds: Vec<(String, Option<u64>, u64)>,
    /// Number of further kinds.
    more: u64,
}

/// Id of an input that was sent as it arrived.
const OF_STREAM: &str = "pipe";
/// Kinds of mistakes that are listed.
const MISTAKES: usize = 5;
/// Time for which a batch that was just killed may still hold its journal, with the interval of the attempts.
const A_MOMENT: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_millis(20);

// === impl Mistakes ===

impl Mistakes {
    fn add(&mut self, error: InputError) {
        match error {
            InputError::Line { line, what } => self.count(what, Some(line)),
            other => self.count(other.to_string(), None),
        }
    }

    fn add_text(&mut self, what: String) {
        self.count(what, None);
    }

    fn count(&mut self, what: String, line: Option<u64>) {
        let has_room = self.kinds.len() < MISTAKES;
        match self.kinds.iter_mut().find(|(known, ..)| *known == what) {
            Some((.., times)) => *times += 1,
            None if has_room => self.kinds.push((what, line, 1)),
            None => self.more += 1,
        }
    }

    /// All mistakes in one line; `None` if there are none.
    fn text(&self) -> Option<String> {
        let told = |(what, line, times): &(String, Option<u64>, u64)| match (line, times) {
            (None, _) => what.clone(),
            (Some(line), 1) => format!("line {line}: {what}"),
            (Some(line), times) => {
                format!("line {line}: {what} (and {} like it)", wording::several(times - 1, "more line"))
            }
        };
        let mut told: Vec<String> = self.kinds.iter().map(told).collect();
        if self.more > 0 {
            told.push(format!("and {} more", wording::count(self.more)));
        }
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// The format of the requests at `path`, by `options` or else by its name and its beginning.
fn format_of(options: &BatchOptions, path: &Path) -> Result<Format, Failure> {
    let format = match options.format.as_deref() {
        Some("jsonl") => Format::JsonLines,
        Some("csv") => Format::Csv,
        Some(_) => Format::Urls,
        None if options.url.is_some() => Format::Csv,
        None => Format::of(path).map_err(|error| not_read(options, error))?,
    };
    if options.id.is_some() && format != Format::Csv {
        let what = format!("--id names a column, and {} is no table", options.file.display());
        return Err(Failure::new(what).hinting("a line of JSON has its id as \"id\"; --format csv reads a table"));
    }
    Ok(format)
}

// === impl Prepared ===

impl Prepared {
    pub(super) fn read(options: &BatchOptions, defaults: &Defaults) -> Result<Self, Failure> {
        if stream::is_possible(options) {
            return Ok(Self::of_stream(options));
        }
        let (path, spooled) = spool(&options.file)?;
        let unread = |error: InputError| not_read(options, error);
        let format = format_of(options, &path)?;
        let (mut names, mut mistakes, mut origins) = (HashMap::new(), Mistakes::default(), HashSet::new());
        let (mut total, mut by_line) = (0, false);
        let (mut leaders, mut twins) = (HashMap::<[u8; 32], String>::new(), HashMap::<String, Vec<Id>>::new());
        for item in Input::open(&path, format, defaults).map_err(unread)? {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    mistakes.add(error);
                    continue;
                }
            };
            total += 1;
            origins.extend(origin(&item.url));
            by_line |= item.id.member == Id::LINE;
            match names.entry(item.id.name.clone()) {
                Entry::Occupied(earlier) => {
                    let (line, name, earlier) = (item.line, &item.id.name, earlier.get());
                    let hint = if format == Format::Csv { "; --id COLUMN names another column" } else { "" };
                    mistakes.add_text(format!("line {line}: its id {name:?} is that of line {earlier}{hint}"));
                }
                Entry::Vacant(free) => _ = free.insert(item.line),
            }
            if options.dedupe {
                let name = item.id.name.clone();
                let leader = leaders.entry(sha256(&item.content())).or_insert_with(|| name.clone());
                if *leader != name {
                    twins.entry(leader.clone()).or_default().push(item.id);
                }
            }
        }
        if let Some(text) = mistakes.text() {
            return Err(Failure::new(format!("{} is no batch: {text}", options.file.display()))
                .hinting("nothing was sent; `andante batch --help` shows what a line may say"));
        }
        let kept = stream::kept(options);
        let fingerprint = match by_line {
            // A pipe's input is identified by its content.
            _ if spooled.is_some() && kept.exists() => Some(Self::same_stream(options, &path, &kept)?),
            true => Some(fingerprint(&path)?),
            false => None,
        };
        let streams = false;
        Ok(Self { path, format, _spooled: spooled, total, names, twins, fingerprint, streams, origins })
    }

    /// A batch whose requests come from a pipe.
    fn of_stream(options: &BatchOptions) -> Self {
        Self {
            path: options.file.clone(),
            format: Format::Urls,
            _spooled: None,
            total: 0,
            names: HashMap::new(),
            twins: HashMap::new(),
            fingerprint: Some(OF_STREAM.to_owned()),
            streams: true,
            origins: HashSet::new(),
        }
    }

    /// Rules that match no request, if there are requests without a rule.
    pub(super) fn unasked(&self, rules: &Rules) -> Vec<Unmatched> {
        let origins: Vec<&Origin> = self.origins.iter().collect();
        match origins.iter().all(|origin| rules.find(origin).is_some()) {
            true => Vec::new(),
            false => Unmatched::by(rules, &origins),
        }
    }

    /// Id of an input from a pipe, if the input at `path` begins with the `kept` part of an earlier run.
    fn same_stream(options: &BatchOptions, path: &Path, kept: &Path) -> Result<String, Failure> {
        let same = stream::begins_with(path, kept)
            .map_err(|error| Failure::new(format!("could not read {}", kept.display())).because(error))?;
        if same {
            return Ok(OF_STREAM.to_owned());
        }
        Err(Failure::new(format!(
            "{} does not begin with what {} has of an earlier run",
            options.file.display(),
            kept.display()
        ))
        .hinting("give it the same requests again, or name another file by --out"))
    }

    /// Returns whether requests are sent as they arrive.
    pub(super) fn streams(&self) -> bool {
        self.streams
    }

    /// Reopens the requests.
    pub(super) fn again(&self, options: &BatchOptions, defaults: &Defaults) -> Result<Input, Failure> {
        Input::open(&self.path, self.format, defaults).map_err(|error| not_read(options, error))
    }

    /// Opens the files that record the progress.
    pub(super) async fn open(&self, options: &BatchOptions, journal: &Path) -> Result<BatchFiles, Failure> {
        let clock = Clock::start();
        if fs::metadata(&options.out).is_ok_and(|file| !file.is_file()) {
            return Err(Failure::new(format!("{} is no file that can be read again", options.out.display()))
                .hinting("answers are kept in a file, so that an interrupted batch resumes there: name one by --out"));
        }
        let is_first = !journal.exists();
        let anew = fs::metadata(&options.out).map_or(true, |file| file.len() == 0);
        let open = || BatchJournal::open(journal, self.fingerprint.clone(), anew);
        let mut opened = open();
        // A process that was just killed holds the lock a moment longer.
        while matches!(opened, Err(JournalError::InUse { .. })) && clock.now().since(Instant::START) < A_MOMENT {
            clock.sleep_until(clock.now() + TURN).await;
            opened = open();
        }
        let (opened_journal, begun) = opened.map_err(|error| {
            let hint = match &error {
                JournalError::File(error) if error.is_not_found() => "make that folder, or name another file by --out",
                JournalError::File(_) => "name another file by --out",
                _ => "one batch at a time writes to a file, with one input: name another file by --out",
            };
            Failure::new("could not open the journal of the batch").because(error).hinting(hint)
        })?;
        let twins = |name: &str| self.twins.get(name).cloned().unwrap_or_default();
        let (answers, mut answered) = AnswerFile::open(&options.out, &twins).map_err(|error| {
            if is_first {
                // A journal without answers is useless. If it cannot be removed, it is empty and harmless.
                let _ = fs::remove_file(journal);
            }
            Failure::new("could not open the file for the answers").because(error).hinting("name another file by --out")
        })?;
        // The file may have the answers of another batch, too.
        let is_ours = |name: &String| self.streams || self.names.contains_key(name);
        answered.retain(|name, _| is_ours(name));
        let mut unknown = Vec::new();
        if !options.resend_unknown {
            let ours = begun.into_iter().filter(is_ours);
            unknown.extend(ours.filter(|name| !answered.contains_key(name)));
            unknown.sort();
        }
        let failed = answered.values().filter(|known| **known != KnownOutcome::Succeeded).count() as u64;
        let unanswered = answered.values().filter(|known| **known == KnownOutcome::Unanswered).count() as u64;
        let known = answered.len() as u64;
        let twinned = |name: &String| self.twins.get(name).map_or(0, |twins| twins.len() as u64);
        let unsent = unknown.len() as u64 + unknown.iter().map(twinned).sum::<u64>();
        let twins = self.twins.values().flatten().map(|id| id.name.clone());
        let skipped = answered.into_keys().chain(unknown.iter().cloned()).chain(twins).collect();
        let left = if self.streams { u64::MAX } else { self.total.saturating_sub(known + unsent) };
        let journal = opened_journal;
        Ok(BatchFiles { answers, journal, skipped, done: known, failed, unanswered, unknown, left })
    }
}

/// Origin of `url`.
fn origin(url: &Url) -> Option<Origin> {
    let scheme = if url.scheme() == "https" { Scheme::Https } else { Scheme::Http };
    Origin::parse(scheme, url.host_str()?, url.port_or_known_default()).ok()
}

/// Reason why the input of a batch could not be read.
fn not_read(options: &BatchOptions, error: InputError) -> Failure {
    let file = options.file.display();
    match error {
        // The file was readable, but the template is wrong.
        InputError::Template(what) => Failure::new(format!("{file} is a table, and {what}")),
        InputError::Line { line, what } => Failure::new(format!("{file}, line {line}: {what}")),
        error => Failure::new(format!("could not read {file}")).because(error),
    }
}

/// Path of the requests. Input from standard input or a pipe is copied to a file, because it is read more than once.
fn spool(file: &Path) -> Result<(PathBuf, Option<NamedTempFile>), Failure> {
    let stdin = file == Path::new("-");
    if !stdin && !fs::metadata(file).is_ok_and(|it| it.file_type().is_fifo() || it.file_type().is_char_device()) {
        return Ok((file.to_owned(), None));
    }
    let failed = |error| Failure::new("could not keep what comes from standard input or a pipe").because(error);
    let ending = file.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
    let mut spooled = NamedTempFile::with_suffix(ending).map_err(failed)?;
    if stdin {
        io::copy(&mut io::stdin().lock(), &mut spooled).map_err(failed)?;
    } else {
        io::copy(&mut fs::File::open(file).map_err(failed)?, &mut spooled).map_err(failed)?;
    }
    Ok((spooled.path().to_owned(), Some(spooled)))
}

/// An id of the input's lines.
fn fingerprint(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::new(format!("could not read {}", path.display())).because(error);
    let mut digest = [0; 32];
    for line in BufReader::new(fs::File::open(path).map_err(failed)?).split(b'\n') {
        digest = sha256(&[&digest[..], &line.map_err(failed)?].concat());
    }
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
