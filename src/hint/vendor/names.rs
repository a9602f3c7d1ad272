//! Reads names that only one API uses, by the words in them.

use std::time::Duration;

use crate::{
    Dialect, count,
    evidence::{self, Evidence, ReportedBudget},
    fields::Fields,
    structured,
    time::{self, Now},
};

pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    let mut budgets: Vec<ReportedBudget> = Vec::new();
    fields.retain_not(|field| {
        let (name, value) = (field.name, &*field.value);
        let bare = name.strip_prefix("x-").unwrap_or(name);
        let understood = spelled_out(bare, value, &mut budgets)
            || by_window(bare, value, now, &mut budgets)
            || used_only(name, value, &mut budgets)
            || pairs(name, value, now, &mut budgets)
            || resources(name, value, &mut budgets)
            || rate(name, value, &mut budgets)
            || bybit(name, value, now, &mut budgets)
            || apple(name, value, &mut budgets)
            || auth0(name, value, now, &mut budgets);
        understood || sentry(name, value, evidence)
    });
    if let Some(limit) = fields.value("x-concurrency-limit").and_then(count::count) {
        let mut budget = ReportedBudget::new(Some("concurrency"));
        (budget.bucket.limit, budget.binds) = (Some(limit), false);
        budgets.push(budget);
    }
    for budget in budgets {
        evidence.speaks(Dialect::VENDOR);
        evidence.push(budget);
    }
}

/// Budget called `name`, which is created if needed.
fn named<'a>(name: &str, budgets: &'a mut Vec<ReportedBudget>) -> &'a mut ReportedBudget {
    let known = budgets.iter().position(|budget| budget.bucket.name.as_deref() == Some(name));
    let index = known.unwrap_or_else(|| {
        budgets.push(ReportedBudget::new(Some(name)));
        budgets.len() - 1
    });
    &mut budgets[index]
}

/// Reads `x-limit-per-second`, `x-remaining-this-second` (also sent without its last letter), `x-remaining-today`.
fn spelled_out(name: &str, value: &str, budgets: &mut Vec<ReportedBudget>) -> bool {
    const WINDOWS: [&str; 5] = ["second", "minute", "hour", "day", "month"];
    let whole = |word: &str| WINDOWS.into_iter().find(|window| word.len() >= 3 && window.starts_with(word));
    let (window, is_limit) = if let Some(word) = name.strip_prefix("limit-per-") {
        (whole(word), true)
    } else if let Some(word) = name.strip_prefix("remaining-this-") {
        (whole(word), false)
    } else {
        (Some("day").filter(|_| name == "remaining-today"), false)
    };
    let Some(window) = window else { return false };
    let budget = named(window, budgets);
    budget.bucket.window = evidence::window_in(window);
    let count = count::count(value);
    *(if is_limit { &mut budget.bucket.limit } else { &mut budget.bucket.remaining }) = count;
    true
}

/// Reads `x-daylimit-remaining`, `x-appminlimit-remaining`, `x-user-limit-24hour-remaining`.
fn by_window(name: &str, value: &str, now: Now, budgets: &mut Vec<ReportedBudget>) -> bool {
    let (dimension, what) = match name.strip_suffix("limit-remaining") {
        Some(dimension) => (dimension, "remaining"),
        None => match name.rsplit_once('-') {
            Some((dimension, what)) if dimension.contains("-limit-") => (dimension, what),
            _ => return false,
        },
    };
    let word = dimension.rsplit('-').next().unwrap_or_default();
    let window = count::window(word.strip_prefix("app").unwrap_or(word));
    let Some(window) = window.filter(|_| matches!(what, "limit" | "remaining" | "reset")) else { return false };
    let budget = named(&dimension.replace("-limit-", "-"), budgets);
    budget.bucket.window = Some(time::duration(window));
    match what {
        "limit" => budget.bucket.limit = count::count(value),
        "remaining" => budget.bucket.remaining = count::count(value),
        _ => budget.resets(time::reset(value, false), now),
    }
    true
}

/// Reads `x-mbx-used-weight-1m`, `x-mbx-order-count-10s`. Both report usage without a limit.
fn used_only(name: &str, value: &str, budgets: &mut Vec<ReportedBudget>) -> bool {
    let Some(rest) = name.strip_prefix("x-mbx-").or_else(|| name.strip_prefix("x-sapi-")) else { return false };
    let Some(window) = rest.rsplit('-').next().and_then(count::window) else { return false };
    if count::count(value).is_some() {
        let words: Vec<_> = rest.split('-').filter(|word| !matches!(*word, "used" | "count")).collect();
        named(&words.join("-"), budgets).bucket.window = Some(time::duration(window));
    }
    true
}

/// Reads `zendesk-ratelimit-…: total=100; remaining=99; resets=41`.
fn pairs(name: &str, value: &str, now: Now, budgets: &mut Vec<ReportedBudget>) -> bool {
    if !value.contains('=') {
        return false;
    }
    // A policy may have a limit as well.
    let Some((_, name)) = name.split_once("ratelimit-").filter(|(_, name)| *name != "policy") else { return false };
    let find = |keys: [&str; 2]| {
        let mut pairs = value.split([';', ',']).filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| keys.contains(&key.trim())).map(|(_, value)| value.trim())
    };
    let (total, resets) = (find(["total", "limit"]), find(["resets", "reset"]));
    if total.is_none() && resets.is_none() {
        return false;
    }
    let budget = named(name, budgets);
    budget.bucket.limit = total.and_then(count::count);
    budget.bucket.remaining = find(["remaining", "left"]).and_then(count::count);
    budget.resets(resets.and_then(|resets| time::reset(resets, false)), now);
    true
}

/// Reads `Microsoft.Compute/HighCostGet3Min;159,Microsoft.Compute/HighCostGet30Min;1260`.
fn resources(name: &str, value: &str, budgets: &mut Vec<ReportedBudget>) -> bool {
    if !name.contains("remaining") || !value.contains(';') {
        return false;
    }
    let read = |part: &str| {
        let (name, left) = part.trim().split_once(';')?;
        Some((name.to_ascii_lowercase(), count::decimal(left.trim())?))
    };
    let Some(parts) = value.split(',').map(read).collect::<Option<Vec<_>>>() else { return false };
    // A number before the semicolon is a count with parameters.
    if parts.iter().any(|(name, _)| count::decimal(name.trim()).is_some()) {
        return false;
    }
    for (name, left) in parts {
        let stem = name.strip_suffix("min").map(|stem| stem.trim_end_matches(|c: char| c.is_ascii_digit()));
        let window = stem.and_then(|stem| count::window(&name[stem.len()..]));
        let budget = named(&name, budgets);
        (budget.bucket.remaining, budget.bucket.window) = (Some(left), window.map(time::duration));
    }
    true
}

/// Reads `x-amzn-ratelimit-limit: 0.0167`: requests per second.
fn rate(name: &str, value: &str, budgets: &mut Vec<ReportedBudget>) -> bool {
    if name != "x-amzn-ratelimit-limit" {
        return false;
    }
    let Some(rate) = count::decimal(value).filter(|rate| *rate > 0.0) else { return false };
    let mut budget = ReportedBudget::new(None);
    (budget.bucket.limit, budget.bucket.window) = (Some(rate), Some(Duration::from_secs(1)));
    (budget.bucket.refills, budget.probe) = (true, Some(time::duration(1.0 / rate)));
    budgets.push(budget);
    true
}

/// Reads `x-bapi-limit: 100`, `x-bapi-limit-status: 99` (the remainder), `x-bapi-limit-reset-timestamp`.
fn bybit(name: &str, value: &str, now: Now, budgets: &mut Vec<ReportedBudget>) -> bool {
    let Some(what) = name.strip_prefix("x-bapi-limit") else { return false };
    let bucket = &mut named("bapi", budgets).bucket;
    match what {
        "" => bucket.limit = count::count(value),
        "-status" => bucket.remaining = count::count(value),
        "-reset-timestamp" => bucket.reset = time::reset(value, false).and_then(|reset| reset.from(now)),
        _ => return false,
    }
    true
}

/// Reads `x-rate-limit: user-hour-lim:3500;user-hour-rem:500;`.
fn apple(name: &str, value: &str, budgets: &mut Vec<ReportedBudget>) -> bool {
    let read = |pair: &str| {
        let (name, number) = pair.trim().split_once(':')?;
        let (name, what) = name.rsplit_once('-')?;
        Some((name.to_owned(), what == "lim", count::count(number)?))
    };
    let pairs = value.split(';').filter_map(read).collect::<Vec<_>>();
    if name != "x-rate-limit" || pairs.is_empty() {
        return false;
    }
    for (name, is_limit, number) in pairs {
        let bucket = &mut named(&name, budgets).bucket;
        bucket.window = evidence::window_in(&name);
        *(if is_limit { &mut bucket.limit } else { &mut bucket.remaining }) = Some(number);
    }
    true
}

/// Reads `auth0-client-quota-limit: b=per_hour;q=100;r=90;t=3600,b=per_day;q=1000;r=950;t=86400`.
fn auth0(name: &str, value: &str, now: Now, budgets: &mut Vec<ReportedBudget>) -> bool {
    let Some(whose) = name.strip_prefix("auth0-").and_then(|name| name.strip_suffix("-quota-limit")) else {
        return false;
    };
    for item in structured::items(value) {
        let window = item.parameter(&["b"]).or(item.name).unwrap_or_default();
        let bucket = &mut named(&format!("{whose}-{window}"), budgets).bucket;
        bucket.limit = item.parameter(&["q"]).and_then(count::count);
        bucket.remaining = item.parameter(&["r"]).and_then(count::count);
        bucket.reset = item.parameter(&["t"]).and_then(|reset| time::reset(reset, false)?.from(now));
        bucket.window = evidence::window_in(window);
    }
    true
}

/// Reads `60:error;transaction:organization:reason, …`: seconds, categories, scope and reason. Categories describe
/// contents of request bodies, so the wait concerns us only if a request was refused.
fn sentry(name: &str, value: &str, evidence: &mut Evidence) -> bool {
    if name != "x-sentry-rate-limits" {
        return false;
    }
    let limits = value.split(',').filter_map(|limit| {
        let mut parts = limit.trim().split(':');
        let seconds = count::decimal(parts.next()?.trim()).filter(|seconds| *seconds > 0.0)?;
        Some((seconds, parts.next().unwrap_or_default(), parts.next().unwrap_or_default()))
    });
    // An empty list of categories means all of them.
    let longest = limits
        .max_by(|a, b| (a.1.is_empty(), a.0).partial_cmp(&(b.1.is_empty(), b.0)).unwrap_or(std::cmp::Ordering::Equal));
    if let Some((seconds, categories, whose)) = longest {
        evidence.other_scope = Some(time::duration(seconds));
        evidence.concerns(&format!("{whose}:{categories}"));
        evidence.speaks(Dialect::VENDOR);
    }
    true
}
