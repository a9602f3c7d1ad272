//! `Retry-After` for requests that wait without success: the time when a similar request would succeed.

use super::*;
use crate::{Draw, Draws};

#[tokio::test(start_paused = true)]
async fn who_gives_up_is_told_when_one_like_it_would_be_let_wait() {
    let world = World::new("1/s");
    world.send().await;
    let mut waiting: Vec<_> = (0..60).map(|_| patient(&world, secs(60))).collect();
    let mut last = waiting.pop().unwrap();
    // 59 requests wait: one more would wait for 60 s, as it may, and behind ten more for 70 s.
    assert_eq!(last.give_up(), Some(Refusal::Late { retry_after: Duration::ZERO }));
    assert_eq!(world.waiting(), 59);
    waiting.extend((0..10).map(|_| patient(&world, secs(300))));
    let Some(Refusal::Late { retry_after }) = waiting.remove(0).give_up() else { panic!("it waits") };
    assert!(retry_after > secs(7) && retry_after <= secs(9), "{retry_after:?}");
    assert_eq!(world.waiting(), 68);
    // A ticket that was given up no longer waits.
    drop(last);
    assert_eq!(world.waiting(), 68);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_another_budget_does_not_put_off_who_is_late() {
    let world = World::new("10/s");
    let first = world.permit().await;
    let mut slow = Policy::new("slow", vec!["*".parse().unwrap()]);
    slow.limits = "1/min".parse::<Limits>().unwrap().limits;
    let draws: Draws = Some([Draw::new(1, slow.into())].into());
    let wait = |patience, draws: &Draws| {
        let deadline = world.clock.now() + patience;
        world.lane.admit(AdmitRequest { deadline, draws: draws.clone(), ..ask(kind()) })
    };
    let _slow: Vec<_> = (0..20).map(|_| wait(secs(3600), &draws)).collect();
    let Admission::Wait(hasty) = wait(secs(5), &None) else { panic!("nothing is free yet") };
    refuse(first, 60);
    let Some(Refusal::TooLong { retry_after, .. }) = told(&world, vec![hasty]).await.remove(0).1 else {
        panic!("it is late")
    };
    // After the pause, one of the others leaves at once.
    assert!(retry_after >= secs(55) && retry_after <= secs(56), "{retry_after:?}");
}
