//! In which order waiting requests get their slots. Today there is one order: that of arrival.

mod fifo;

pub use fifo::{Head, Place, Queue, Turn};
