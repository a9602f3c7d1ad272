//! Limits that a store does not share: each andante of a fleet gets its part of them.

use std::num::NonZeroU32;

use super::RawRule;
use crate::{
    config::diagnostic::Diagnostic,
    fleet::{Floor, StoreDown},
    limit::{InFlightLimit, lesser},
};

/// Divides unshared limits among `size` andantes. Without a size such a limit is an error: the fleet would send a
/// multiple of it.
pub(in crate::config) fn divide(drafts: &mut [RawRule], size: Option<NonZeroU32>, problems: &mut Vec<Diagnostic>) {
    for draft in drafts {
        let unshared = unshared(draft);
        let Some(first) = unshared.first() else { continue };
        let Some(size) = size else {
            problems.push(Diagnostic::error(
                &draft.named,
                format!("a store does not share {first}, so that each andante would use all of it"),
                "write fleet-size = N into the configuration file, for a fleet of N: each then uses 1/N of it",
            ));
            continue;
        };
        if !divided(draft, size) {
            problems.push(Diagnostic::error(
                &draft.named,
                format!("a store does not share {first}, and it cannot be divided among {size}"),
                "run fewer andantes, or one alone for this host",
            ));
        }
    }
}

/// Warns about limits with a floor below 1: they let nothing through while the store is down.
pub(in crate::config) fn floors(drafts: &[RawRule], down: StoreDown, problems: &mut Vec<Diagnostic>) {
    let StoreDown::Floor(floor) = down else { return };
    for draft in drafts {
        let policy = &draft.policy;
        let windows = policy.limits.iter().filter(|limit| policy.shares(limit));
        let windows = windows.map(|limit| (limit.rate.count, limit.to_string()));
        let shared = windows.chain(policy.shared_in_flight().map(|count| (count, format!("in-flight {count}"))));
        for (_, limit) in shared.filter(|(count, _)| floor.of(count.get()) == 0) {
            let Floor { percent, members } = floor;
            problems.push(Diagnostic::warning(
                &draft.named,
                format!("{percent}% of {limit} is less than 1 for each of {members}: without the store it waits"),
                "write a larger floor, or a limit with a larger count",
            ));
        }
    }
}

/// The limits of a rule that a store does not share, in their notation.
fn unshared(draft: &RawRule) -> Vec<String> {
    let policy = &draft.policy;
    let limits = policy.limits.iter().filter(|limit| !draft.policy.shares(limit)).map(ToString::to_string);
    let calendar = policy.calendar.iter().map(ToString::to_string);
    let in_flight = policy.in_flight.and_then(InFlightLimit::fixed).filter(|_| policy.shared_in_flight().is_none());
    let in_flight = in_flight.map(|count| format!("in-flight {count}"));
    let reserve = policy.turns.reserve.map(|reserve| format!("reserve {reserve}"));
    limits.chain(calendar).chain(in_flight).chain(reserve).collect()
}

/// Shrinks each unshared limit to one andante's part. Returns `false` if a part would be nothing.
fn divided(draft: &mut RawRule, size: NonZeroU32) -> bool {
    let part = |count: NonZeroU32| NonZeroU32::new(count.get() / size);
    let own: Vec<bool> = draft.policy.limits.iter().map(|limit| !draft.policy.shares(limit)).collect();
    let mut whole = true;
    let mut shrink = |count: &mut NonZeroU32| match part(*count) {
        Some(part) => *count = part,
        None => whole = false,
    };
    for (limit, _) in draft.policy.limits.iter_mut().zip(own).filter(|(_, own)| *own) {
        shrink(&mut limit.rate.count);
        limit.burst = limit.burst.map(|burst| lesser(part(burst).unwrap_or(NonZeroU32::MIN), limit.rate.count));
    }
    draft.policy.calendar.iter_mut().for_each(|limit| shrink(&mut limit.count));
    if draft.policy.shared_in_flight().is_none()
        && let Some(InFlightLimit::Fixed(count)) = &mut draft.policy.in_flight
    {
        shrink(count);
    }
    let reserve = draft.policy.turns.reserve.map(|reserve| reserve.among(size));
    draft.policy.turns.reserve = reserve;
    let mut shared = draft.policy.limits.iter().filter(|limit| draft.policy.shares(limit));
    whole && reserve.is_none_or(|reserve| shared.all(|limit| reserve.part(limit.rate.count).is_some()))
}
