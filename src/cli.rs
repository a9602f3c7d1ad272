//! One file per command.

pub mod demo;
mod failure;
pub mod mock;
pub mod plan;
mod wording;

pub use self::failure::Failure;
