//! Added rules that have moved among each other. For a request, the first matching rule with a `cost` states the cost,
//! and no rule applies after one with `only`. Rules for whole hosts may have any order.

use std::collections::{HashMap, HashSet};

use crate::config::Config;

/// Former and present place of a rule: `behind NAME`, or `before NAME` for the first rule.
pub(super) struct Moved {
    pub(super) old: String,
    pub(super) new: String,
}

/// The smallest set of rules that explains the different order in `new` and `old`, by their names. Only rules in both
/// count.
pub(super) fn moved<'a>(old: &'a Config, new: &'a Config) -> HashMap<&'a str, Moved> {
    let (old, new) = (names(old), names(new));
    let (old, new) = (those_in(old.clone(), &new), those_in(new, &old));
    let before: HashMap<&str, usize> = old.iter().copied().zip(0..).collect();
    let places: Vec<usize> = new.iter().map(|name| before[name]).collect();
    let stay = longest_rise(&places);
    let elsewhere = (0..new.len()).filter(|number| !stay[*number]);
    elsewhere
        .map(|number| (new[number], Moved { old: place(&old, places[number]), new: place(&new, number) }))
        // A rule that moved along with its predecessor still stands behind it.
        .filter(|(_, Moved { old, new })| old != new)
        .collect()
}

/// Names of the added rules.
fn names(config: &Config) -> Vec<&str> {
    config.rules.iter().filter(|rule| rule.added.is_some()).map(|rule| &*rule.name).collect()
}

/// The `names` that `others` contains too.
fn those_in<'a>(mut names: Vec<&'a str>, others: &[&str]) -> Vec<&'a str> {
    let others: HashSet<&str> = others.iter().copied().collect();
    names.retain(|name| others.contains(name));
    names
}

/// Place of the rule with this number among `names`, which has two or more.
fn place(names: &[&str], number: usize) -> String {
    match number.checked_sub(1) {
        Some(before) => format!("behind {}", names[before]),
        None => format!("before {}", names[number + 1]),
    }
}

/// Marks a longest increasing subsequence of these distinct numbers.
fn longest_rise(numbers: &[usize]) -> Vec<bool> {
    // For each length: the end of a subsequence with the smallest last number. For each number: its predecessor in its
    // subsequence.
    let (mut ends, mut before) = (Vec::<usize>::new(), Vec::new());
    for (at, number) in numbers.iter().enumerate() {
        let length = ends.partition_point(|end| numbers[*end] < *number);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut rises = vec![false; numbers.len()];
    let mut at = ends.last().copied();
    while let Some(here) = at {
        rises[here] = true;
        at = before[here];
    }
    rises
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_numbers_are_out_of_order() {
        let stay = |numbers: &[usize]| {
            let rises = longest_rise(numbers);
            numbers.iter().zip(rises).filter(|(_, rises)| *rises).map(|(number, _)| *number).collect::<Vec<_>>()
        };
        assert_eq!(stay(&[]), [0; 0]);
        assert_eq!(stay(&[0, 1, 2]), [0, 1, 2]);
        assert_eq!(stay(&[3, 0, 1, 2]), [0, 1, 2]);
        assert_eq!(stay(&[1, 2, 3, 0]), [1, 2, 3]);
        assert_eq!(stay(&[2, 3, 4, 0, 1]), [2, 3, 4]);
        assert_eq!(stay(&[2, 1, 0]).len(), 1);
    }
}
