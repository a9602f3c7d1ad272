//! A full queue: the newest request of the longest flow of the least urgent gives way to what is more urgent, and to one of a
//! shorter flow.

use super::*;
use crate::{
    lane::{
        Draw, Draws, Waiting,
        order::{FlowId, Urgency, Weight},
    },
    policy::Added,
};

/// One slot a second, of which the first is taken, and room for so many that wait.
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

/// Those that had to go, of those that waited.
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
    // Three and one: after it two and two.
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
    // Of two that cost five each one is more than of three that cost one each two are.
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
    // Three of a client that counts double are less than two of another.
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

/// A lane with room for eight, in which eight clients have one request each that waits for a rule's 1/min, and nothing else.
#[tokio::test(start_paused = true)]
async fn what_waits_for_narrower_budgets_alone_does_not_keep_others_out() {
    let world = World::with("10/s", |policy| policy.max_waiting = 8);
    let mut slow = Policy::new("slow", vec!["*".parse().unwrap()]);
    slow.limits = "1/min".parse::<Limits>().unwrap().limits;
    slow.added = Some(Added::default());
    let draws: Draws = Some([Draw { budget: 1, rule: slow.into() }].into());
    let asks = |number| world.lane.admit(AdmitRequest { claim: client(number), draws: draws.clone(), ..ask(kind()) });
    let Admission::Send(_first) = asks(0) else { panic!("nothing was sent yet") };
    tokio::time::sleep(ms(100)).await;
    let mut slow: Vec<_> = (1..=8)
        .map(|number| match asks(number) {
            Admission::Wait(waiting) => waiting,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        matches!(asks(9), Admission::Refuse(Refusal::Full { .. })),
        "all places are taken, and all clients have one"
    );
    world.send().await;
    // Room for a quarter of eight.
    let others = [10, 11].map(|number| world.waits_as(client(number)));
    assert!(world.refuses(client(12)));
    let mut gone = Vec::new();
    for (number, waiting) in slow.iter_mut().enumerate() {
        if let Ok(Err(refusal)) = tokio::time::timeout(Duration::ZERO, waiting).await {
            assert!(matches!(refusal, Refusal::GaveWay { waiting: 8, .. }), "{refusal:?}");
            gone.push(number);
        }
    }
    assert_eq!(gone, [6, 7], "the newest two");
    for other in others {
        drop(other.await.expect("it has a slot within two tenths of a second"));
    }
    assert!(world.clock.now().since(Instant::START) < ms(400));
}
