//! `in-flight = "auto"` with servers that work on a few requests at once.

use andante_hint::Hint;
use andante_limit::InFlightLimit;
use tokio::{sync::Semaphore, task::JoinSet};

use super::*;
use crate::request::Draw;

/// Sends `asks` together to a server with `workers` that take 100 ms each; one request in a thousand is refused.
/// Returns the time taken, and the mean number of requests waiting in the server at an arrival.
async fn serve(world: &World, workers: usize, asks: Vec<AdmitRequest>) -> (Duration, f64) {
    let (server, begun, count) = (Arc::new(Semaphore::new(workers)), world.clock.now(), asks.len());
    let (inside, waited) = (Arc::new(Mutex::new(0_usize)), Arc::new(Mutex::new(0_usize)));
    let mut tasks = JoinSet::new();
    for ask in asks {
        let (lane, server, inside, waited) = (world.lane.clone(), server.clone(), inside.clone(), waited.clone());
        let admission = lane.admit(ask);
        tasks.spawn(async move {
            let mut permit = permitted(admission).await;
            permit.sent();
            *waited.lock() += inside.lock().saturating_sub(workers);
            *inside.lock() += 1;
            let worker = server.acquire().await.unwrap();
            tokio::time::sleep(ms(fastrand::u64(98..=102))).await;
            drop(worker);
            *inside.lock() -= 1;
            permit.answered(&AnswerReport::SERVED, Instant::START);
        });
    }
    tasks.join_all().await;
    let mean = *waited.lock() as f64 / count as f64;
    (world.clock.now().since(begun), mean)
}

#[tokio::test(start_paused = true)]
async fn the_limit_that_is_found_keeps_an_api_busy_and_its_queue_short() {
    let world = World::new("in-flight auto");
    let watch = watch_for_lost_slots(world.lane.clone());
    let (took, waited) = serve(&world, 16, vec![ask(kind()); 8000]).await;
    watch.abort();
    // The ideal is 50 s, and 0.95 are to be used. The limit settles at 22, and 6.4 of these requests wait
    // (learn::gradient).
    let limit = world.lane.snapshot().in_flight.limit;
    assert!(took <= Duration::from_secs(50).mul_f64(1.0 / 0.95), "{took:?}");
    assert!(waited <= 6.4, "{waited} in the server, at {limit:?}");
    assert!((16..=24).contains(&limit.unwrap()), "{limit:?}");
    assert!(world.lane.snapshot().in_flight.evidence.unwrap().to_string().starts_with("answers take 1"));
}

/// A second client asks once a second. A place stays free for it, except for a moment whenever the limit falls. The limit
/// grows all the same.
#[tokio::test(start_paused = true)]
async fn limit_that_is_found_grows_although_a_place_stays_free_for_another_client() {
    let world = World::new("in-flight auto");
    let (lane, clock) = (world.lane.clone(), world.clock);
    let other = tokio::spawn(async move {
        let claim = Claim { client: ClientId::of([10, 0, 0, 2].into()), ..Claim::USUAL };
        let mut waits = Vec::new();
        while waits.len() < 40 {
            tokio::time::sleep(ms(1000)).await;
            let asked = clock.now();
            let mut permit = permitted(lane.admit(AdmitRequest { claim, ..ask(kind()) })).await;
            waits.push(clock.now().since(asked));
            permit.sent();
            permit.answered(&AnswerReport::SERVED, Instant::START);
        }
        waits
    });
    let (took, _) = serve(&world, 16, vec![ask(kind()); 8000]).await;
    let waits = other.await.unwrap();
    // Without a free place all would wait, 3 ms on average.
    let late = waits.iter().filter(|wait| **wait > ms(1)).count();
    assert!(late * 5 <= waits.len(), "{waits:?}");
    let limit = world.lane.snapshot().in_flight.limit;
    assert!(took <= Duration::from_secs(50).mul_f64(1.0 / 0.95), "{took:?}");
    assert!((16..=25).contains(&limit.unwrap()), "{limit:?}");
}

/// 40 clients take turns at 8 places: each place is used, although some are kept for others.
#[tokio::test(start_paused = true)]
async fn places_that_stay_free_for_others_are_used_by_them() {
    let world = World::new("in-flight 8");
    let of = |number: usize| ClientId::of([10, 0, 0, (number % 40) as u8].into());
    let asks =
        (0..4000).map(|number| AdmitRequest { claim: Claim { client: of(number), ..Claim::USUAL }, ..ask(kind()) });
    let (took, _) = serve(&world, 8, asks.collect()).await;
    assert!(took <= Duration::from_secs(50).mul_f64(1.0 / 0.98), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_a_narrower_rule_finds_its_own() {
    let world = World::new("in-flight 1000");
    let mut sub_limit = Policy::new("search", vec!["*".parse().unwrap()]);
    sub_limit.in_flight = Some(InFlightLimit::Auto);
    let draws: Arc<[Draw]> = [Draw::new(1, sub_limit.into())].into();
    let asks = vec![AdmitRequest { draws: Some(draws), ..ask(kind()) }; 4000];
    let (took, waited) = serve(&world, 4, asks).await;
    assert!(took <= Duration::from_secs(100).mul_f64(1.0 / 0.95), "{took:?}");
    assert!(waited <= 3.1, "{waited}");
    let usage = &world.lane.snapshot().sub_limits[0];
    assert!((4..=8).contains(&usage.in_flight_limit.unwrap()), "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_narrower_rule_has_found_is_kept_for_an_hour() {
    let world = World::new("in-flight 1000");
    let of = |budget, limit: Option<InFlightLimit>| {
        let rule = Policy { in_flight: limit, ..Policy::new("search", vec!["*".parse().unwrap()]) };
        let draws: Arc<[Draw]> = [Draw::new(budget, rule.into())].into();
        AdmitRequest { draws: Some(draws), ..ask(kind()) }
    };
    let (search, others) = (of(1, Some(InFlightLimit::Auto)), of(2, None));
    serve(&world, 16, vec![search.clone(); 2000]).await;
    let found = || world.lane.snapshot().sub_limits.iter().find_map(|usage| usage.in_flight_limit);
    let limit = found();
    assert!(limit.is_some_and(|limit| limit >= 16), "{limit:?}");
    // Each new budget looks for others to forget.
    let look = async |after: u64| {
        tokio::time::advance(Duration::from_secs(after)).await;
        for budget in 0..8 {
            serve(&world, 16, vec![AdmitRequest { draws: of(10 + budget, None).draws, ..others.clone() }]).await;
        }
    };
    look(3000).await;
    assert_eq!(found(), limit);
    look(700).await;
    assert_eq!(found(), None);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_overloaded_gets_less_and_one_request_goes_on() {
    let world = World::with("in-flight auto", |policy| policy.breaker = false);
    serve(&world, 64, vec![ask(kind()); 4000]).await;
    let before = world.lane.snapshot().in_flight.limit.unwrap();
    let hint = Hint { cause: hint::Cause::Overload, unavailable: true, ..Hint::NOTHING };
    for _ in 0..100 {
        let mut permit = world.permit().await;
        permit.sent();
        permit.answered(&AnswerReport { hint: &hint, failed: true, route: None }, Instant::START);
    }
    assert!(before > 64, "{before}");
    assert_eq!(world.lane.snapshot().in_flight.limit, Some(1));
}
