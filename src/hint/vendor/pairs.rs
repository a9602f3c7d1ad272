//! Reads pairs of numbers: `32/40` (used and limit), `20:1,100:120` (limit and window), `200,2000` (a quarter of an
//! hour and a day). Reads lists of numbers with a list of policies, too.

use std::time::Duration;

use crate::{
    Dialect, count,
    evidence::{Evidence, ReportedBudget},
    fields::Fields,
    ietf,
    time::{self, Now},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const QUARTER: Duration = Duration::from_secs(15 * 60);

pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    let mut taken = Vec::new();
    if parallel(fields, now, evidence) {
        taken.extend(["x-ratelimit-limit", "x-ratelimit-policy", "x-ratelimit-remaining", "x-ratelimit-reset"]);
    }
    for field in fields.iter() {
        if field.value.contains('/') && slashed(field.name, &field.value, evidence) {
            taken.push(field.name);
        }
        let Some((stem, what)) = field.name.rsplit_once('-') else { continue };
        // The field with the usage is named after the field with the limits.
        let limits = match what {
            "count" | "state" => fields.iter().find(|limits| limits.name == stem),
            "usage" => fields.iter().find(|limits| limits.name.strip_suffix("-limit") == Some(stem)),
            _ => continue,
        };
        let Some(limits) = limits else { continue };
        let understood = match what {
            "usage" => commas(stem, &limits.value, &field.value, now, evidence),
            _ => colons(stem, &limits.value, &field.value, evidence),
        };
        if understood {
            taken.extend([limits.name, field.name]);
        }
    }
    fields.retain_not(|field| taken.contains(&field.name));
}

/// Reads `x-ratelimit-limit: 1, 2000`, `-policy: 1;w=1, 2000;w=2592000`, `-remaining: 1, 0`, `-reset: 1, 1419704`
/// (Brave). Values at the same position belong together. A field that was merely sent twice has no such policies.
fn parallel(fields: &Fields<'_>, now: Now, evidence: &mut Evidence) -> bool {
    let list =
        |what: &str| fields.value(&format!("x-ratelimit-{what}")).map(|list| list.split(',').collect::<Vec<_>>());
    let (Some(limits), Some(left), Some(resets)) = (list("limit"), list("remaining"), list("reset")) else {
        return false;
    };
    let policies = fields.value("x-ratelimit-policy").into_iter().flat_map(ietf::policies).collect::<Vec<_>>();
    let quotas = policies.iter().map(|policy| Some(policy.quota));
    let agree = limits.len() > 1 && left.len() == limits.len() && resets.len() == limits.len();
    if !agree || !quotas.eq(limits.iter().map(|limit| count::count(limit))) {
        return false;
    }
    evidence.speaks(Dialect::X_RATELIMIT);
    for (policy, (left, reset)) in policies.iter().zip(left.into_iter().zip(resets)) {
        let window = policy.window.map_or(0, |window| window.as_secs());
        let mut budget = ReportedBudget::new(Some(&format!("{window}s")));
        let bucket = &mut budget.bucket;
        (bucket.limit, bucket.window, bucket.remaining) = (Some(policy.quota), policy.window, count::count(left));
        bucket.reset = time::reset(reset, false).and_then(|reset| reset.from(now));
        evidence.push(budget);
    }
    true
}

/// Reads `40/40`, or several pairs: `api-usage=135/5000; api-bursts=1/750`.
fn slashed(name: &str, value: &str, evidence: &mut Evidence) -> bool {
    fn read(part: &str) -> Option<(Option<&str>, f64, f64)> {
        // `per-app-api-usage=17/250(appName=sample)`
        let part = part.split_once('(').map_or(part, |(part, _)| part);
        let (name, pair) = part.rsplit_once('=').map_or((None, part), |(name, pair)| (Some(name.trim()), pair));
        let (used, limit) = pair.split_once('/')?;
        Some((name, count::decimal(used.trim())?, count::decimal(limit.trim())?))
    }
    let Some(pairs) = value.split([';', ',']).map(read).collect::<Option<Vec<_>>>() else { return false };
    let shopify = name.contains("shopify");
    evidence.speaks(if shopify { Dialect::SHOPIFY } else { Dialect::VENDOR });
    for (pair, used, limit) in pairs {
        let mut budget = ReportedBudget::new(pair);
        budget.bucket.limit = Some(limit);
        // The first number is the remainder if the name says so.
        if name.contains("remaining") {
            budget.bucket.remaining = Some(used)
        } else {
            budget.used(used)
        }
        budget.bucket.refills = shopify;
        // Salesforce counts the last 24 hours; it does not report the window of bursts.
        budget.bucket.window = pair.filter(|pair| pair.ends_with("api-usage")).map(|_| DAY);
        evidence.push(budget);
    }
    true
}

/// Reads `20:1,100:120` with the usage `3:1,57:120`, or `8:10:60` with the state `3:10:0`, whose third number is a
/// penalty in seconds.
fn colons(name: &str, limits: &str, used: &str, evidence: &mut Evidence) -> bool {
    let read = |value: &str| -> Option<Vec<Vec<f64>>> {
        let members = value.split(',').map(|member| member.trim().split(':').map(count::decimal).collect());
        members
            .collect::<Option<Vec<Vec<f64>>>>()
            .filter(|members| members.iter().all(|member| matches!(member.len(), 2 | 3)))
    };
    let (Some(limits), Some(used)) = (read(limits), read(used)) else { return false };
    let whose = name.strip_prefix("x-").unwrap_or(name).replace("rate-limit", "").replace("--", "-");
    let whose = whose.trim_matches('-');
    evidence.speaks(Dialect::VENDOR);
    for limit in limits {
        // The order is not guaranteed, so windows are matched by their length.
        let used = used.iter().find(|used| used[1] == limit[1]);
        let mut budget = ReportedBudget::new(Some(&format!("{whose}-{}s", limit[1])));
        budget.bucket.limit = Some(limit[0]);
        budget.bucket.window = Some(time::duration(limit[1])).filter(|window| !window.is_zero());
        budget.probe = budget.bucket.window;
        if let Some(used) = used {
            budget.used(used[0]);
            if let Some(penalty) = used.get(2).filter(|penalty| **penalty > 0.0) {
                (budget.bucket.remaining, budget.bucket.reset) = (Some(0.0), Some(time::duration(*penalty)));
                evidence.concerns(whose);
            }
        }
        evidence.push(budget);
    }
    true
}

/// Reads `200,2000` with the usage `201,1500`: windows that begin on the clock's quarters, and days of UTC.
fn commas(name: &str, limits: &str, used: &str, now: Now, evidence: &mut Evidence) -> bool {
    let read = |value: &str| value.split(',').map(|number| count::decimal(number.trim())).collect::<Option<Vec<_>>>();
    let (Some(limits), Some(used)) = (read(limits), read(used)) else { return false };
    if limits.len() != 2 || used.len() != 2 {
        return false;
    }
    evidence.speaks(Dialect::VENDOR);
    let whose = name.strip_prefix("x-").and_then(|name| name.strip_suffix("ratelimit")).unwrap_or_default();
    let whose = if whose.is_empty() { String::new() } else { format!("{}-", whose.trim_matches('-')) };
    for ((limit, used), (window, name)) in limits.into_iter().zip(used).zip([(QUARTER, "15min"), (DAY, "day")]) {
        let mut budget = ReportedBudget::new(Some(&format!("{whose}{name}")));
        budget.bucket.limit = Some(limit);
        budget.used(used);
        let into = now.of_day().as_secs() % window.as_secs();
        budget.bucket.window = Some(window);
        (budget.bucket.reset, budget.bucket.coarse) = (Some(window - Duration::from_secs(into)), true);
        evidence.push(budget);
    }
    true
}
