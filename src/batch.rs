//! A file of requests. Each request is answered exactly once despite crashes.
//!
//! [`input`] reads the requests, [`journal`] records which of them have begun, and [`answers`] keeps their results.
//! [`work`] sends the remaining requests through an andante, by its gateway addresses. After a crash the batch
//! continues. Answered requests are not sent again. Requests that had begun are sent again, unless they may have been
//! executed and must not be executed twice.
//!
//! A request with a body is announced first (`Expect: 100-continue`, RFC 9110 §10.1.1), and andante asks for the body
//! when the request has its slot. So the journal knows that a waiting request has not begun, however long it waits.

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
