//! Reads fields whose value is JSON: `X-RateLimit: {"name":"API","period":10,"limit":50,"remaining":0,"until":"…Z"}`
//! (Basecamp).

use serde_json::Value;

use crate::{
    Dialect, count,
    evidence::{Evidence, ReportedBudget},
    fields::Fields,
    time::{self, Now},
};

pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    fields.retain_not(|field| {
        let is_limit = ["ratelimit", "rate-limit", "quota", "throttle"].iter().any(|word| field.name.contains(word));
        if !is_limit || !field.value.starts_with(['{', '[']) {
            return false;
        }
        let Ok(json) = serde_json::from_str::<Value>(&field.value) else { return false };
        let budgets: Vec<_> = match &json {
            Value::Array(list) => list.iter().filter_map(|json| budget(json, now)).collect(),
            json => budget(json, now).into_iter().collect(),
        };
        let understood = !budgets.is_empty();
        budgets.into_iter().for_each(|budget| evidence.push(budget));
        if understood {
            evidence.speaks(Dialect::VENDOR);
        }
        understood
    });
}

/// Budget of one object, if it reports a limit or a remainder.
fn budget(json: &Value, now: Now) -> Option<ReportedBudget> {
    let text = |names: &[&str]| {
        let member = names.iter().find_map(|name| json.get(*name)).filter(|value| !value.is_null())?;
        Some(member.as_str().map_or_else(|| member.to_string(), str::to_owned))
    };
    let number = |names: &[&str]| text(names).and_then(|text| count::count(&text));
    let mut budget = ReportedBudget::new(text(&["name", "policy", "type"]).as_deref());
    budget.bucket.limit = number(&["limit", "max", "quota"]);
    budget.bucket.remaining = number(&["remaining", "left", "available"]);
    if let Some(used) = number(&["used", "count"]) {
        budget.used(used);
    }
    budget.bucket.window = text(&["period", "window", "interval"]).and_then(|window| time::length(&window, false));
    let reset = text(&["until", "reset", "resets", "reset_at", "resets_at", "resetAt", "reset_in", "resetIn"]);
    budget.resets(reset.and_then(|reset| time::reset(&reset, false)), now);
    (budget.bucket.limit.is_some() || budget.bucket.remaining.is_some()).then_some(budget)
}
