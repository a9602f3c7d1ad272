//! What can go wrong with a request, and who has to act on it. Becomes an answer in `proxy::respond`, and only there.

mod causes;
mod facts;
mod kind;

pub(crate) use self::causes::beginning;
pub use self::{
    causes::{BoxError, in_one_line, io_error, is_exhaustion},
    facts::{Blame, ErrorFacts, MORE_DESCRIPTORS, ProblemType, Retryable},
    kind::{Error, Obstacle},
};
