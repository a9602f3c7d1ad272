use super::*;

fn ms(of: u64) -> Instant {
    Instant::START + Duration::from_millis(of)
}

fn given(target: f64) -> PoolGrant {
    PoolGrant { target, limit: PARTS, ..PoolGrant::default() }
}

fn reported(rate: f64) -> Option<ReportedLimits> {
    Some(ReportedLimits { rate: Some(rate), word: Box::default() })
}

/// The portion of one of two members, begun at 1 s, of an API that allows 10 a second.
fn begun() -> Portion {
    let mut portion = Portion::default();
    portion.count(2);
    portion.take(ms(1000), false, true);
    assert!(portion.calls() && !portion.calls());
    portion
}

fn demands(portion: &mut Portion, at: u64, waits: bool) -> Option<u32> {
    let said = portion.speak(ms(at), "api", reported(10.0), waits, false);
    said.iter().find(|entry| entry.ends.is_none()).map(|entry| entry.demand)
}

/// The pools of the next call, each with whether it is given up.
fn pools(portion: &mut Portion, at: u64, name: &str) -> Vec<(String, bool)> {
    let said = portion.speak(ms(at), name, reported(10.0), false, false);
    said.iter().map(|entry| (entry.pool.replace(SUFFIX, ""), entry.ends.is_some())).collect()
}

fn pool(name: &str, ends: bool) -> (String, bool) {
    (name.to_owned(), ends)
}

#[test]
fn a_smaller_part_holds_at_once_and_a_larger_one_when_others_have_heard() {
    let mut portion = begun();
    assert_eq!(portion.part(), 0.5, "as many may have begun as there are");
    assert_eq!(demands(&mut portion, 1000, true), Some(PARTS));
    portion.heard(ms(1002), &given(10_000.0));
    assert_eq!(portion.part(), 0.5, "the others may use theirs yet");
    assert_eq!(demands(&mut portion, 2100, true), Some(PARTS));
    portion.heard(ms(2102), &given(2500.0));
    assert_eq!(portion.part(), 0.25);
    assert_eq!(demands(&mut portion, 3200, true), Some(PARTS));
    portion.heard(ms(3202), &given(5000.0));
    portion.take(ms(4701), true, true);
    assert_eq!(portion.part(), 0.25);
    portion.take(ms(4702), true, true);
    assert_eq!(portion.part(), 0.5);
}

#[test]
fn as_long_as_nobody_knows_how_many_there_are_all_of_it_is_used_until_the_store_says() {
    let mut portion = Portion::default();
    portion.take(ms(1000), false, true);
    assert_eq!((portion.part(), demands(&mut portion, 1000, false)), (1.0, Some(PARTS)));
    portion.heard(ms(1002), &given(2500.0));
    assert_eq!(portion.part(), 0.25);
}

/// A part of 0.75 is known 1.1 s after one of 0.6: by 1.5 s after the first, the others have heard of at most 0.6.
#[test]
fn what_is_more_than_was_said_before_waits_anew() {
    let mut portion = begun();
    assert_eq!(demands(&mut portion, 1000, true), Some(PARTS));
    portion.heard(ms(1000), &given(6000.0));
    assert_eq!(demands(&mut portion, 2100, true), Some(PARTS));
    portion.heard(ms(2100), &given(7500.0));
    let mut parts = [2499, 2500, 3599, 3600].map(|at| {
        portion.take(ms(at), true, true);
        portion.part()
    });
    assert_eq!(parts, [0.5, 0.6, 0.6, 0.75]);
    // A later part that is smaller than a pending one replaces it.
    assert_eq!(demands(&mut portion, 3600, true), Some(PARTS));
    portion.heard(ms(3600), &given(9000.0));
    assert_eq!(demands(&mut portion, 4710, true), Some(PARTS));
    portion.heard(ms(4710), &given(8000.0));
    parts = [4710, 5099, 5100, 9000].map(|at| {
        portion.take(ms(at), true, true);
        portion.part()
    });
    assert_eq!(parts, [0.75, 0.75, 0.8, 0.8]);
}

#[test]
fn who_is_not_held_up_wants_what_it_uses_and_a_quarter_more() {
    let mut portion = begun();
    assert_eq!(demands(&mut portion, 1000, false), Some(5000), "an equal part, as long as nothing is known");
    portion.heard(ms(1002), &given(5000.0));
    (0..5).for_each(|at| portion.take(ms(1100 + at * 200), false, true));
    // Six of ten in a second, plus a quarter of that.
    assert_eq!(demands(&mut portion, 2000, false), Some(7500));
    assert_eq!(demands(&mut portion, 2000, false), None, "a call is under way");
    portion.heard(ms(2002), &given(7500.0));
    portion.take(ms(2500), false, true);
    assert_eq!(demands(&mut portion, 3000, false), Some(7500), "the second before counts as well");
    portion.heard(ms(3002), &given(7500.0));
    assert_eq!(demands(&mut portion, 4000, false), Some(2500), "half of an equal part is kept");
}

/// 1000/day is one in 86.4 s: one request counts as an eighth of ten slots, not as the whole quota.
#[test]
fn a_single_request_of_a_slow_limit_is_no_rate() {
    let mut portion = Portion::default();
    portion.count(5);
    portion.take(ms(1000), false, true);
    let mut demand = |at| {
        let said = portion.speak(ms(at), "api", reported(1000.0 / 86_400.0), false, false);
        portion.heard(ms(at), &given(10_000.0));
        said.iter().find(|entry| entry.ends.is_none()).map(|entry| entry.demand)
    };
    // An equal part is 2,000 while nothing is known, and half of that is retained.
    assert_eq!([1000, 2000, 3000].map(&mut demand), [Some(2000); 3]);
    assert_eq!(demand(11_000), Some(2000));
    assert_eq!(demand(12_000), None, "nobody has asked for ten seconds");
}

/// 30/min: one each 5 s is 0.4 of the rate, plus a quarter is 0.5; four or five are counted in 20 s.
#[test]
fn what_is_used_of_a_slow_limit_is_measured_over_ten_of_its_slots() {
    let mut portion = Portion::default();
    portion.count(2);
    for at in 0..9 {
        portion.take(ms(1000 + at * 5000), false, true);
        let said = portion.speak(ms(1001 + at * 5000), "api", reported(0.5), false, false);
        portion.heard(ms(1002 + at * 5000), &given(5000.0));
        assert!((5000..=6250).contains(&said[0].demand), "{} after {at}", said[0].demand);
    }
}

/// A member reports all portions at multiples of 1.25 s.
#[test]
fn what_began_at_two_instants_is_spoken_of_in_one_call() {
    let [early, late] = [1010, 1990].map(|begun| {
        let mut portion = Portion::default();
        portion.take(ms(begun), false, true);
        demands(&mut portion, begun, true);
        portion.heard(ms(begun + 2), &given(5000.0));
        demands(&mut portion, 2500, true);
        portion.heard(ms(2502), &given(5000.0));
        portion.next_look(ms(2600))
    });
    assert_eq!((early, late), (ms(3750), ms(3750)));
}

/// The store was not joined when the portion began, and the API's numbers were not trusted when it was.
#[test]
fn what_is_reported_again_is_spoken_of() {
    let mut portion = begun();
    assert!(portion.speak(ms(60_000), "api", None, true, false).is_empty());
    portion.take(ms(60_100), true, false);
    assert!(!portion.calls());
    portion.take(ms(120_000), true, true);
    assert!(portion.calls());
    assert_eq!(demands(&mut portion, 120_001, true), Some(PARTS));
}

#[test]
fn who_waits_or_was_refused_wants_everything_although_nothing_has_left() {
    let mut portion = Portion::default();
    portion.count(4);
    portion.lack(ms(1000), false, true);
    assert_eq!((portion.calls(), portion.part()), (true, 0.25), "it is begun by one that waits");
    assert_eq!(demands(&mut portion, 1000, true), Some(PARTS));
    portion.heard(ms(1002), &given(1.0));
    assert_eq!(portion.part(), 0.125, "a part is half of an equal one at least");
    // Requests may wait for longer than the idle time: their part is retained.
    assert_eq!(demands(&mut portion, 13_000, true), Some(PARTS));
    portion.heard(ms(13_002), &given(2500.0));
    assert_eq!(demands(&mut portion, 14_100, false), None);
    portion.heard_end("api\nreported");
    assert_eq!(portion.part(), 0.25, "whatever it was, it begins with an equal one");
    portion.lack(ms(20_000), true, true);
    assert!(portion.calls());
    assert_eq!(demands(&mut portion, 20_500, false), Some(PARTS), "a request was refused");
}

#[test]
fn without_a_reply_the_part_stays_and_what_is_not_used_is_given_up() {
    let mut portion = begun();
    assert_eq!(demands(&mut portion, 1000, true), Some(PARTS));
    portion.unheard();
    assert_eq!((portion.part(), demands(&mut portion, 2000, true)), (0.5, Some(PARTS)));
    portion.heard(ms(2002), &given(0.0));
    assert_eq!(portion.part(), 0.5, "a store that has forgotten says nothing for a while");
    assert_eq!(pools(&mut portion, 11_001, "api"), [pool("api", true)]);
    // The end is reported until the store has replied.
    portion.unheard();
    assert!(portion.is_known());
    assert_eq!(pools(&mut portion, 11_500, "api"), [pool("api", true)]);
    portion.heard_end("api\nreported");
    assert!(!portion.is_known());
    assert_eq!(pools(&mut portion, 12_000, "api"), []);
    portion.count(4);
    portion.take(ms(20_000), false, true);
    assert_eq!((portion.calls(), portion.part()), (true, 0.25));
}

#[test]
fn what_is_used_again_before_its_end_was_heard_has_not_ended() {
    let mut portion = begun();
    assert_eq!(pools(&mut portion, 1000, "api"), [pool("api", false)]);
    portion.heard(ms(1002), &given(5000.0));
    assert_eq!(pools(&mut portion, 12_000, "api"), [pool("api", true)]);
    portion.take(ms(12_100), false, true);
    assert_eq!(pools(&mut portion, 12_500, "api"), [pool("api", false)]);
}

/// A reload merges two lanes: the store is told that the removed lane's pool is given up.
#[test]
fn who_goes_on_for_another_says_that_its_pool_is_given_up() {
    let (mut heir, mut gone) = (begun(), begun());
    assert_eq!(pools(&mut gone, 1000, "gone"), [pool("gone", false)]);
    assert_eq!(pools(&mut heir, 1000, "heir"), [pool("heir", false)]);
    heir.heard(ms(1002), &given(5000.0));
    heir.inherited(&gone.bequeathed());
    assert!(heir.calls());
    assert_eq!(pools(&mut heir, 1010, "heir"), [pool("gone", true)]);
    heir.heard_end("gone\nreported");
    assert_eq!(pools(&mut heir, 1020, "heir"), []);
    assert!(!gone.is_known() && gone.bequeathed().is_empty());
}

#[test]
fn another_name_is_another_pool_and_a_lost_member_asks_anew() {
    let mut portion = begun();
    assert_eq!(demands(&mut portion, 1000, true), Some(PARTS));
    portion.heard(ms(1002), &given(5000.0));
    assert_eq!(pools(&mut portion, 1100, "other"), [pool("other", false), pool("api", true)]);
    portion.unheard();
    assert_eq!(pools(&mut portion, 1200, "other"), [pool("other", false), pool("api", true)], "nobody has replied");
    portion.lost();
    assert!(portion.calls() && !portion.is_known());
    assert_eq!(pools(&mut portion, 1300, "other"), [pool("other", false)]);
}

/// A joining member does not know the window's length yet: the others have to leave its part to it, and to inform it.
#[test]
fn what_is_not_known_yet_is_spoken_of_as_well() {
    let says = |waits, word: &str| {
        let (mut portion, reported) = (begun(), Some(ReportedLimits { rate: None, word: word.into() }));
        let said = portion.speak(ms(1000), "api", reported, waits, false);
        said.into_iter().map(|entry| (entry.demand, entry.word)).collect::<Vec<_>>()
    };
    assert_eq!(says(true, "a word"), [(PARTS, "a word".into())]);
    assert_eq!(says(false, ""), [(PARTS / 2, "".into())], "an equal part");
}
