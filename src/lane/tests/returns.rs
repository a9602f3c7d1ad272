//! Refused clients that return at their `Retry-After`.

use andante_order::Urgency;
use andante_policy::Added;

use super::*;
use crate::{Draw, Draws, PreviewDecision};

/// Sends a client's request again and again until it gets its slot, each time at its `Retry-After`. Returns the number
/// of refusals.
async fn insists(world: Arc<World>, client: u8, patience: Duration) -> usize {
    let claim = Claim { client: ClientId::of([10, 0, 0, client].into()), ..Claim::USUAL };
    let mut refused = 0;
    loop {
        let deadline = world.clock.now() + patience;
        let Some(seconds) = told_to_wait(&world, AdmitRequest { claim, deadline, ..ask(kind()) }).await else {
            return refused;
        };
        refused += 1;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// Sends this request. Returns its `Retry-After` if it was refused: in whole seconds, as in the field.
async fn told_to_wait(world: &World, ask: AdmitRequest) -> Option<u64> {
    let told = match world.lane.admit(ask) {
        Admission::Send(permit) => Ok(permit),
        Admission::Wait(waiting) => waiting.await,
        Admission::Refuse(refusal) => Err(refusal),
    };
    match told {
        Ok(mut permit) => {
            permit.sent();
            permit.answered(&AnswerReport::SERVED, Instant::START);
            None
        }
        Err(refusal) => Some(refusal.retry_after().as_secs_f64().ceil() as u64),
    }
}

/// Number of refusals of 200 simultaneous requests, and the time until all have left.
async fn refusals(limits: &str, most: usize, patience: u64, clients: u8) -> (usize, Duration) {
    let world = Arc::new(World::with(limits, |policy| {
        policy.max_waiting = most;
        policy.margin = MarginSpec::Fixed(ms(0));
    }));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        tasks.spawn(insists(world.clone(), number % clients, ms(patience)));
    }
    let refused = tasks.join_all().await.into_iter().sum();
    (refused, world.clock.now().since(Instant::START))
}

#[tokio::test(start_paused = true)]
async fn those_that_are_refused_at_once_come_back_one_by_one() {
    // Limited by their patience, and by the places in the queue; workers of 200 clients, and of one. At ten a second
    // 200 take 19.9 s, and at two a second 99.5 s.
    for (limits, most, patience, ideal) in
        [("10/s", 10_000, 3_000, 19_900), ("10/s", 20, 3_600_000, 19_900), ("2/s", 5, 3_600_000, 99_500)]
    {
        for clients in [200, 1] {
            let (refused, took) = refusals(limits, most, patience, clients).await;
            println!("{limits}, {most} wait, {patience} ms, {clients} clients: {refused} refusals in {took:?}");
            assert!(refused <= 400, "{refused} refusals: {limits}, {most}, {patience}, {clients}");
            assert!(took <= ms(ideal + 5_000), "{took:?}: {limits}, {most}, {patience}, {clients}");
        }
    }
}

/// Workers, each with its own address, that send one request after the other, and return at their `Retry-After`.
#[derive(Clone, Copy)]
struct Workers {
    count: u8,
    limits: &'static str,
    /// The most that may wait.
    most: usize,
    /// The longest time from an answer to the next request.
    think: Duration,
    /// True if half of the refused clients never return.
    leave: bool,
    /// Duration of the run.
    seconds: u64,
    /// True if the limit and the places belong to a narrower rule, in a lane that has more of both.
    sub_limit: bool,
}

/// A worker's numbers of answers and of refusals.
type Had = (usize, usize);

impl Workers {
    const USUAL: Self = Self {
        count: 60,
        limits: "10/s",
        most: 40,
        think: Duration::ZERO,
        leave: false,
        seconds: 40,
        sub_limit: false,
    };

    async fn answers(self) -> Vec<usize> {
        self.sending(|_| ask(kind())).await.into_iter().map(|(answers, _)| answers).collect()
    }

    /// The result of each worker that sends such requests.
    async fn sending(self, sends: impl Fn(u8) -> AdmitRequest) -> Vec<Had> {
        let own = if self.sub_limit { "1000/s burst 1000" } else { self.limits };
        let world = Arc::new(World::with(own, |policy| {
            policy.max_waiting = if self.sub_limit { 10_000 } else { self.most };
            policy.margin = MarginSpec::Fixed(ms(0));
        }));
        let mut rule = Policy::new("narrow", vec!["*".parse().unwrap()]);
        rule.limits = self.limits.parse::<Limits>().unwrap().limits;
        (rule.max_waiting, rule.added) = (self.most, Some(Added::default()));
        rule.margin = MarginSpec::Fixed(ms(0));
        let draws: Draws = self.sub_limit.then(|| [Draw::new(1, rule.into())].into());
        let end = Instant::START + Duration::from_secs(self.seconds);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..self.count {
            let world = world.clone();
            let mut dice = fastrand::Rng::with_seed(number.into());
            let sent = AdmitRequest { draws: draws.clone(), ..sends(number) };
            let claim = Claim { client: ClientId::of([10, 0, 0, number].into()), ..sent.claim };
            tasks.spawn(async move {
                let (mut answers, mut refused) = (0, 0);
                while world.clock.now() < end {
                    match told_to_wait(&world, AdmitRequest { claim, ..sent.clone() }).await {
                        None => {
                            answers += usize::from(world.clock.now() <= end);
                            tokio::time::sleep(self.think.mul_f64(dice.f64())).await;
                        }
                        Some(_) if self.leave && dice.bool() => break,
                        Some(seconds) => {
                            refused += 1;
                            tokio::time::sleep(Duration::from_secs_f64(seconds as f64 + dice.f64() * 0.1)).await;
                        }
                    }
                }
                (number, (answers, refused))
            });
        }
        let mut had = tasks.join_all().await;
        had.sort_unstable();
        had.into_iter().map(|(_, of_worker)| of_worker).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_come_back_when_they_are_told_to_have_their_share() {
    for (most, sub_limit) in [(40, false), (20, false), (40, true), (20, true)] {
        let mut answers = Workers { most, sub_limit, ..Workers::USUAL }.answers().await;
        answers.sort_unstable();
        println!("room for {most}: {answers:?}");
        // 401 slots for 60 workers are 6.7 each.
        assert!(answers.iter().sum::<usize>() >= 400, "slots are lost: {answers:?}");
        assert!(answers[0] >= 4 && answers[59] <= 10, "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_of_others_refuses_nothing_that_is_more_urgent() {
    for sub_limit in [false, true] {
        urgent_ones_have_all_but_the_share_of_others(sub_limit).await;
    }
}

async fn urgent_ones_have_all_but_the_share_of_others(sub_limit: bool) {
    let urgent = |number| Claim { urgency: if number < 6 { Urgency::MOST } else { Urgency::USUAL }, ..Claim::USUAL };
    let workers = Workers { sub_limit, ..Workers::USUAL };
    let had = workers.sending(|number| AdmitRequest { claim: urgent(number), ..ask(kind()) }).await;
    println!("{had:?}");
    assert!(had[..6].iter().all(|(_, refused)| *refused == 0), "{had:?}");
    let answers: Vec<usize> = had.into_iter().map(|(answers, _)| answers).collect();
    let (urgent, others) = answers.split_at(6);
    assert!(answers.iter().sum::<usize>() >= 400, "slots are lost: {answers:?}");
    // Less urgent requests have one slot in 21 of 401, and some ten had asked again before the first urgent one.
    let (urgent_ones, other_ones) = (urgent.iter().sum::<usize>(), others.iter().sum::<usize>());
    assert!(urgent_ones >= 400 * 19 / 21 && other_ones >= 400 / 22, "{answers:?}");
    assert!(urgent.iter().max().unwrap() - urgent.iter().min().unwrap() <= 2, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn those_that_urgent_ones_keep_out_are_not_told_to_come_again_and_again() {
    // Twelve urgent loops, and room for ten. The others have one slot in 21 of 401: 19 for thirty of them.
    let urgent = |number| Claim { urgency: if number < 12 { Urgency::MOST } else { Urgency::USUAL }, ..Claim::USUAL };
    let workers = Workers { count: 42, most: 10, ..Workers::USUAL };
    let had = workers.sending(|number| AdmitRequest { claim: urgent(number), ..ask(kind()) }).await;
    let refused: Vec<usize> = had[12..].iter().map(|(_, refused)| *refused).collect();
    println!("{had:?}");
    assert!(*refused.iter().max().unwrap() <= 12, "one is told that it may come each 3 s: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_more_urgent_ones_take_is_not_promised_to_others() {
    let world = Arc::new(World::with("10/s", |policy| {
        policy.max_waiting = 40;
        policy.max_wait = Duration::MAX;
        policy.margin = MarginSpec::Fixed(ms(0));
    }));
    let of = |urgency, number| {
        let claim = Claim { urgency, client: ClientId::of([10, 0, 0, number].into()), ..Claim::USUAL };
        AdmitRequest { claim, ..ask(kind()) }
    };
    for number in 0..6 {
        let world = world.clone();
        tokio::spawn(async move {
            while world.clock.now() < Instant::START + Duration::from_secs(20) {
                assert_eq!(told_to_wait(&world, of(Urgency::MOST, number)).await, None);
            }
        });
    }
    tokio::time::sleep(ms(5_030)).await;
    let mut waiting = Vec::new();
    // Runs until a request is refused. The refusal of a resent request holds only the time of the next slot.
    let mut fill = |from| {
        for number in from.. {
            let asked = of(Urgency::USUAL, number);
            match world.lane.admit(asked.clone()) {
                Admission::Refuse(Refusal::Full { retry_after, .. }) => {
                    let Admission::Refuse(next) = world.lane.admit(AdmitRequest { turn: Turn::Resent, ..asked }) else {
                        break;
                    };
                    return (retry_after, next.retry_after());
                }
                other => waiting.push(other),
            }
        }
        panic!("there is no room for so many");
    };
    let (told, next) = fill(6);
    assert_eq!(told, next, "nothing is known of others that wait beside urgent ones: none did");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (told, next) = fill(100);
    // The usual urgency has one slot in 21: one or two of those of the last intervals.
    assert!(next > ms(50) && told >= next * 16 && told <= next * 21, "{told:?}, {next:?}");
}

#[tokio::test(start_paused = true)]
async fn those_whose_requests_are_dear_have_their_share_of_a_full_queue() {
    let cost = |number| Cost::new(if number % 3 == 0 { 3 } else { 1 }).unwrap();
    let had = Workers::USUAL.sending(|number| AdmitRequest { cost: cost(number), ..ask(kind()) }).await;
    let answers: Vec<usize> = had.into_iter().map(|(answers, _)| answers).collect();
    let (mut dear, mut others): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    (0..)
        .zip(&answers)
        .for_each(|(number, answers)| if number % 3 == 0 { &mut dear } else { &mut others }.push(*answers));
    println!("{dear:?}, {others:?}");
    // 401 slots for 60 workers are 6.7 each. Each worker gets at least a quarter and at most three times as much:
    // clients return in turn, whatever their requests cost.
    assert!(dear.iter().all(|answers| (2..=20).contains(&(3 * answers))), "{dear:?}");
    assert!(others.iter().all(|answers| (2..=20).contains(answers)), "{others:?}");
}

#[tokio::test(start_paused = true)]
async fn no_slot_is_lost_for_those_that_never_come_back() {
    // Half of the refused clients leave, so that soon all others have room.
    let answers = Workers { most: 30, leave: true, ..Workers::USUAL }.answers().await;
    println!("{answers:?}");
    assert!(answers.iter().sum::<usize>() >= 400, "slots are lost: {answers:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_asks_each_second_is_told_five_minutes_more_than_its_wait_at_most() {
    for (limits, ahead, patience, wait) in [("1/h", 3, 1800, 4 * 3600), ("1/s", 100, 30, 101), ("1/min", 5, 1, 360)] {
        let world = World::with(limits, |policy| policy.max_wait = Duration::MAX);
        world.send().await;
        for _ in 0..ahead {
            let admission = world.ask();
            tokio::spawn(async move {
                let mut permit = permitted(admission).await;
                permit.sent();
                permit.answered(&AnswerReport::SERVED, Instant::START);
            });
        }
        let start = world.clock.now();
        for second in 0..60 {
            let now = world.clock.now();
            let deadline = now + Duration::from_secs(patience);
            let admission = world.lane.admit(AdmitRequest { deadline, ..ask(kind()) });
            let Admission::Refuse(refusal) = admission else { panic!("{limits}: {admission:?}") };
            let left = Duration::from_secs(wait - patience).saturating_sub(now.since(start));
            let told = refusal.retry_after();
            // A window is extended a little for network jitter.
            let most = left + left / 50 + ms(50) + Duration::from_secs(300);
            assert!(told <= most, "{limits}, {second} s: {told:?} of {left:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_preview_says_what_the_next_refusal_says() {
    let world = World::with("1/min", |policy| policy.max_wait = Duration::MAX);
    world.send().await;
    for asked in 0..5 {
        let ask = AdmitRequest { deadline: world.clock.now() + Duration::from_secs(1), ..ask(kind()) };
        let (first, again) = (world.lane.preview(&ask).decision, world.lane.preview(&ask).decision);
        let Admission::Refuse(refusal) = world.lane.admit(ask) else { panic!("a minute is longer than a second") };
        let said = PreviewDecision::Refuse(refusal);
        assert_eq!([&first, &again], [&said; 2], "{asked} have been refused");
    }
}

#[tokio::test(start_paused = true)]
async fn each_has_a_turn_where_fewer_may_wait_than_leave_in_a_second() {
    for (most, think, urgent) in [
        (5, 0, 0),
        (5, 20, 0),
        (5, 100, 0),
        (10, 0, 0),
        (5, 0, 12),
        (5, 20, 12),
        (10, 0, 12),
        (10, 100, 12),
        (10, 20, 18),
    ] {
        let urgency = |number| if number < urgent { Urgency::MOST } else { Urgency::USUAL };
        let claim = |number| Claim { urgency: urgency(number), ..Claim::USUAL };
        let workers = Workers { count: 24, limits: "50/s", most, think: ms(think), seconds: 120, ..Workers::USUAL };
        let had = workers.sending(|number| AdmitRequest { claim: claim(number), ..ask(kind()) }).await;
        let answers: Vec<usize> = had.into_iter().map(|(answers, _)| answers).collect();
        println!("room for {most}, {think} ms between, {urgent} urgent ones: {answers:?}");
        let (urgent, others) = answers.split_at(urgent.into());
        assert!(answers.iter().sum::<usize>() >= 6000 * 99 / 100, "slots are lost: {answers:?}");
        // Of 6001 slots the less urgent have one in 21, and all have equal parts of the rest of their urgency. Half of
        // that is required, as a worker may be unlucky.
        let share = |slots: usize, workers: usize| slots / workers.max(1) / 2;
        let (least, all) =
            if urgent.is_empty() { (share(6000, 24), 0) } else { (1, share(6000 * 20 / 21, urgent.len())) };
        assert!(others.iter().all(|answers| *answers >= least), "{answers:?}");
        assert!(urgent.iter().all(|answers| *answers >= all), "{answers:?}");
    }
}
