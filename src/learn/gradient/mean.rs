//! A mean of times, with its uncertainty.

/// The mean of some times, with their variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mean {
    count: u32,
    mean: f64,
    /// The sum of squared distances from the mean (Welford).
    squares: f64,
}

/// Largest weight of older measurements.
const REMEMBERED: f64 = 128.0;
/// Distance of two means, in standard errors, above which they measure different things.
const APART: f64 = 3.0;

impl Mean {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / f64::from(self.count);
        self.squares += before * (value - self.mean);
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    fn variance(&self) -> f64 {
        self.squares / f64::from(self.count.saturating_sub(1).max(1))
    }

    /// Combines this mean with a newer one. If they cannot measure the same thing, the newer one replaces it.
    pub(super) fn with(self, newer: Self) -> Self {
        let (old, new) = (f64::from(self.count), f64::from(newer.count));
        if old == 0.0 || new == 0.0 {
            return if new == 0.0 { self } else { newer };
        }
        let error = (self.variance().max(newer.variance()) * (1.0 / old + 1.0 / new)).sqrt();
        if (self.mean - newer.mean).abs() > APART * error {
            return newer;
        }
        let old = old.min((REMEMBERED - new).max(new));
        let count = old + new;
        let mean = (self.mean * old + newer.mean * new) / count;
        let variance = (self.variance() * old + newer.variance() * new) / count;
        Self { count: count as u32, mean, squares: variance * (count - 1.0).max(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Mean {
        let mut mean = Mean::default();
        values.iter().for_each(|value| mean.add(*value));
        mean
    }

    #[test]
    fn it_has_the_mean_and_the_variance_of_its_values() {
        let mean = of(&[1.0, 2.0, 3.0, 6.0]);
        // (4 + 1 + 0 + 9) / 3.
        assert_eq!((mean.count(), mean.mean()), (4, 3.0));
        assert!((mean.variance() - 14.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn what_agrees_is_put_together_and_what_contradicts_replaces() {
        let (old, like, unlike) = (of(&[0.9, 1.1, 1.0]), of(&[1.0, 1.2, 0.8]), of(&[2.9, 3.1, 3.0]));
        let both = old.with(like);
        assert_eq!((both.count(), both.mean()), (6, 1.0));
        assert_eq!(old.with(unlike), unlike);
        assert_eq!((Mean::default().with(old), old.with(Mean::default())), (old, old));
    }
}
