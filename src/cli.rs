//! One file per command.

mod failure;
pub mod mock;
pub mod plan;
mod wording;

pub use self::failure::Failure;
