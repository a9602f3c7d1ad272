//! Which of the rules for some requests stand elsewhere among each other: of those that are for a request the first one with a
//! `cost` says it, and behind one with `only` no other holds. Rules for whole hosts may stand in any order.

use std::collections::{HashMap, HashSet};

use crate::config::Config;

/// Where a rule stood, and where it stands: `behind NAME`, or `before NAME` if no other is before it.
pub(super) struct Moved {
    pub(super) old: String,
    pub(super) new: String,
}

/// The fewest rules that have another place in `new` than in `old` among those that are in both, by their names.
pub(super) fn moved<'a>(old: &'a Config, new: &'a Config) -> HashMap<&'a str, Moved> {
    let (old, new) = (names(old), names(new));
    let (old, new) = (those_in(old.clone(), &new), those_in(new, &old));
    let before: HashMap<&str, usize> = old.iter().copied().zip(0..).collect();
    let places: Vec<usize> = new.iter().map(|name| before[name]).collect();
    let stay = longest_rise(&places);
    let elsewhere = (0..new.len()).filter(|number| !stay[*number]);
    elsewhere
        .map(|number| (new[number], Moved { old: place(&old, places[number]), new: place(&new, number) }))
        // What moves along with the one before it stands behind that, as it did.
        .filter(|(_, Moved { old, new })| old != new)
        .collect()
}

/// The rules for some requests, by their names.
fn names(config: &Config) -> Vec<&str> {
    config.rules.iter().filter(|rule| rule.added.is_some()).map(|rule| &*rule.name).collect()
}

/// Those of `names` that `others` has too.
fn those_in<'a>(mut names: Vec<&'a str>, others: &[&str]) -> Vec<&'a str> {
    let others: HashSet<&str> = others.iter().copied().collect();
    names.retain(|name| others.contains(name));
    names
}

/// Where the rule with this number stands among these, of which there are two or more.
fn place(names: &[&str], number: usize) -> String {
    match number.checked_sub(1) {
        Some(before) => format!("behind {}", names[before]),
        None => format!("before {}", names[number + 1]),
    }
}

/// Which of these numbers, no two of them equal, are of the longest of their rows in which each is larger than the one before.
fn longest_rise(numbers: &[usize]) -> Vec<bool> {
    // Where rows of each length end, those with the smallest last number; and what is before each number in its row.
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
