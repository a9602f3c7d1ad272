//! Numbers in pairs: `32/40` (used and limit), `20:1,100:120` (limit and window), `200,2000` (a quarter of an hour and
//! a day); and in lists beside a list of policies.

use std::time::Duration;

use crate::hint::{
    Dialect, count,
    fields::Fields,
    finding::{Budget, Findings},
    ietf,
    time::{self, Now},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const QUARTER: Duration = Duration::from_secs(15 * 60);

pub(super) fn read(fields: &mut Fields<'_>, now: Now, findings: &mut Findings) {
    let mut taken = Vec::new();
    if parallel(fields, now, findings) {
        taken.extend(["limit", "policy", "remaining", "reset"].map(|what| format!("x-ratelimit-{what}")));
    }
    for field in fields.iter() {
        if slashed(field.name, &field.value, findings) {
            taken.push(field.name.to_owned());
        }
        for (suffix, read) in [("-count", colons as Read), ("-state", colons), ("", commas)] {
            let sibling = if suffix.is_empty() {
                field.name.strip_suffix("-limit").map(|stem| format!("{stem}-usage"))
            } else {
                Some(format!("{}{suffix}", field.name))
            };
            let Some(sibling) = sibling else { continue };
            if fields.value(&sibling).is_some_and(|used| read(field.name, &field.value, used, now, findings)) {
                taken.extend([field.name.to_owned(), sibling]);
            }
        }
    }
    fields.retain_not(|field| taken.iter().any(|taken| taken == field.name));
}

/// `x-ratelimit-limit: 1, 2000`, `-policy: 1;w=1, 2000;w=2592000`, `-remaining: 1, 0`, `-reset: 1, 1419704` (Brave): what
/// stands at one place belongs together. A field that was sent twice has no policies that say so.
fn parallel(fields: &Fields<'_>, now: Now, findings: &mut Findings) -> bool {
    let list =
        |what: &str| fields.value(&format!("x-ratelimit-{what}")).map(|list| list.split(',').collect::<Vec<_>>());
    let (Some(limits), Some(left), Some(resets)) = (list("limit"), list("remaining"), list("reset")) else {
        return false;
    };
    let policies = fields.value("x-ratelimit-policy").map(ietf::policies).unwrap_or_default();
    let quotas = policies.iter().map(|policy| Some(policy.quota));
    let agree = limits.len() > 1 && left.len() == limits.len() && resets.len() == limits.len();
    if !agree || !quotas.eq(limits.iter().map(|limit| count::count(limit))) {
        return false;
    }
    findings.speaks(Dialect::X_RATELIMIT);
    for (policy, (left, reset)) in policies.iter().zip(left.into_iter().zip(resets)) {
        let window = policy.window.map_or(0, |window| window.as_secs());
        let mut budget = Budget::new(Some(&format!("{window}s")));
        let bucket = &mut budget.bucket;
        (bucket.limit, bucket.window, bucket.remaining) = (Some(policy.quota), policy.window, count::count(left));
        bucket.reset = time::reset(reset, false).and_then(|reset| reset.from(now));
        findings.push(budget);
    }
    true
}

type Read = fn(&str, &str, &str, Now, &mut Findings) -> bool;

/// `40/40`, or several as `api-usage=135/5000; api-bursts=1/750`.
fn slashed(name: &str, value: &str, findings: &mut Findings) -> bool {
    let read = |part: &str| {
        let (name, pair) = part
            .trim()
            .rsplit_once('=')
            .filter(|(name, _)| !name.contains('('))
            .or_else(|| {
                // `per-app-api-usage=17/250(appName=sample)`
                part.trim().split_once('=')
            })
            .map_or((None, part), |(name, pair)| (Some(name.trim()), pair));
        let pair = pair.split_once('(').map_or(pair, |(pair, _)| pair);
        let (used, limit) = pair.split_once('/')?;
        Some((name.map(str::to_owned), count::decimal(used.trim())?, count::decimal(limit.trim())?))
    };
    let pairs: Vec<_> = value.split([';', ',']).map(read).collect();
    if pairs.is_empty() || pairs.iter().any(Option::is_none) {
        return false;
    }
    let shopify = name.contains("shopify");
    findings.speaks(if shopify { Dialect::SHOPIFY } else { Dialect::VENDOR });
    for (pair, used, limit) in pairs.into_iter().flatten() {
        let mut budget = Budget::new(pair.as_deref());
        budget.bucket.limit = Some(limit);
        budget.used(used);
        budget.bucket.refills = shopify;
        // Salesforce counts the last 24 hours; of bursts it does not say how long they are.
        budget.bucket.window = pair.as_deref().filter(|pair| pair.ends_with("api-usage")).map(|_| DAY);
        findings.push(budget);
    }
    true
}

/// `20:1,100:120` with `3:1,57:120` used; or `8:10:60` with the state `3:10:0`, where the third is a penalty in seconds.
fn colons(name: &str, limits: &str, used: &str, _: Now, findings: &mut Findings) -> bool {
    let read = |value: &str| -> Option<Vec<Vec<f64>>> {
        let members = value.split(',').map(|member| member.trim().split(':').map(count::decimal).collect());
        members
            .collect::<Option<Vec<Vec<f64>>>>()
            .filter(|members| members.iter().all(|member| matches!(member.len(), 2 | 3)))
    };
    let (Some(limits), Some(used)) = (read(limits), read(used)) else { return false };
    let whose = name.strip_prefix("x-").unwrap_or(name).replace("rate-limit", "").replace("--", "-");
    let whose = whose.trim_matches('-');
    findings.speaks(Dialect::VENDOR);
    for limit in limits {
        // Their order is not promised: they are told apart by their windows.
        let used = used.iter().find(|used| used[1] == limit[1]);
        let mut budget = Budget::new(Some(&format!("{whose}-{}s", limit[1])));
        budget.bucket.limit = Some(limit[0]);
        budget.bucket.window = Some(time::duration(limit[1])).filter(|window| !window.is_zero());
        budget.probe = budget.bucket.window;
        if let Some(used) = used {
            budget.used(used[0]);
            if let Some(penalty) = used.get(2).filter(|penalty| **penalty > 0.0) {
                (budget.bucket.remaining, budget.bucket.reset) = (Some(0.0), Some(time::duration(*penalty)));
                findings.concerns(whose);
            }
        }
        findings.push(budget);
    }
    true
}

/// `200,2000` with `201,1500` used: windows that begin on the clock's quarters, and days of UTC.
fn commas(name: &str, limits: &str, used: &str, now: Now, findings: &mut Findings) -> bool {
    let read = |value: &str| value.split(',').map(|number| count::decimal(number.trim())).collect::<Option<Vec<_>>>();
    let (Some(limits), Some(used)) = (read(limits), read(used)) else { return false };
    if limits.len() != 2 || used.len() != 2 {
        return false;
    }
    findings.speaks(Dialect::VENDOR);
    let whose = name.strip_prefix("x-").and_then(|name| name.strip_suffix("ratelimit-limit")).unwrap_or_default();
    let whose = if whose.is_empty() { String::new() } else { format!("{}-", whose.trim_matches('-')) };
    for ((limit, used), (window, name)) in limits.into_iter().zip(used).zip([(QUARTER, "15min"), (DAY, "day")]) {
        let mut budget = Budget::new(Some(&format!("{whose}{name}")));
        budget.bucket.limit = Some(limit);
        budget.used(used);
        budget.bucket.window = Some(window);
        let into = now.of_day().as_secs() % window.as_secs();
        budget.bucket.reset = Some(window - Duration::from_secs(into));
        budget.bucket.coarse = true;
        findings.push(budget);
    }
    true
}
