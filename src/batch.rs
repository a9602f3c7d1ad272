//! A file of requests, each of which is answered once, whatever happens in between.
//!
//! [`input`] reads the requests, [`journal`] remembers which of them have begun, [`answers`] keeps what came of them, and
//! [`work`] sends what is left through an andante, by its gateway addresses. After a crash the same batch goes on: what
//! was answered is not sent again; what had begun is, unless it may have been done and must not be done twice.
//!
//! A request with a body is announced first (`Expect: 100-continue`, RFC 9110 §10.1.1), and andante asks for the body when
//! the request has its slot. So the journal knows of each that it had not begun while it waited, however long that was.

pub mod answers;
pub mod counts;
mod group_commit;
pub mod input;
pub mod item;
pub mod journal;
mod line_file;
pub mod requests;
mod send;
mod template;
pub mod work;

pub use self::{
    answers::{AnswerFile, AnswersError, KnownOutcome},
    counts::Counts,
    input::{Format, Input, InputError},
    item::{Id, Item},
    journal::{BatchJournal, JournalError},
    line_file::LineFileError,
    requests::WorkInput,
    send::is_other_server,
    work::{Stopped, Work, WorkParts},
};
