//! Operators' actions on waiting requests, and on learned limits.

use andante_order::Weight;

use super::*;

/// A request of this client.
fn ask_of(client: u8) -> AdmitRequest {
    let client = ClientId::of([10, 0, 0, client].into());
    AdmitRequest { claim: Claim { client, ..Claim::USUAL }, ..ask(kind()) }
}

fn is_of(client: u8) -> impl Fn(&Claim) -> bool {
    move |claim| claim.client == ClientId::of([10, 0, 0, client].into())
}

/// Queues a request of each client, and returns the order and times (ms) in which they leave; 0 stands for a dropped
/// one.
async fn leave(world: &World, clients: &[u8], steer: impl FnOnce()) -> Vec<(u8, u64)> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients.iter().copied() {
        let Admission::Wait(waiting) = world.lane.admit(ask_of(client)) else { panic!("there is no slot") };
        let (order, clock) = (order.clone(), world.clock);
        tasks.spawn(async move {
            let permit = waiting.await;
            let now = clock.now().since(Instant::START).as_millis() as u64;
            order.lock().push((if permit.is_ok() { client } else { 0 }, now));
            if let Ok(mut permit) = permit {
                permit.sent();
                permit.answered(&AnswerReport::SERVED, Instant::START);
            }
        });
    }
    steer();
    while tasks.join_next().await.is_some() {}
    Arc::into_inner(order).expect("all have left").into_inner()
}

#[tokio::test(start_paused = true)]
async fn dropped_requests_are_told_at_once_and_cost_no_slot() {
    let world = World::new("10/s");
    assert_eq!(world.send().await, ms(0));
    let order = leave(&world, &[1, 2, 1, 2], || {
        assert_eq!(world.lane.drop_waiting(is_of(1)), 2);
        assert_eq!(world.lane.drop_waiting(is_of(1)), 0);
        assert_eq!((world.waiting(), world.lane.metrics().waiting.get()), (2, 2));
    })
    .await;
    assert_eq!(order, [(0, 0), (0, 0), (2, 100), (2, 200)]);
    assert_eq!((world.waiting(), world.lane.metrics().waiting.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_goes_first_and_the_limit_holds() {
    let world = World::new("10/s");
    assert_eq!(world.send().await, ms(0));
    let order = leave(&world, &[1, 1, 1, 2, 3, 3], || {
        assert!(world.lane.let_first(is_of(3)) && !world.lane.let_first(is_of(4)));
    })
    .await;
    // The first of client 3 leaves 100 ms after the sent request; the others share as before.
    assert_eq!(order[0], (3, 100));
    assert_eq!(order.iter().filter(|(client, _)| *client == 3).count(), 2);
    assert_eq!(order.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [100, 200, 300, 400, 500, 600]);
    assert_eq!((world.waiting(), world.lane.metrics().waiting.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_let_first_and_leaves_holds_up_nobody() {
    let world = World::new("10/s");
    assert_eq!(world.send().await, ms(0));
    let Admission::Wait(gone) = world.lane.admit(ask_of(2)) else { panic!("there is no slot") };
    let order = leave(&world, &[1, 1], || {
        // Twice: its place changes each time.
        assert!(world.lane.let_first(is_of(2)) && world.lane.let_first(is_of(2)));
        drop(gone);
        assert_eq!((world.waiting(), world.lane.metrics().waiting.get()), (2, 2), "its place is free at once");
    })
    .await;
    assert_eq!(order, [(1, 100), (1, 200)]);
    assert_eq!((world.waiting(), world.lane.metrics().waiting.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_is_forgotten_and_what_was_sent_counts() {
    let world = World::with("2/h burst 2", |policy| policy.max_wait = Duration::MAX);
    let mut under_way = world.permit().await;
    under_way.sent();
    let mut permit = world.permit().await;
    permit.sent();
    let headers = [(http::header::RETRY_AFTER, "7200".parse().unwrap())].into_iter().collect();
    let arrived = Duration::from_secs(1_790_000_000);
    let hint =
        hint::read(&hint::Answer { status: StatusCode::TOO_MANY_REQUESTS, headers: &headers, body: None, arrived });
    permit.answered(&AnswerReport { hint: &hint, ..AnswerReport::SERVED }, Instant::START);
    drop(permit);
    assert!(world.lane.closed_for() > Duration::from_secs(7000), "it pauses for two hours");
    assert_eq!((world.lane.activity().pauses, world.lane.activity().paused), (1, true));
    world.lane.forget_learned();
    assert_eq!(world.lane.closed_for(), Duration::ZERO);
    // The answer comes nevertheless.
    under_way.answered(&AnswerReport::SERVED, Instant::START);
    drop(under_way);
    assert_eq!(world.lane.snapshot().limits[0].used, 2);
    assert!(world.send().await >= Duration::from_secs(3600), "two an hour");
}

#[tokio::test(start_paused = true)]
async fn other_weights_hold_for_what_waits() {
    let world = World::new("10/s");
    assert_eq!(world.send().await, ms(0));
    let clients: Vec<u8> = (0..60).map(|number| 1 + number % 2).collect();
    let order = leave(&world, &clients, || {
        let three = Weight(3.try_into().unwrap());
        let weigh = |claim: &Claim| if is_of(1)(claim) { Claim { client_weight: three, ..*claim } } else { *claim };
        world.lane.reweigh(weigh);
    })
    .await;
    // Three of four slots, within one cost.
    let first = order[..24].iter().filter(|(client, _)| *client == 1).count();
    assert!((17..=19).contains(&first), "{first} of 24");
}
