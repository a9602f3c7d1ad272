use andante_learn::RouteKey;
use andante_limit::Scope;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn client(number: u16) -> ClientId {
    let [high, low] = number.to_be_bytes();
    ClientId::of([10, 0, high, low].into())
}

fn to(paused: Option<RouteKey>) -> ReturnTo {
    let line = LineKey { scope: Scope::NONE, paused, metered: false };
    ReturnTo { line, urgency: Urgency::USUAL, budgets: SmallVec::new() }
}

/// The `Retry-After` that a client gets at `now`, if it may return at `base` at the earliest and turns are `apart`.
fn told(returns: &mut Returns, now: Instant, of: u16, base: Instant, apart: Duration) -> Duration {
    returns.promise(now, to(None), client(of), false, |ahead| base + apart * ahead as u32).since(now)
}

#[test]
fn each_client_is_told_a_turn_of_its_own_and_keeps_it() {
    let mut returns = Returns::default();
    let base = Instant::START + SECOND * 10;
    for round in 0..9 {
        let now = Instant::START + SECOND * round;
        for of in 0..50 {
            let due = SECOND * 10 + SECOND * u32::from(of) / 10 - SECOND * round;
            assert_eq!(told(&mut returns, now, of, base, SECOND / 10), due, "{of} in round {round}");
        }
    }
    assert_eq!(returns.0.as_ref().unwrap().count, 50);
    // Five of them have been admitted; that makes the last one no later than those before it.
    (0..5).for_each(|of| returns.kept(|| to(None), client(of)));
    let now = Instant::START + SECOND * 10;
    assert_eq!(told(&mut returns, now, 49, base + SECOND / 2, SECOND / 10), SECOND * 49 / 10);
}

#[test]
fn those_that_are_late_are_told_a_turn_each() {
    let mut returns = Returns::default();
    let base = Instant::START + SECOND * 2;
    (0..30).for_each(|of| _ = told(&mut returns, Instant::START, of, base, SECOND / 10));
    // The clients of the first two seconds were not admitted, and all but one ask again. Ten others have turns in the
    // next second.
    let now = base + SECOND * 2 - SECOND / 20;
    for of in 1..20 {
        let turn = u32::from(of - 1) + 10;
        let due = told(&mut returns, now, of, now + SECOND / 20, SECOND / 10);
        assert_eq!(due, SECOND / 20 + SECOND / 10 * turn, "{of}");
    }
}

#[test]
fn a_pause_puts_off_those_that_are_late_in_their_order() {
    let mut returns = Returns::default();
    let (base, opens) = (Instant::START + SECOND * 10, Instant::START + SECOND * 40);
    (0..50).for_each(|of| _ = told(&mut returns, Instant::START, of, base, SECOND / 10));
    // The pause lasts until 40 s. Each client asks when its `Retry-After` ends.
    for of in 0..50 {
        let now = base + SECOND / 10 * u32::from(of);
        let turn = now + told(&mut returns, now, of, opens, SECOND / 10);
        assert_eq!(turn, opens + SECOND / 10 * u32::from(of), "{of}");
    }
}

#[test]
fn one_client_is_not_in_the_way_of_another() {
    let mut returns = Returns::default();
    let (now, base) = (Instant::START, Instant::START + SECOND);
    for place in 0..100 {
        assert_eq!(told(&mut returns, now, 1, base, SECOND), SECOND * (1 + place));
    }
    assert_eq!(told(&mut returns, now, 2, base, SECOND), SECOND * 2, "behind one of the other client");
    let other = returns.promise(now, to(Some(RouteKey::NONE)), client(1), false, |ahead| base + SECOND * ahead as u32);
    assert_eq!(other, base, "what pauses alone is returned to alone");
}

#[test]
fn places_are_kept_for_those_that_are_due_and_not_for_long() {
    let mut returns = Returns::default();
    let base = Instant::START + SECOND;
    (0..20).for_each(|of| _ = told(&mut returns, Instant::START, of, base, SECOND));
    let due = |returns: &mut Returns, seconds: f64, of| {
        let now = Instant::START + SECOND.mul_f64(seconds);
        returns.places_kept(now, Urgency::USUAL, client(of), WaitingRoom::Lane)
    };
    assert_eq!(due(&mut returns, 0.5, 99), 0);
    assert_eq!(due(&mut returns, 1.2, 99), 1);
    assert_eq!(due(&mut returns, 1.2, 0), 0, "it is the one that is due");
    assert_eq!(due(&mut returns, 1.2, 1), 1, "it comes too early");
    assert_eq!(due(&mut returns, 2.2, 99), 2);
    returns.kept(|| to(None), client(0));
    assert_eq!(due(&mut returns, 2.2, 99), 1);
    assert_eq!(due(&mut returns, 5.7, 99), 1, "those at 2 s to 4 s have not come");
}

#[test]
fn nobody_has_more_than_one_place_and_none_that_is_in_the_way_of_what_is_more_urgent() {
    let mut returns = Returns::default();
    let (now, base) = (Instant::START, Instant::START + SECOND);
    // Twenty a second are promised to one client, and one to another.
    let mut promise = |of| returns.promise(now, to(None), client(of), true, |n| base + SECOND.mul_f64(0.05) * n as u32);
    (0..100).for_each(|_| _ = promise(1));
    promise(2);
    let then = base + SECOND;
    assert_eq!(returns.places_kept(then, Urgency::USUAL, client(9), WaitingRoom::Lane), 2);
    assert_eq!(returns.places_kept(then, Urgency::new(0).unwrap(), client(9), WaitingRoom::Lane), 0);
    assert_eq!(returns.places_kept(then, Urgency::new(7).unwrap(), client(9), WaitingRoom::Lane), 2);
}

#[test]
fn those_that_never_come_back_put_nobody_off_by_more_than_five_minutes() {
    let mut returns = Returns::default();
    let minute = Duration::from_secs(60);
    let base = Instant::START + minute;
    let told: Vec<_> = (0..100).map(|of| told(&mut returns, Instant::START, of, base, minute)).collect();
    assert_eq!((told[0], told[4], told[99]), (minute, 5 * minute, 6 * minute));
}

#[test]
fn whoever_does_not_wait_at_all_is_not_told_hours() {
    let mut returns = Returns::default();
    let hour = Duration::from_secs(3600);
    for tenth in 0..100 {
        let now = Instant::START + SECOND * tenth / 10;
        let told = told(&mut returns, now, 1, Instant::START + hour, hour);
        assert_eq!(told, hour - SECOND * tenth / 10);
    }
    // Where turns are closer, requests that come together are taken for several, up to five minutes after the next turn.
    let told: Vec<_> = (0..1000)
        .map(|_| told(&mut returns, Instant::START + SECOND * 9, 2, Instant::START + SECOND * 10, SECOND))
        .collect();
    assert_eq!((told[1].max(told[2]), *told.iter().max().unwrap()), (SECOND * 4, SECOND + FARTHEST));
}

#[test]
fn what_is_over_is_forgotten_and_no_more_is_remembered_than_may_be() {
    let mut returns = Returns::default();
    let base = Instant::START + SECOND;
    for of in 0..10_000 {
        told(&mut returns, Instant::START, of, base, Duration::ZERO);
    }
    assert_eq!(returns.0.as_ref().unwrap().count, MOST);
    let now = base + GRACE;
    assert_eq!(told(&mut returns, now, 1, now + SECOND, SECOND), SECOND);
    assert_eq!(returns.0.as_ref().unwrap().count, 1);
    returns.kept(|| to(None), client(1));
    assert!(returns.0.is_none());
}

#[test]
fn a_client_that_asks_for_many_does_not_use_up_what_is_remembered_of_others() {
    let mut returns = Returns::default();
    let (now, base, apart) = (Instant::START, Instant::START + SECOND, SECOND / 100);
    (0..MOST * 2).for_each(|_| _ = told(&mut returns, now, 1, base, apart));
    assert_eq!(returns.0.as_ref().unwrap().count, MOST / 2);
    // Each behind one of every other client.
    for other in 1..=200 {
        assert_eq!(told(&mut returns, now, 1 + other, base, apart), SECOND + apart * other.into());
    }
}

#[test]
fn what_is_not_remembered_takes_no_memory() {
    let mut returns = Returns::default();
    let (now, base) = (Instant::START, Instant::START + SECOND);
    (0..4096).for_each(|of| _ = told(&mut returns, now, of, base, Duration::ZERO));
    for budget in 0..1000 {
        let to = ReturnTo { budgets: SmallVec::from_slice(&[budget]), ..to(None) };
        assert_eq!(returns.promise(now, to, client(1), false, |_| base), base);
    }
    assert_eq!(returns.0.as_ref().unwrap().to.len(), 1);
}
