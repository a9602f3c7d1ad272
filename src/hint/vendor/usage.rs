//! Reads shares of a limit instead of counts: Meta's percents in JSON, the fraction of Microsoft Graph, and the
//! percents of OpenAI's subscriptions.

use serde_json::Value;

use crate::{
    Dialect, count,
    evidence::{Evidence, ReportedBudget},
    fields::Fields,
    time::{self, Now, When},
};

/// Used share of a limit from which a warning is worthwhile.
const NEAR: f64 = 0.8;

pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    used_percent(fields, now, evidence);
    if let Some(scope) = fields.value("x-ms-throttle-scope").or_else(|| fields.value("x-ms-throttle-information")) {
        evidence.concerns(scope);
    }
    fields.retain_not(|field| match field.name {
        "x-ms-throttle-limit-percentage" => fraction(&field.value, evidence),
        name => name
            .strip_prefix("x-")
            .is_some_and(|name| name.ends_with("-usage") && percents(name, &field.value, evidence)),
    });
}

/// Reads `x-codex-primary-used-percent: 37.5` with `-window-minutes`, and `-reset-after-seconds` or `-reset-at`.
fn used_percent(fields: &Fields<'_>, now: Now, evidence: &mut Evidence) {
    for field in fields.iter() {
        let Some(stem) = field.name.strip_suffix("-used-percent") else { continue };
        let Some(used) = count::decimal(field.value.trim()) else { continue };
        let beside = |what: &str| fields.value(&format!("{stem}-{what}"));
        let mut budget = share(stem.strip_prefix("x-").unwrap_or(stem), used / 100.0);
        let reset = beside("reset-after-seconds").or_else(|| beside("reset-at")).and_then(|at| time::reset(at, false));
        budget.bucket.reset = reset.and_then(|reset| reset.from(now)).filter(|reset| !reset.is_zero());
        budget.bucket.coarse = matches!(reset, Some(When::At { coarse: true, .. }));
        let minutes = beside("window-minutes").and_then(count::count).filter(|minutes| *minutes > 0.0);
        budget.bucket.window = minutes.map(|minutes| time::duration(minutes * 60.0));
        evidence.speaks(Dialect::VENDOR);
        evidence.push(budget);
    }
}

/// Reads a used fraction from 0.8 up to 1.8. The API sends it only as a warning, and may serve requests beyond 1.
fn fraction(value: &str, evidence: &mut Evidence) -> bool {
    let Some(used) = count::decimal(value.trim()) else { return false };
    let mut budget = share("throttle", used);
    budget.binds = false;
    evidence.warning |= used >= NEAR;
    evidence.speaks(Dialect::VENDOR);
    evidence.push(budget);
    true
}

/// Reads `{"call_count":28,"total_cputime":10,"total_time":15}`, or lists of such objects below account ids. The
/// largest share binds.
fn percents(name: &str, value: &str, evidence: &mut Evidence) -> bool {
    if !value.starts_with('{') {
        return false;
    }
    let Ok(json) = serde_json::from_str::<Value>(value) else { return false };
    let mut most = Most::default();
    most.look(&json, 0);
    let Some(used) = most.percent else { return false };
    let mut budget = share(name, used / 100.0);
    if most.regain > 0.0 {
        (budget.bucket.remaining, budget.bucket.reset) = (Some(0.0), Some(time::duration(most.regain)));
    }
    evidence.warning |= used / 100.0 >= NEAR;
    evidence.speaks(Dialect::VENDOR);
    evidence.push(budget);
    true
}

fn share(name: &str, used: f64) -> ReportedBudget {
    let mut budget = ReportedBudget::new(Some(name));
    budget.bucket.requests = false;
    (budget.bucket.limit, budget.bucket.remaining) = (Some(1.0), Some((1.0 - used).max(0.0)));
    budget
}

#[derive(Default)]
struct Most {
    percent: Option<f64>,
    /// Longest time to regain access, in seconds.
    regain: f64,
}

// === impl Most ===

impl Most {
    fn look(&mut self, json: &Value, depth: usize) {
        match json {
            Value::Object(fields) if depth < 4 => {
                for (key, value) in fields {
                    match (key.as_str(), value.as_f64().filter(|number| *number >= 0.0)) {
                        ("call_count" | "total_time" | "total_cputime", Some(percent)) => self.see(percent),
                        (key, Some(percent)) if key.ends_with("_pct") => self.see(percent),
                        ("estimated_time_to_regain_access", Some(minutes)) => {
                            self.regain = self.regain.max(minutes * 60.0)
                        }
                        _ => self.look(value, depth + 1),
                    }
                }
            }
            Value::Array(members) if depth < 4 => members.iter().for_each(|member| self.look(member, depth + 1)),
            _ => {}
        }
    }

    fn see(&mut self, percent: f64) {
        self.percent = Some(self.percent.map_or(percent, |most| most.max(percent)));
    }
}
