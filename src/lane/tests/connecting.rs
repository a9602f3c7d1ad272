//! Permits of requests for which a connection is made.

use super::*;

fn waits(world: &World) -> bool {
    matches!(world.lane.admit(ask(kind())), Admission::Wait(_))
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_dropped_while_connecting_is_spent() {
    let world = World::with("2/h burst 2", |_| {});
    for _ in 0..2 {
        let mut permit = world.permit().await;
        permit.connecting();
        drop(permit);
    }
    assert!(waits(&world));
    assert_eq!(world.lane.snapshot().limits[0].used, 2);
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_connection_failed_goes_back() {
    let world = World::with("1/h", |_| {});
    let mut permit = world.permit().await;
    permit.connecting();
    permit.not_connected();
    drop(permit);
    assert!(!waits(&world));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_on_its_new_connection_takes_one_slot() {
    let world = World::with("2/h burst 2", |_| {});
    let mut permit = world.permit().await;
    permit.connecting();
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    drop(permit);
    assert_eq!(world.lane.snapshot().limits[0].used, 1);
}
