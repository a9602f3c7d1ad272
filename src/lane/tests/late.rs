//! Waiting requests when a pause begins or the process ends.

mod coming_back;

use andante_order::{FlowId, Levels, Urgency};
use http::{HeaderMap, HeaderName};

use super::{sub_limits::refuse, *};
use crate::Waiting;

fn secs(of: u64) -> Duration {
    Duration::from_secs(of)
}

/// A request that may wait for `patience`.
fn patient(world: &World, patience: Duration) -> Waiting {
    patient_of(world, patience, Claim::USUAL)
}

/// A request of `claim` that may wait for `patience`.
fn patient_of(world: &World, patience: Duration, claim: Claim) -> Waiting {
    let asks = AdmitRequest { deadline: world.clock.now() + patience, claim, ..ask(kind()) };
    match world.lane.admit(asks) {
        Admission::Wait(waiting) => waiting,
        other => panic!("it waits: {other:?}"),
    }
}

/// The outcome of each waiting request, and the time until then: `None` if it got a slot.
async fn told(world: &World, waiting: Vec<Waiting>) -> Vec<(Duration, Option<Refusal>)> {
    let mut tasks = tokio::task::JoinSet::new();
    for (number, waiting) in waiting.into_iter().enumerate() {
        let clock = world.clock;
        tasks.spawn(async move {
            let said = match waiting.await {
                Ok(mut permit) => {
                    permit.sent();
                    permit.answered(&AnswerReport::SERVED, Instant::START);
                    None
                }
                Err(refusal) => Some(refusal),
            };
            (number, clock.now().since(Instant::START), said)
        });
    }
    let mut told = tasks.join_all().await;
    told.sort_unstable_by_key(|(number, ..)| *number);
    told.into_iter().map(|(_, at, said)| (at, said)).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_wait_for_the_end_of_a_pause_is_told_when_it_begins() {
    let world = World::new("10/s");
    let first = world.permit().await;
    let hasty: Vec<_> = (0..5).map(|_| patient(&world, secs(5))).collect();
    let patient: Vec<_> = (0..5).map(|_| patient(&world, secs(120))).collect();
    refuse(first, 60);
    for (at, said) in told(&world, hasty).await {
        let Some(Refusal::TooLong { wait, patience, retry_after, .. }) = said else { panic!("{said:?}") };
        assert!(at <= ms(10), "{at:?}");
        // A request that may wait for 5 s may ask again 5 s before the end of the 60 s.
        assert!(wait >= secs(60) && patience == secs(5), "{wait:?} {patience:?}");
        assert!(retry_after >= secs(55) && retry_after <= secs(57), "{retry_after:?}");
    }
    let told = told(&world, patient).await;
    assert!(told.iter().all(|(at, said)| said.is_none() && *at >= secs(60) && *at < secs(120)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_pause_soon_after_the_first_is_told_as_well() {
    let world = World::with("10/s burst 10", |_| {});
    let (first, second) = (world.permit().await, world.permit().await);
    let _used: Vec<_> = std::iter::from_fn(|| match world.ask() {
        Admission::Send(permit) => Some(permit),
        _ => None,
    })
    .collect();
    let waiting: Vec<_> = (0..5).map(|_| patient(&world, secs(30))).collect();
    refuse(first, 2);
    tokio::time::advance(ms(100)).await;
    refuse(second, 60);
    let told = told(&world, waiting).await;
    assert!(told.iter().all(|(at, said)| said.is_some() && *at <= ms(1200)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_an_end_and_one_that_is_short_send_nobody_away() {
    let world = World::new("10/s");
    let first = world.permit().await;
    let waiting: Vec<_> = (0..5).map(|_| patient(&world, secs(5))).collect();
    refuse(first, 3);
    world.lane.pause(None);
    tokio::time::advance(secs(1)).await;
    assert!(world.lane.resume());
    let told = told(&world, waiting).await;
    assert!(told.iter().all(|(at, said)| said.is_none() && *at <= secs(5)), "{told:?}");
}

/// Without a configured rate, the requests served before the first pause are weak evidence of it.
#[tokio::test(start_paused = true)]
async fn nobody_is_late_by_a_rate_that_is_a_guess() {
    let world = World::new("in-flight 20");
    let mut under_way = Vec::new();
    for _ in 0..20 {
        under_way.push(world.permit().await);
    }
    let waiting: Vec<_> = (0..400).map(|_| patient(&world, secs(30))).collect();
    let last = under_way.pop().unwrap();
    for mut permit in under_way {
        tokio::time::advance(ms(25)).await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
    }
    refuse(last, 10);
    let told = told(&world, waiting).await;
    let refused = told.iter().filter(|(at, said)| said.is_some() && *at < secs(12)).count();
    assert_eq!(refused, 0, "of {}", told.len());
}

/// Answers that the request was served, and that nothing is left of 100 until `reset` seconds are over.
fn use_up(mut permit: Permit, reset: u32) {
    permit.sent();
    let fields = [("x-ratelimit-limit", 100), ("x-ratelimit-remaining", 0), ("x-ratelimit-reset", reset)];
    let headers: HeaderMap =
        fields.into_iter().map(|(name, value)| (HeaderName::from_static(name), value.into())).collect();
    let answer = hint::Answer { status: StatusCode::OK, headers: &headers, body: None, arrived: Duration::ZERO };
    permit.answered(&AnswerReport { hint: &hint::read(&answer), failed: false, route: None }, Instant::START);
}

fn retry_after((at, said): (Duration, Option<Refusal>)) -> Duration {
    assert!(at <= ms(10), "told at once: {at:?}");
    said.expect("it is refused").retry_after()
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_wait_for_the_reset_is_told_when_nothing_is_left() {
    let world = World::new("10/s");
    let first = world.permit().await;
    let hasty: Vec<_> = (0..5).map(|_| patient(&world, secs(5))).collect();
    let patient: Vec<_> = (0..5).map(|_| patient(&world, secs(120))).collect();
    use_up(first, 60);
    for told in told(&world, hasty).await {
        let retry_after = retry_after(told);
        // 60 s in whole seconds are up to 61, and 5 s before that it may ask again; a second for ten at 10/s.
        assert!(retry_after >= secs(55) && retry_after <= ms(57_100), "{retry_after:?}");
    }
    let told = told(&world, patient).await;
    assert!(told.iter().all(|(at, said)| said.is_none() && *at >= secs(60) && *at < secs(120)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn those_that_are_refused_together_come_back_one_by_one_and_are_served_in_time() {
    let world = Arc::new(World::new("10/s"));
    let first = world.permit().await;
    let stay: Vec<_> = (0..10).map(|_| patient(&world, secs(3600))).collect();
    // The number that would be served in the 25 s that they may wait.
    let hasty: Vec<_> = (0..200).map(|_| patient(&world, secs(25))).collect();
    refuse(first, 60);
    let times: Vec<_> = told(&world, hasty).await.into_iter().map(retry_after).collect();
    for (place, time) in times.iter().enumerate() {
        // 60 s of pause, ten that stay, and the requests before it, at 10/s; it may ask 25 s before that.
        let turn = ms(60_000 + 1_000 + 100 * place as u64 - 25_000);
        assert!(time.abs_diff(turn) <= ms(300), "{place}: {time:?} for {turn:?}");
    }
    let mut again = tokio::task::JoinSet::new();
    let other = world.clone();
    again.spawn(async move { told(&other, stay).await });
    for time in times {
        let world = world.clone();
        again.spawn(async move {
            // As in the field: in whole seconds.
            tokio::time::sleep(Duration::from_secs(time.as_secs_f64().ceil() as u64)).await;
            told(&world, vec![patient(&world, secs(25))]).await
        });
    }
    for (_, said) in again.join_all().await.into_iter().flatten() {
        assert!(said.is_none(), "{said:?}");
    }
}

/// Shopify's GraphQL API: a query of 50 points, 30 left of 2,000, 100 more each second (its page on rate limits). The
/// next one leaves after 0.2 s and each further one half a second later; the bucket is full again only after 19.7 s.
#[tokio::test(start_paused = true)]
async fn a_budget_that_refills_sends_nobody_away_who_will_be_served() {
    let world = World::new("10/s");
    let mut first = world.permit().await;
    let waiting: Vec<_> = (0..5).map(|_| patient(&world, secs(5))).collect();
    first.sent();
    let body = br#"{"data":{},"extensions":{"cost":{"requestedQueryCost":50,"actualQueryCost":50,"throttleStatus":
        {"maximumAvailable":2000.0,"currentlyAvailable":30,"restoreRate":100.0}}}}"#;
    let headers =
        HeaderMap::from_iter([(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"))]);
    let answer = hint::Answer { status: StatusCode::OK, headers: &headers, body: Some(body), arrived: Duration::ZERO };
    let hint = hint::read(&answer);
    assert!(!hint.buckets.is_empty(), "the answer tells what is left: {hint:?}");
    first.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
    let told = told(&world, waiting).await;
    assert!(told.iter().all(|(at, said)| said.is_none() && *at <= secs(5)), "{told:?}");
}

/// More urgent requests that give up before their turn delay no others, nor do the turns of lower urgencies meanwhile.
#[tokio::test(start_paused = true)]
async fn whoever_is_in_time_once_more_urgent_ones_have_given_up_is_not_sent_away() {
    let client = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Claim { client: ClientId::of([10, 0, high, low].into()), urgency: Urgency::MOST, ..Claim::USUAL }
    };
    // 400 requests of one client, and one each of 550 clients, whose order becomes known only gradually.
    for (urgent, clients) in [(400, 1), (550, 550)] {
        let world = World::new("10/s");
        let first = world.permit().await;
        let usual: Vec<_> = (0..700).map(|_| patient(&world, secs(120))).collect();
        let urgent: Vec<_> = (0..urgent).map(|number| patient_of(&world, secs(60), client(number % clients))).collect();
        refuse(first, 30);
        let gives_up = tokio::time::timeout(secs(60), told(&world, urgent));
        let told = tokio::join!(gives_up, told(&world, usual)).1;
        // Expected: one of 21 of the 300 slots until the urgent requests give up, and the 600 after that.
        let in_time = told.iter().filter(|(at, said)| said.is_none() && *at <= secs(120)).count();
        assert!((610..=616).contains(&in_time), "{in_time} behind {clients}");
    }
}

/// A client's waiting requests that will be refused delay no others, including the client's own.
#[tokio::test(start_paused = true)]
async fn whoever_will_be_served_is_not_sent_away_for_those_that_are() {
    let world = World::new("50/s");
    let first = world.permit().await;
    let [one, other] = [1, 2].map(|host| Claim { client: ClientId::of([10, 0, 0, host].into()), ..Claim::USUAL });
    let hasty: Vec<_> = (0..490).map(|_| patient_of(&world, secs(10), one)).collect();
    let mut patient: Vec<_> = (0..20).map(|_| patient_of(&world, secs(61), one)).collect();
    patient.extend((0..400).map(|_| patient_of(&world, secs(120), other)));
    refuse(first, 60);
    let both = tokio::join!(told(&world, hasty), told(&world, patient));
    assert!(both.0.iter().all(|(at, said)| said.is_some() && *at <= ms(10)), "{:?}", both.0);
    // Every other one of the 50 slots between 60 s and 61 s is theirs.
    assert!(both.1.iter().all(|(_, said)| said.is_none()), "{:?}", both.1);
}

/// Remaining requests precede the refused ones, and leave at the limit's pace after the reset.
#[tokio::test(start_paused = true)]
async fn what_stays_counts_for_when_others_may_come_back_after_a_reset() {
    let world = World::new("10/s");
    let first = world.permit().await;
    let patient: Vec<_> = (0..50).map(|_| patient(&world, secs(300))).collect();
    let hasty: Vec<_> = (0..50).map(|_| self::patient(&world, secs(12))).collect();
    use_up(first, 60);
    for (place, said) in told(&world, hasty).await.into_iter().enumerate() {
        let turn = ms(60_000 + 5_000 + 100 * place as u64 - 12_000);
        let retry_after = retry_after(said);
        // 60 s in whole seconds are up to 61.
        assert!(
            retry_after + ms(300) >= turn && retry_after <= turn + ms(1_300),
            "{place}: {retry_after:?} for {turn:?}"
        );
    }
    drop(patient);
}

/// A place that becomes free when the process ends is given to nobody: the API would count a request that is cut off.
/// The first flow leaves whole before the second one, which is queued behind it, and ends 13 s after the start. If both
/// had every other slot, it would end after 16 s.
#[tokio::test(start_paused = true)]
async fn flow_that_leaves_before_the_next_one_is_not_refused_as_if_they_shared() {
    for levels in [Levels::Client, Levels::InOrder] {
        let world = World::new("10/s");
        let first = world.permit().await;
        let of = |flow| Claim { levels, flow: FlowId(flow), ..Claim::USUAL };
        let hasty = (0..30).map(|_| patient_of(&world, ms(14_500), of(1)));
        let waiting: Vec<_> = hasty.collect();
        let patient: Vec<_> = (0..30).map(|_| patient_of(&world, secs(120), of(2))).collect();
        refuse(first, 10);
        let told = told(&world, waiting.into_iter().chain(patient).collect()).await;
        assert!(told.iter().all(|(_, said)| said.is_none()), "{levels:?}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_once_the_process_has_ended() {
    let world = World::new("in-flight 1");
    let first = world.permit().await;
    let mut second = patient(&world, secs(60));
    world.lane.ends_at(world.clock.now() + secs(1));
    tokio::time::sleep(secs(1)).await;
    drop(first);
    let answered = tokio::time::timeout(secs(30), &mut second).await;
    assert!(answered.is_err(), "{answered:?}");
    assert!(matches!(world.lane.admit(ask(kind())), Admission::Wait(_)));
}
