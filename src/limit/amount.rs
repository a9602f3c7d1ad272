//! Amount of one unit.

use std::num::NonZeroU32;

/// Amount of one unit; never 0.
pub type Amount = NonZeroU32;

/// The lesser of two amounts, for use inside of `Option::map`.
///
/// `Amount::min` is not safe there with LLVM 22: it folds `None.map(|amount| amount.min(other))` into `umin(0, other)`, and
/// keeps the promise that the arguments are not 0. A test for `None` is then removed, and the amount is 0.
#[inline(never)]
pub fn lesser(one: Amount, other: Amount) -> Amount {
    one.min(other)
}
