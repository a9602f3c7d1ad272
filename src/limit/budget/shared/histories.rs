//! Random histories of a fleet in virtual time, with every fault on the way to the store and in it. No window ever has
//! more units than there are tokens, as the API counts. Tests also detect rules that are left out.

mod world;

use self::world::{Fault, World, Wrong};

/// Number of histories of each kind; HISTORIES overrides it.
fn histories(usual: u64) -> u64 {
    number("HISTORIES").unwrap_or(usual)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_window_has_more_than_there_are_tokens() {
    let (first, count) = (number("FIRST").unwrap_or(0), histories(1000));
    for seed in first..first + count {
        if let Some(story) = World::random(seed, &Fault::ALL, None).run() {
            panic!("seed {seed}:\n{story}");
        }
    }
}

/// Unused reservations are free for others at once, and so are units that were never sent.
#[test]
fn no_window_has_more_where_answers_say_what_requests_used() {
    let (first, count) = (number("FIRST").unwrap_or(0), histories(1000));
    for seed in first..first + count {
        if let Some(story) = World::random(seed, &Fault::ALL, None).metered().run() {
            panic!("seed {seed}:\n{story}");
        }
    }
}

#[test]
fn a_pause_that_was_told_is_kept_whatever_goes_wrong() {
    let (first, count) = (number("FIRST").unwrap_or(0), histories(1000));
    for seed in first..first + count {
        if let Some(story) = World::random(seed, &Fault::ALL_AND_PAUSES, None).run() {
            panic!("seed {seed}:\n{story}");
        }
    }
    for wrong in Wrong::OF_PAUSES {
        // The rarest violation shows a few times in 10,000: one is enough.
        let mut seeds = 0..histories(10_000);
        // A replaced store has lost its state, and then no member has to be told.
        let faults = &Fault::ALL_AND_PAUSES[1..];
        let found = seeds.find(|seed| World::random(*seed, faults, Some(wrong)).saturated().run().is_some());
        assert!(found.is_some(), "{wrong:?} breaks nothing");
    }
}

/// Responses last for any time, but at a member that is cut off or killed no longer than the hold.
#[test]
fn no_more_are_under_way_than_there_are_tokens() {
    let (first, count) = (number("FIRST").unwrap_or(0), histories(200));
    for seed in first..first + count {
        if let Some(story) = World::random(seed, &Fault::ALL, None).with_in_flight().run() {
            panic!("seed {seed}:\n{story}");
        }
    }
    for wrong in Wrong::OF_IN_FLIGHT {
        let mut seeds = 0..histories(1000);
        let found = seeds.find(|seed| {
            World::random(*seed, &Fault::ALL[1..], Some(wrong)).with_in_flight().saturated().run().is_some()
        });
        assert!(found.is_some(), "{wrong:?} breaks nothing");
    }
}

#[test]
fn as_many_are_under_way_as_may_be_when_nothing_goes_wrong() {
    for seed in 0..20 {
        let mut world = World::random(seed, &[], None).with_in_flight().saturated();
        assert_eq!(world.run(), None);
        let ((used, least), busy) = (world.used(), world.busy());
        // One of the two limits is the bottleneck. Each may be for a part of the time, if responses last as long as a
        // member's tokens take to come free.
        let used_part = used / world.most();
        let full = busy > 0.7 || used_part > 0.7 || busy + used_part > 1.1;
        assert!(full && least > 0, "seed {seed}: {busy} of what may be, {used} of {}: {world:?}", world.most());
    }
}

/// Every member knows a pause after four round trips to the store, even with calls in flight. The pause ends for all as
/// for the member that was asked.
#[test]
fn a_pause_is_known_to_all_after_a_few_round_trips() {
    for seed in 0..200 {
        let mut world = World::random(seed, &[Fault::Refused], None).saturated();
        if let Some(story) = world.run() {
            panic!("seed {seed}:\n{story}");
        }
    }
}

/// A single history that breaks the promise is enough. With HISTORIES, all of its histories are counted.
#[test]
fn a_rule_that_is_left_out_is_found_out() {
    // The rarest violation shows a few times in 10,000.
    let count = histories(10_000);
    let counted = number("HISTORIES").is_some();
    for wrong in Wrong::ALL {
        // Where the store is replaced, members are silent more often, and other violations show more rarely.
        let faults = if wrong == Wrong::NoSplit { &Fault::ALL[..] } else { &Fault::ALL[1..] };
        let mut broken = (0..count).filter(|seed| World::random(*seed, faults, Some(wrong)).run().is_some()).peekable();
        let first = broken.peek().copied();
        assert!(first.is_some(), "{wrong:?} breaks nothing");
        if counted {
            println!("{wrong:?}: {} of {count}, the first is {first:?}", broken.count());
        }
    }
}

/// The store does not know what was lent meanwhile.
#[test]
fn a_store_that_counts_again_and_goes_on_with_what_it_knew_is_found_out() {
    let faults = [Fault::Failover, Fault::Crash, Fault::Cut];
    let broken = |wrong, count| (0..count).filter(move |seed| World::random(*seed, &faults, wrong).run().is_some());
    assert_eq!(broken(None, histories(1000)).next(), None);
    // The violation shows in twelve of 10,000: one is enough.
    let (count, mut wrong) = (histories(10_000), broken(Some(Wrong::KeepsItsName), histories(10_000)).peekable());
    assert!(wrong.peek().is_some(), "it breaks nothing");
    if number("HISTORIES").is_some() {
        println!("KeepsItsName: {} of {count}", wrong.count());
    }
}

#[test]
fn all_is_used_and_everybody_has_a_part_when_nothing_goes_wrong() {
    for seed in 0..20 {
        let mut world = World::random(seed, &[], None).saturated();
        assert_eq!(world.run(), None);
        let (used, least) = world.used();
        // Each window loses the margin and the way.
        assert!(used > 0.85 * world.most(), "seed {seed}: {used} of {}: {world:?}", world.most());
        assert!(least > 0, "seed {seed}: somebody has nothing: {world:?}");
    }
}

/// A request that exceeds a member's equal part still gets through, as if one member sent everything.
#[test]
fn requests_that_cost_much_get_through_whoever_sends_them() {
    for (limit, members, costs) in [
        ("20/s", 2, &[11][..]),
        ("20/s", 3, &[11]),
        ("20/s", 2, &[20]),
        ("20/s", 2, &[6, 1]),
        ("20/s", 4, &[6, 1]),
        ("60/s", 4, &[20]),
        ("60/s", 3, &[1, 1, 1, 25]),
        ("300/s", 2, &[73]),
        ("300/s", 2, &[1, 63, 12, 13]),
    ] {
        let used = |members| {
            let mut world = World::costly(members, limit, costs);
            assert_eq!(world.run(), None);
            let (used, least) = world.used();
            assert!(least as f64 > 0.5 * used / members as f64, "somebody has little of {costs:?}: {world:?}");
            used
        };
        let (alone, together) = (used(1), used(members));
        assert!(together >= 0.9 * alone, "{limit}, {members} members, {costs:?}: {together} of {alone}");
    }
}
