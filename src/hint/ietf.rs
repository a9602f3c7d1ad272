//! Reads `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers. Drafts 04 to 06 have policies and
//! three fields, 07 a dictionary, 08 and later lists of items.

use std::time::Duration;

use super::{
    Cause, Dialect, count,
    evidence::{Evidence, ReportedBudget},
    fields::Fields,
    structured::{self, Item},
    time::{self, Now},
};

/// Policy of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IetfPolicy<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) quota: f64,
    pub(super) window: Option<Duration>,
    unit: Option<&'a str>,
    key: Option<&'a str>,
}

/// Reads both fields. Returns the policies that `RateLimit` does not use, for the older fields in the same answer.
pub(super) fn read<'a>(fields: &'a Fields<'_>, now: Now, evidence: &mut Evidence) -> Vec<IetfPolicy<'a>> {
    let told = ["ratelimit-policy", "x-ratelimit-policy"].into_iter().find_map(|name| fields.value(name));
    let mut policies: Vec<_> = told.into_iter().flat_map(policies).collect();
    let named = ["ratelimit", "x-ratelimit"].into_iter().find_map(|name| fields.value(name));
    let items: Vec<_> = named.into_iter().flat_map(structured::items).collect();
    if items.iter().any(is_draft_7) {
        dictionary(&items, &mut policies, now, evidence);
    } else {
        list(&items, &mut policies, now, evidence);
    }
    policies
}

/// Members with a quota: `100;w=60`, `"name";q=100;w=60`, `100;window=60`.
pub(super) fn policies(value: &str) -> impl Iterator<Item = IetfPolicy<'_>> {
    structured::items(value).filter_map(|item| IetfPolicy::new(&item))
}

/// Policy that a limit, its remainder and its reset refer to, if one field has several policies (draft 03). The
/// smallest quota wins that can have so much left, in a window that can last so long.
pub(super) fn fitting<'a>(
    policies: &[IetfPolicy<'a>],
    limit: f64,
    left: Option<f64>,
    reset: Option<Duration>,
) -> Option<IetfPolicy<'a>> {
    // A limit without a policy of that quota is the current one, whatever the policies say.
    let exact = policies.iter().find(|policy| policy.quota == limit)?;
    let fits = |policy: &&IetfPolicy<'_>| {
        // Resets are rounded up.
        let long_enough = |window: Duration| reset.is_none_or(|reset| reset <= window + Duration::from_secs(1));
        left.is_none_or(|left| left <= policy.quota) && policy.window.is_none_or(long_enough)
    };
    policies.iter().filter(fits).min_by(|a, b| a.quota.total_cmp(&b.quota)).or(Some(exact)).copied()
}

/// `limit=100, remaining=50, reset=30`.
fn dictionary(items: &[Item<'_>], policies: &mut Vec<IetfPolicy<'_>>, now: Now, evidence: &mut Evidence) {
    let parameter = |key: &str| items.iter().find_map(|item| item.parameter(&[key]));
    let mut budget = ReportedBudget::new(None);
    budget.bucket.limit = parameter("limit").and_then(count::count);
    budget.bucket.remaining = parameter("remaining").and_then(count::count);
    budget.resets(parameter("reset").and_then(|reset| time::reset(reset, false)), now);
    if let Some(limit) = budget.bucket.limit
        && let Some(policy) = fitting(policies, limit, budget.bucket.remaining, budget.bucket.reset)
    {
        budget.bucket.window = policy.window;
        policies.retain(|other| *other != policy);
    }
    evidence.speaks(Dialect::IETF_DRAFT_7);
    evidence.push(budget);
    policies.drain(..).for_each(|policy| policy.announce(evidence));
}

/// `"default";r=50;t=30, …`.
fn list(items: &[Item<'_>], policies: &mut Vec<IetfPolicy<'_>>, now: Now, evidence: &mut Evidence) {
    let items: Vec<_> = items.iter().filter(|item| item.parameter(&["r", "t"]).is_some()).collect();
    let mut joined = vec![false; policies.len()];
    for item in &items {
        let key = item.parameter(&["pk"]);
        let same_key = |policy: &IetfPolicy<'_>| key.is_none() || policy.key.is_none() || policy.key == key;
        let same_name = |policy: &IetfPolicy<'_>| policy.name.is_some() && policy.name == item.name && same_key(policy);
        // A single item and a single policy belong together, even if their names differ.
        let only = |policy: &IetfPolicy<'_>| items.len() == 1 && policies.len() == 1 && same_key(policy);
        let found = policies.iter().position(same_name).or_else(|| policies.iter().position(only));
        let policy = found.map(|found| {
            joined[found] = true;
            &policies[found]
        });
        let mut budget = policy.map_or_else(|| ReportedBudget::new(item.name), IetfPolicy::budget);
        budget.bucket.remaining = item.parameter(&["r"]).and_then(count::count);
        budget.resets(item.parameter(&["t"]).and_then(|reset| time::reset(reset, false)), now);
        if budget.is_used_up() {
            evidence.concerns(item.name.unwrap_or_default());
            if policy.is_some_and(IetfPolicy::is_concurrency) {
                evidence.cause = Some(Cause::Concurrency);
            }
        }
        evidence.speaks(Dialect::IETF);
        evidence.push(budget);
    }
    if !items.is_empty() {
        let unjoined = policies.iter().zip(&joined).filter(|(_, joined)| !**joined);
        unjoined.for_each(|(policy, _)| policy.announce(evidence));
        policies.clear();
    }
}

fn is_draft_7(item: &Item<'_>) -> bool {
    item.parameter(&["limit", "remaining", "reset"]).is_some() && item.parameter(&["r", "t"]).is_none()
}

// === impl IetfPolicy ===

impl<'a> IetfPolicy<'a> {
    pub(super) fn counts_requests(&self) -> bool {
        self.unit.is_none_or(|unit| unit.eq_ignore_ascii_case("requests") || unit.eq_ignore_ascii_case("request"))
    }

    fn new(item: &Item<'a>) -> Option<Self> {
        let window = item.parameter(&["w", "window"]).and_then(|window| time::length(window, false));
        let bare = item.name.and_then(count::decimal);
        let quota = item.parameter(&["q", "quota", "limit"]).and_then(count::count);
        // A number that stands alone is the limit itself, not a policy.
        let quota = quota.or(bare.filter(|_| window.is_some() || item.parameters.is_empty()))?;
        let name = item.name.filter(|_| bare.is_none());
        Some(Self { name, quota, window, unit: item.parameter(&["qu"]), key: item.parameter(&["pk"]) })
    }

    /// Adds a budget with the facts of the policy alone.
    pub(super) fn announce(&self, evidence: &mut Evidence) {
        evidence.speaks(Dialect::IETF);
        evidence.push(self.budget());
    }

    fn budget(&self) -> ReportedBudget {
        let mut budget = ReportedBudget::new(self.name);
        budget.bucket.limit = Some(self.quota);
        budget.bucket.window = self.window;
        budget.bucket.requests &= self.counts_requests();
        budget.binds = !self.is_concurrency();
        budget
    }

    fn is_concurrency(&self) -> bool {
        self.unit.is_some_and(|unit| unit.contains("concurren"))
    }
}
