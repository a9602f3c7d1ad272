//! A full queue: the newest request of the longest flow among the least urgent is evicted. A more urgent request, or
//! one of a shorter flow, takes its place.

use andante_order::{FlowId, Urgency, Weight};
use andante_policy::Added;

use super::*;
use crate::{Draw, Draws, Waiting};

/// A lane with one slot a second, whose first slot is taken, and room for `most` waiting requests.
async fn full(most: usize) -> World {
    let world = World::with("1/s", |policy| policy.max_waiting = most);
    world.send().await;
    world
}

fn client(number: u8) -> Claim {
    Claim { client: ClientId::of([10, 0, 0, number].into()), ..Claim::USUAL }
}

impl World {
    fn ask_as(&self, claim: Claim) -> Admission {
        self.lane.admit(AdmitRequest { claim, ..ask(kind()) })
    }

    fn waits_as(&self, claim: Claim) -> Waiting {
        match self.ask_as(claim) {
            Admission::Wait(waiting) => waiting,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    fn refuses(&self, claim: Claim) -> bool {
        matches!(self.ask_as(claim), Admission::Refuse(Refusal::Full { .. }))
    }
}

/// The numbers of the evicted requests; removes them from `waiting`.
async fn gone(waiting: &mut Vec<Waiting>) -> Vec<usize> {
    let mut gone = Vec::new();
    for (number, waiting) in waiting.iter_mut().enumerate() {
        if let Ok(Err(refusal)) = tokio::time::timeout(Duration::ZERO, waiting).await {
            assert!(matches!(refusal, Refusal::GaveWay { waiting: 4, .. }), "{refusal:?}");
            gone.push(number);
        }
    }
    gone.iter().rev().for_each(|number| drop(waiting.remove(*number)));
    gone
}

#[tokio::test(start_paused = true)]
async fn the_newest_of_the_longest_flow_gives_way_until_all_are_as_long() {
    let world = full(4).await;
    let mut flood: Vec<_> = (0..4).map(|_| world.waits_as(client(1))).collect();
    assert!(world.refuses(client(1)), "its own flow is the longest");
    let _first = world.waits_as(client(2));
    assert_eq!(gone(&mut flood).await, [3]);
    // Three and one before, two and two after.
    let _second = world.waits_as(client(2));
    assert_eq!(gone(&mut flood).await, [2]);
    assert!(world.refuses(client(2)), "it would be longer than the other");
    assert!(world.refuses(client(1)));
    assert_eq!((gone(&mut flood).await, world.waiting()), (vec![], 4));
    let refused = world.lane.snapshot().stats.refused;
    assert_eq!(refused, 5, "two that gave way, and three that were refused at once");
}

#[tokio::test(start_paused = true)]
async fn what_gives_way_costs_no_slot_and_the_others_leave_on_time() {
    let world = full(4).await;
    let mut flood: Vec<_> = (0..4).map(|_| world.waits_as(client(1))).collect();
    let other = world.waits_as(client(2));
    assert_eq!(gone(&mut flood).await, [3]);
    let mut left = Vec::new();
    for waiting in flood.into_iter().chain([other]) {
        let clock = world.clock;
        left.push(tokio::spawn(async move {
            let mut permit = waiting.await.unwrap();
            permit.sent();
            permit.answered(&AnswerReport::SERVED, Instant::START);
            clock.now().since(Instant::START).as_millis()
        }));
    }
    let mut at = Vec::new();
    for left in left {
        at.push(left.await.unwrap());
    }
    at.sort_unstable();
    assert_eq!(at, [1000, 2000, 3000, 4000]);
}

#[tokio::test(start_paused = true)]
async fn nothing_gives_way_to_what_is_less_urgent() {
    let world = full(4).await;
    let urgent = |claim| Claim { urgency: Urgency::MOST, ..claim };
    let mut flood: Vec<_> = (0..4).map(|_| world.waits_as(urgent(client(1)))).collect();
    assert!(world.refuses(client(2)));
    let _other = world.waits_as(urgent(client(2)));
    assert_eq!(gone(&mut flood).await, [3]);
}

#[tokio::test(start_paused = true)]
async fn the_least_urgent_gives_way_to_what_is_more_urgent() {
    let world = full(4).await;
    let as_urgent = |urgency, number| Claim { urgency: Urgency::new(urgency).unwrap(), ..client(number) };
    let mut waiting: Vec<_> =
        [(3, 1), (3, 1), (5, 3), (5, 3)].map(|(urgency, number)| world.waits_as(as_urgent(urgency, number))).into();
    let mut urgent = vec![world.waits_as(as_urgent(0, 4))];
    assert_eq!(gone(&mut waiting).await, [3], "the newest of the least urgent, although as many of others wait");
    urgent.push(world.waits_as(as_urgent(0, 4)));
    assert_eq!(gone(&mut waiting).await, [1], "however much of its own client waits, but of each urgency one stays");
    assert!(world.refuses(as_urgent(0, 4)) && world.refuses(as_urgent(1, 5)));
    assert_eq!((gone(&mut urgent).await, gone(&mut waiting).await), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn what_has_been_sent_before_is_not_in_the_way_of_giving_way() {
    let world = full(4).await;
    let last = Claim { urgency: Urgency::LEAST, ..client(1) };
    let resent = AdmitRequest { turn: Turn::Resent, claim: last, ..ask(kind()) };
    let _resent = world.lane.admit(resent);
    let mut usual: Vec<_> = (0..3).map(|_| world.waits_as(client(1))).collect();
    let _urgent = world.waits_as(Claim { urgency: Urgency::MOST, ..client(2) });
    assert_eq!(gone(&mut usual).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn one_request_of_each_client_may_wait_whatever_it_costs() {
    let world = full(4).await;
    let dear = |number| AdmitRequest { cost: Cost::new(5).unwrap(), claim: client(number), ..ask(kind()) };
    let mut waiting: Vec<_> = [1, 1, 2, 3].map(|number| world.waits_as(client(number))).into();
    let Admission::Wait(first) = world.lane.admit(dear(4)) else { panic!("it is refused") };
    assert_eq!(gone(&mut waiting).await, [1], "two of one client are more than one of another");
    assert!(world.refuses(client(5)), "nobody has more than one");
    assert!(matches!(world.lane.admit(dear(4)), Admission::Refuse(Refusal::Full { .. })));
    // Two requests that cost five each exceed one by more than three that cost one each.
    let world = full(5).await;
    let mut waiting: Vec<_> = [1, 1, 1].map(|number| world.waits_as(client(number))).into();
    for _ in 0..2 {
        let Admission::Wait(dear) = world.lane.admit(dear(4)) else { panic!("it is refused") };
        waiting.push(dear);
    }
    let _other = world.waits_as(client(2));
    let last = tokio::time::timeout(Duration::ZERO, &mut waiting[4]).await;
    assert!(matches!(last, Ok(Err(Refusal::GaveWay { .. }))), "{last:?}");
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn what_has_been_sent_before_does_not_give_way() {
    let world = full(4).await;
    let resent = AdmitRequest { turn: Turn::Resent, claim: client(1), ..ask(kind()) };
    let mut flood: Vec<_> = (0..4).map(|_| world.lane.admit(resent.clone())).collect();
    assert!(world.refuses(client(2)));
    flood.truncate(3);
    let newest = world.waits_as(client(1));
    let _other = world.waits_as(client(2));
    assert_eq!(gone(&mut vec![newest]).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn flows_of_one_client_give_way_to_each_other_and_weights_count() {
    let world = full(4).await;
    let flow = |number| Claim { flow: FlowId(number), ..client(1) };
    let mut flood: Vec<_> = (0..4).map(|_| world.waits_as(flow(1))).collect();
    let _other = world.waits_as(flow(2));
    assert_eq!(gone(&mut flood).await, [3]);
    // Three requests of a client with double weight count less than two of another.
    let world = full(4).await;
    let heavy = Claim { client_weight: Weight(2.try_into().unwrap()), ..client(1) };
    let _heavy: Vec<_> = (0..3).map(|_| world.waits_as(heavy)).collect();
    let _light = world.waits_as(client(2));
    assert!(world.refuses(client(2)));
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_displaces_nobody() {
    let world = full(4).await;
    let mut flood: Vec<_> = (0..4).map(|_| world.waits_as(client(1))).collect();
    let hasty = AdmitRequest { claim: client(2), deadline: world.clock.now() + ms(500), ..ask(kind()) };
    assert!(matches!(world.lane.admit(hasty), Admission::Refuse(Refusal::TooLong { .. })));
    assert_eq!(gone(&mut flood).await, Vec::<usize>::new());
}

/// A narrower rule with room for `most` waiting requests.
fn narrower(limits: &str, most: usize) -> Draws {
    let mut rule = Policy::new("slow", vec!["*".parse().unwrap()]);
    rule.limits = limits.parse::<Limits>().unwrap().limits;
    (rule.max_waiting, rule.added) = (most, Some(Added::default()));
    Some([Draw::new(1, rule.into())].into())
}

impl World {
    fn asks(&self, number: u8, draws: &Draws, change: impl FnOnce(&mut AdmitRequest)) -> Admission {
        let mut asked = AdmitRequest { claim: client(number), draws: draws.clone(), ..ask(kind()) };
        change(&mut asked);
        self.lane.admit(asked)
    }

    fn waits_for(&self, number: u8, draws: &Draws) -> Waiting {
        match self.asks(number, draws, |_| {}) {
            Admission::Wait(waiting) => waiting,
            other => panic!("it does not wait: {other:?}"),
        }
    }
}

/// The numbers of the evicted requests.
async fn evicted(waiting: &mut [Waiting]) -> Vec<usize> {
    let mut gone = Vec::new();
    for (number, waiting) in waiting.iter_mut().enumerate() {
        if let Ok(Err(refusal)) = tokio::time::timeout(Duration::ZERO, waiting).await {
            assert!(matches!(refusal, Refusal::GaveWay { .. }), "{refusal:?}");
            gone.push(number);
        }
    }
    gone
}

/// A lane with room for eight, in which eight clients have one request each that waits for a rule's 1/min, and nothing
/// else.
async fn full_of_others(limits: &str) -> (World, Vec<Waiting>) {
    let world = World::with(limits, |policy| policy.max_waiting = 8);
    let draws = narrower("1/min", 1000);
    drop(permitted(world.asks(0, &draws, |_| {})).await);
    let Admission::Send(mut first) = world.asks(0, &draws, |_| {}) else { panic!("nothing was sent yet") };
    first.sent();
    drop(first);
    tokio::time::sleep(ms(100)).await;
    let others: Vec<_> = (1..=8).map(|number| world.waits_for(number, &draws)).collect();
    assert!(matches!(world.asks(9, &draws, |_| {}), Admission::Refuse(Refusal::Full { .. })), "all clients have one");
    world.send().await;
    (world, others)
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_narrower_budgets_alone_does_not_keep_others_out() {
    let tokens = andante_limit::Unit::named("tokens").unwrap();
    for (limits, cost) in [("10/s", Cost::MIN), ("10/s, 1000 tokens/min", Cost::MIN.with(tokens, 500))] {
        let (world, mut others) = full_of_others(limits).await;
        // Room for a quarter of eight, and one for each client.
        let mut plain = Vec::new();
        for (number, has_room) in [(10, true), (10, false), (11, true), (12, false)] {
            match world.asks(number, &None, |asked| asked.cost = cost) {
                Admission::Wait(waiting) => plain.push(waiting),
                Admission::Refuse(Refusal::Full { .. }) => assert!(!has_room, "{number}: {limits}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((plain.len(), evicted(&mut others).await), (2, vec![6, 7]), "the newest two: {limits}");
        for waiting in plain {
            drop(tokio::time::timeout(ms(60_000), waiting).await.expect("it has a slot").unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_one_of_an_urgency_does_not_give_way_to_others() {
    let world = World::with("10/s", |policy| policy.max_waiting = 40);
    let draws = narrower("1/min", 1000);
    let Admission::Send(_first) = world.asks(0, &draws, |_| {}) else { panic!("nothing was sent yet") };
    tokio::time::sleep(ms(100)).await;
    let mut waiting: Vec<_> = (1..=39).map(|number| world.waits_for(number, &draws)).collect();
    let patient = |asked: &mut AdmitRequest| asked.claim.urgency = Urgency::new(7).unwrap();
    let Admission::Wait(last) = world.asks(40, &draws, patient) else { panic!("there is room for it") };
    waiting.push(last);
    world.send().await;
    let plain: Vec<_> = (50..60).map(|number| world.waits_for(number, &None)).collect();
    assert!(matches!(world.asks(60, &None, |_| {}), Admission::Refuse(_)), "a quarter of forty is ten");
    assert_eq!(evicted(&mut waiting).await, (29..39).collect::<Vec<_>>());
    drop(plain);
}

#[tokio::test(start_paused = true)]
async fn of_a_narrower_budget_what_has_been_sent_before_does_not_give_way_and_others_do() {
    let world = World::with("10/s", |policy| policy.max_waiting = 1000);
    let draws = narrower("1/min", 4);
    let Admission::Send(_first) = world.asks(0, &draws, |_| {}) else { panic!("nothing was sent yet") };
    let mut new: Vec<_> = (0..2).map(|_| world.waits_for(1, &draws)).collect();
    let resent = |asked: &mut AdmitRequest| asked.turn = Turn::Resent;
    let _again: Vec<_> = (0..2).map(|_| world.asks(2, &draws, resent)).collect();
    let _third = world.waits_for(3, &draws);
    assert_eq!(evicted(&mut new).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn where_a_budget_and_its_lane_are_full_one_gives_way() {
    let world = World::with("1/s", |policy| policy.max_waiting = 8);
    let draws = narrower("1/min", 3);
    let Admission::Send(_first) = world.asks(0, &draws, |_| {}) else { panic!("nothing was sent yet") };
    let mut waiting: Vec<_> = (0..3).map(|_| world.waits_for(1, &draws)).collect();
    waiting.extend((0..5).map(|_| world.waits_for(2, &None)));
    let _new = world.waits_for(3, &draws);
    assert_eq!((evicted(&mut waiting).await, world.waiting()), (vec![2], 8));
    // A request without a place in either gets the later time.
    let Admission::Refuse(Refusal::Full { retry_after, .. }) = world.asks(1, &draws, |_| {}) else {
        panic!("it is full")
    };
    assert!(retry_after > ms(50_000), "a place for 1/min: {retry_after:?}");
}

/// A lane full of requests that wait for 5/s: one more client of this kind would only wait behind them.
#[tokio::test(start_paused = true)]
async fn who_would_wait_for_the_same_displaces_nobody() {
    let world = World::with("100/s", |policy| policy.max_waiting = 8);
    let draws = narrower("5/s", 1000);
    let Admission::Send(_first) = world.asks(0, &draws, |_| {}) else { panic!("nothing was sent yet") };
    let mut waiting: Vec<_> = (1..=8).map(|number| world.waits_for(number, &draws)).collect();
    assert!(matches!(world.asks(9, &draws, |_| {}), Admission::Refuse(Refusal::Full { .. })));
    assert!(evicted(&mut waiting).await.is_empty());
}
