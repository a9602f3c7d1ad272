//! Forgets what answers have taught, while requests are in flight.

use andante_limit::Budget;
use andante_policy::Policy;

use super::Learned;

impl Learned {
    /// Resets everything learned except the count of requests in flight. Removes learned limits from `budget`.
    pub fn forget(&mut self, policy: &Policy, budget: &mut Budget) {
        let Self { unanswered, taken, answered, .. } = *self;
        *self = Self { unanswered, taken, answered, ..Self::new(policy) };
        budget.unlearn_all();
    }
}
