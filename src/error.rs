//! Errors of requests, and who has to act on them. `proxy::respond` turns them into answers, and no other code does.

mod causes;
mod facts;
mod kind;

pub(crate) use self::causes::beginning;
pub use self::{
    causes::{BoxError, in_one_line, io_error, is_exhaustion},
    facts::{Blame, ErrorFacts, MORE_DESCRIPTORS, ProblemType, Retryable},
    kind::Error,
};
