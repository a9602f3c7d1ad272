//! Real answers, and what is to be concluded from them.

mod cases;
