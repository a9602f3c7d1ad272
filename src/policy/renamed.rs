//! Added rules that changed their name in a reload. A rule without a name is named after the requests that it matches,
//! so an edit of its match renames it.

use std::sync::Arc;

use super::{Added, Policy, Rules};

/// Pairs of a rule's former and present name.
pub type RenamedRules = Arc<[(Arc<str>, Arc<str>)]>;

/// Renames that are remembered; older ones are dropped first.
const MOST: usize = 64;

/// Returns those of `rules` that had another name among `others`, which held before. `known` holds earlier renames.
///
/// A missing rule and a new rule are the same one if their budgets have the same key and either condition holds.
/// Both match the same requests, or both lack a name and have the same limits. Ambiguous matches are ignored.
pub fn renamed_since(rules: &Rules, others: &Rules, known: &RenamedRules) -> RenamedRules {
    let not_in = |rules: &Rules, rule: &Policy| rules.iter().all(|other| other.name != rule.name);
    let added = |rule: &&Arc<Policy>| rule.added.is_some();
    let gone: Vec<_> = others.iter().filter(added).filter(|rule| not_in(rules, rule)).collect();
    let new: Vec<_> = rules.iter().filter(added).filter(|rule| not_in(others, rule)).collect();
    let renamed = gone.iter().filter_map(|was| {
        let mut alike = new.iter().filter(|is| are_alike(was, is));
        let is = alike.next().filter(|_| alike.next().is_none())?;
        let is_only_one = gone.iter().filter(|was| are_alike(was, is)).count() == 1;
        is_only_one.then(|| (was.name.clone(), is.name.clone()))
    });
    let renamed: Vec<_> = renamed.collect();
    let now = |name: &Arc<str>| renamed.iter().find(|(was, _)| was == name).map_or(name, |(_, is)| is).clone();
    let earlier = known.iter().map(|(was, is)| (was.clone(), now(is)));
    let earlier = earlier.filter(|(was, is)| {
        let is_there = |name: &str| rules.iter().any(|rule| *rule.name == *name);
        is_there(is) && !is_there(was)
    });
    let earlier: Vec<_> = earlier.collect();
    let latest = earlier.len().saturating_sub(MOST);
    earlier.into_iter().skip(latest).chain(renamed.iter().cloned()).collect()
}

/// Returns whether these may be one rule under two names.
fn are_alike(one: &Policy, other: &Policy) -> bool {
    let Some((added, of_other)) = one.added.as_ref().zip(other.added.as_ref()) else { return false };
    let requests = one.hosts == other.hosts
        && (&added.path, &added.methods, &added.headers) == (&of_other.path, &of_other.methods, &of_other.headers);
    let limits = (&one.limits, &one.calendar, one.in_flight) == (&other.limits, &other.calendar, other.in_flight);
    let meet = one.hosts.iter().any(|host| other.hosts.contains(host));
    let without_names = is_without_name(one, added) && is_without_name(other, of_other);
    added.key == of_other.key && added.only == of_other.only && (requests || limits && meet && without_names)
}

/// A rule without a name is named after its hosts and its match.
fn is_without_name(rule: &Policy, added: &Added) -> bool {
    rule.name.strip_suffix(&added.to_string()).is_some_and(|hosts| hosts.ends_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use andante_limit::Limits;

    /// Rules of these names, methods and limits.
    fn rules(of: &[(&str, &str, &str)]) -> Rules {
        let rule = |(name, method, limits): &(&str, &str, &str)| {
            let mut rule = Policy::new(name, vec!["*".parse().unwrap()]);
            rule.limits = limits.parse::<Limits>().unwrap().limits;
            rule.added = Some(Added { methods: vec![(*method).into()], ..Added::default() });
            rule
        };
        Rules::new(of.iter().map(rule).collect())
    }

    /// Renames that a reload from `was` to `is` finds, with those `known` before.
    fn renamed(was: &[(&str, &str, &str)], is: &[(&str, &str, &str)], known: &RenamedRules) -> RenamedRules {
        renamed_since(&rules(is), &rules(was), known)
    }

    fn names(of: &[(&str, &str)]) -> RenamedRules {
        of.iter().map(|(was, is)| ((*was).into(), (*is).into())).collect()
    }

    #[test]
    fn a_rule_with_the_same_limits_or_for_the_same_requests_is_the_same() {
        let none = RenamedRules::default();
        let (post, put) = (("* POST", "POST", "5/s"), ("* PUT", "PUT", "5/s"));
        assert_eq!(renamed(&[post], &[put], &none), names(&[("* POST", "* PUT")]), "as much is allowed");
        assert_eq!(renamed(&[("search", "POST", "5/s")], &[put], &none), none, "it had a name");
        assert_eq!(renamed(&[post], &[("x", "POST", "9/s")], &none), names(&[("* POST", "x")]), "the same requests");
        assert_eq!(renamed(&[post], &[("x", "PUT", "9/s")], &none), none, "nothing is as it was");
        assert_eq!(renamed(&[post], &[post, put], &none), none, "it is still there");
    }

    #[test]
    fn of_several_that_are_alike_nobody_knows_which_one_it_is() {
        let none = RenamedRules::default();
        let (a, b, c) = (("* GET", "GET", "5/s"), ("* PUT", "PUT", "5/s"), ("* POST", "POST", "5/s"));
        assert_eq!(renamed(&[a], &[b, c], &none), none);
        assert_eq!(renamed(&[a, b], &[c], &none), none);
    }

    #[test]
    fn a_rule_that_is_renamed_again_is_known_by_its_first_name() {
        let (a, b, c) = (("a", "GET", "5/s"), ("b", "GET", "5/s"), ("c", "GET", "5/s"));
        let once = renamed(&[a], &[b], &RenamedRules::default());
        assert_eq!(renamed(&[b], &[c], &once), names(&[("a", "c"), ("b", "c")]));
        assert_eq!(renamed(&[b], &[b], &once), once);
        assert_eq!(renamed(&[b], &[a], &once), names(&[("b", "a")]), "it has its first name again");
    }
}
