//! Cost of a request under the limits of a plan.

use std::collections::BTreeSet;

use super::error::PlanError;
use crate::limit::{Cost, Limits};

/// Cost of a request under `limits`: an amount of each unit that a limit counts, and of no other unit. A cost that
/// names none of these units is 1 of each.
///
/// # Errors
/// Fails if `cost` names a unit that no limit counts, names only some of the counted units, or exceeds a limit's
/// window.
pub fn costs(limits: &Limits, cost: Cost) -> Result<Cost, PlanError> {
    if let Some((unit, amount)) = cost.others().find(|(unit, _)| limits.units().all(|counted| counted != *unit)) {
        let counted = limits.units().map(|unit| unit.to_string()).collect::<BTreeSet<_>>();
        let counted = counted.into_iter().collect::<Vec<_>>().join(" and ");
        let what = format!("the cost says {unit}={amount}, but the limits count {counted}");
        return Err(PlanError::new(what, "name the unit as the limit does, or leave it out"));
    }
    let cost = limits.counting(cost);
    if let Some(unit) = limits.units().find(|unit| !cost.says(*unit)) {
        let what = format!("nothing says how many {unit} a request takes, and a limit counts them");
        return Err(PlanError::new(what, format!("write a cost of {unit}=N")));
    }
    match limits.too_small_for(&cost) {
        Some(limit) => Err(PlanError::new(
            format!("a request that costs {cost} fits no window of {limit}"),
            "lower the cost, or check the limit",
        )),
        None => Ok(cost),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::text::{cost as cost_of, limits as limits_of},
        *,
    };

    #[test]
    fn a_cost_is_of_the_units_that_the_limits_count() {
        let costs = |limits: &str, cost: &str| {
            costs(&limits_of(limits).unwrap(), cost_of(cost).unwrap()).map_err(|error| error.to_string())
        };
        let tokens = "500/min, 90000 plan-tokens/min";
        assert_eq!(costs(tokens, "plan-tokens=5000"), Ok(cost_of("plan-tokens=5000").unwrap()));
        let slip = costs(tokens, "plan-token=5000").unwrap_err();
        assert_eq!(slip, "the cost says plan-token=5000, but the limits count plan-tokens and requests");
        let unsaid = costs(tokens, "1").unwrap_err();
        assert!(unsaid.contains("how many plan-tokens a request takes"), "{unsaid}");
        assert!(costs("90000 plan-tokens/min", "1").is_ok(), "each counts as one, as it does in andante");
    }
}
