//! Forgets what answers have taught, while requests are under way.

use super::Learned;
use crate::{limit::Budget, policy::Policy};

impl Learned {
    /// Nothing was learned so far, but that requests are under way. What the API asked `budget` for is gone.
    pub fn forget(&mut self, policy: &Policy, budget: &mut Budget) {
        let Self { unanswered, taken, answered, .. } = *self;
        *self = Self { unanswered, taken, answered, ..Self::new(policy) };
        budget.unlearn_all();
    }
}
