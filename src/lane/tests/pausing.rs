//! Pauses that an operator makes.

use super::*;
use crate::OperatorPause;

fn secs(of: u64) -> Duration {
    Duration::from_secs(of)
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_in_a_pause_until_it_is_resumed() {
    let world = World::new("10/s");
    assert_eq!(world.send().await, ms(0));
    world.lane.pause(None);
    assert_eq!(world.lane.snapshot().held, Some(OperatorPause { remaining: None }));
    let Admission::Wait(waiting) = world.ask() else { panic!("it is paused") };
    tokio::time::advance(secs(3600)).await;
    assert_eq!((world.waiting(), world.lane.snapshot().queue.drain), (1, None));
    assert!(world.lane.resume() && !world.lane.resume());
    let _permit = waiting.await.unwrap();
    assert_eq!(world.clock.now().since(Instant::START), secs(3600));
    assert_eq!(world.lane.snapshot().held, None);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_counted_though_it_is_over() {
    let world = World::new("10/s");
    assert_eq!((world.lane.activity().pauses, world.lane.activity().paused), (0, false));
    world.lane.pause(Some(secs(1)));
    assert!(world.lane.activity().paused);
    tokio::time::advance(secs(2)).await;
    assert_eq!((world.lane.activity().pauses, world.lane.activity().paused), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_pause_with_an_end_ends_by_itself_and_the_limit_holds_after_it() {
    let world = World::new("10/s");
    world.lane.pause(Some(secs(60)));
    assert_eq!(world.lane.snapshot().queue.next_slot, Some(secs(60)));
    let (first, second, third) = tokio::join!(world.send(), world.send(), world.send());
    assert_eq!([first, second, third], [secs(60), secs(60) + ms(100), secs(60) + ms(200)]);
    assert!(!world.lane.resume());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_the_end_of_a_pause_is_refused_at_once() {
    let world = World::with("10/s", |policy| policy.max_wait = secs(30));
    world.lane.pause(Some(secs(40)));
    let Admission::Refuse(Refusal::TooLong { wait, retry_after, .. }) = world.ask() else { panic!("it would wait") };
    assert_eq!((wait, retry_after), (secs(40), secs(10)));
    // The end of this pause is unknown: no request is refused because of it.
    world.lane.pause(None);
    assert!(matches!(world.ask(), Admission::Wait(_)));
}
