//! Reads the claims of a subscription: `anthropic-ratelimit-unified-5h-status`, `…-reset`, `…-utilization`.

use crate::{
    Dialect, count,
    evidence::{self, Evidence, ReportedBudget},
    fields::Fields,
    time::{self, Now, When},
};

const STEM: &str = "anthropic-ratelimit-unified-";
const TIERS: [&str; 2] = ["anthropic-priority-", "anthropic-fast-"];

#[derive(Default)]
struct UnifiedWindow<'a> {
    name: &'a str,
    status: Option<&'a str>,
    reset: Option<When>,
    utilization: Option<f64>,
}

pub(super) fn read(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    let mut claims = Vec::new();
    for field in fields.iter() {
        let Some(rest) = field.name.strip_prefix(STEM) else { continue };
        let (name, what) = rest.rsplit_once('-').unwrap_or(("", rest));
        let value = &*field.value;
        if !matches!(what, "status" | "reset" | "utilization") {
            continue;
        }
        let known = claims.iter().position(|claim: &UnifiedWindow<'_>| claim.name == name);
        let index = known.unwrap_or_else(|| {
            claims.push(UnifiedWindow { name, ..UnifiedWindow::default() });
            claims.len() - 1
        });
        match what {
            "status" => claims[index].status = Some(value),
            "reset" => claims[index].reset = time::reset(value, false),
            _ => claims[index].utilization = count::decimal(value),
        }
    }
    // The claim without a name sums up the others.
    let sum = claims.iter().position(|claim| claim.name.is_empty()).map(|at| claims.remove(at)).unwrap_or_default();
    if sum.status.is_none() && sum.reset.is_none() && claims.is_empty() {
        return;
    }
    let foremost = fields.value("anthropic-ratelimit-unified-representative-claim").map(short);
    evidence.speaks(Dialect::ANTHROPIC);
    evidence.warning |= sum.status == Some("allowed_warning");
    let rejected = claims.iter().any(|claim| claim.is_rejected() && claim.is_ours());
    if claims.iter().all(|claim| claim.reset.is_none()) || sum.is_rejected() && !rejected {
        evidence.push(sum.budget(now));
    }
    for claim in claims {
        let mut budget = claim.budget(now);
        budget.foremost = foremost.as_deref() == Some(claim.name);
        if budget.is_used_up() && budget.binds {
            evidence.concerns(claim.name);
        }
        evidence.push(budget);
    }
    fields.retain_not(|field| field.name.starts_with(STEM));
}

/// Reads the budgets of the priority tier and of fast mode: `anthropic-priority-input-tokens-remaining`,
/// `anthropic-fast-output-tokens-reset`. Requests beyond them are served by the standard tier, or refused alone. A
/// used-up budget of a tier is therefore a wait for a refused request only, and says nothing about other requests.
pub(super) fn tiers(fields: &mut Fields<'_>, now: Now, evidence: &mut Evidence) {
    let of_tier = |name: &str| TIERS.iter().any(|tier| name.starts_with(tier));
    let used_up = fields.iter().filter(|field| of_tier(field.name) && field.value.trim() == "0");
    let stems = used_up.filter_map(|field| field.name.strip_suffix("remaining"));
    let resets = stems.filter_map(|stem| fields.value(&format!("{stem}reset")));
    let waits = resets.filter_map(|reset| time::reset(reset, false)?.from(now)).filter(|wait| !wait.is_zero());
    evidence.other_scope = evidence.other_scope.max(waits.max());
    fields.retain_not(|field| of_tier(field.name));
}

/// Converts `five_hour` to `5h`, as in the names of the other fields.
fn short(claim: &str) -> String {
    const NUMBERS: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let (number, rest) = claim.trim().split_once('_').unwrap_or((claim, ""));
    let number = NUMBERS.iter().position(|word| *word == number).map_or(number.to_owned(), |number| number.to_string());
    let (unit, more) = rest.split_at(rest.len().min(1).min(rest.chars().next().map_or(0, char::len_utf8)));
    let more = more.split_once('_').map_or(String::new(), |(_, more)| format!("_{more}"));
    format!("{number}{unit}{more}")
}

// === impl UnifiedWindow ===

impl UnifiedWindow<'_> {
    fn is_rejected(&self) -> bool {
        self.status == Some("rejected")
    }

    /// Returns whether the claim is part of the plan. A refusal of extra usage, which is paid beyond the plan, says
    /// nothing about the plan.
    fn is_ours(&self) -> bool {
        self.name != "overage"
    }

    fn budget(&self, now: Now) -> ReportedBudget {
        let mut budget = ReportedBudget::new(Some(self.name));
        budget.resets(self.reset, now);
        let bucket = &mut budget.bucket;
        bucket.window = evidence::window_in(self.name);
        // The numbers are shares of a limit that is not reported.
        bucket.requests = false;
        if let Some(utilization) = self.utilization {
            (bucket.limit, bucket.remaining) = (Some(1.0), Some((1.0 - utilization).max(0.0)));
        }
        if self.is_rejected() {
            bucket.remaining = Some(0.0);
        } else if self.status.is_some() && bucket.remaining == Some(0.0) {
            // The limit is exceeded, but the request was allowed.
            bucket.remaining = None;
        }
        budget.binds = self.is_ours();
        budget
    }
}
