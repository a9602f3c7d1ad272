//! Predictions for requests of many clients, each with an address of its own.

use super::*;

/// A request's arrival, predicted departure and departure, in slots.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: f64,
    expected: f64,
    left: f64,
}

/// Clients that send, and their predictions. Ten slots a second.
struct Crowd {
    world: Arc<World>,
    told: Arc<Mutex<Vec<Told>>>,
    tasks: tokio::task::JoinSet<()>,
}

impl Crowd {
    fn new() -> Self {
        let world = World::with("10/s", |policy| {
            policy.margin = MarginSpec::Fixed(ms(0));
            policy.max_wait = Duration::MAX;
            policy.max_waiting = usize::MAX;
        });
        Self { world: world.into(), told: Arc::default(), tasks: tokio::task::JoinSet::new() }
    }

    /// A worker with this claim sends `requests` one after the other, after a pause of up to `pauses` seconds before
    /// each.
    fn works(&mut self, claim: Claim, requests: usize, pauses: f64) {
        let (world, told) = (self.world.clone(), self.told.clone());
        let mut dice = fastrand::Rng::with_seed(self.tasks.len() as u64 + 10_000 * seed());
        self.tasks.spawn(async move {
            for _ in 0..requests {
                if pauses > 0.0 {
                    tokio::time::sleep(Duration::from_secs_f64(dice.f64() * pauses)).await;
                }
                let slots = |clock: Clock| clock.now().since(Instant::START).as_secs_f64() * 10.0;
                let at = slots(world.clock);
                let admission = world.lane.admit(AdmitRequest { claim, ..ask(kind()) });
                let expected = match &admission {
                    Admission::Wait(waiting) => waiting.expected.since(Instant::START).as_secs_f64() * 10.0,
                    _ => at,
                };
                let mut permit = permitted(admission).await;
                permit.sent();
                permit.answered(&AnswerReport::SERVED, Instant::START);
                told.lock().push(Told { at, expected, left: slots(world.clock) });
            }
        });
    }

    /// The predictions of requests that came from this slot on.
    async fn told(self, from: f64) -> Vec<Told> {
        self.tasks.join_all().await;
        let told = self.told.lock().clone();
        told.into_iter().filter(|told| told.at >= from && told.left > told.at).collect()
    }
}

fn client(number: u16) -> Claim {
    let [high, low] = number.to_be_bytes();
    Claim { client: ClientId::of([10, 0, high, low].into()), ..Claim::USUAL }
}

/// Mean delay after the predicted departure, and the 95th percentile of the error, in slots.
fn errors(name: &str, told: &[Told]) -> (f64, f64) {
    let mean = told.iter().map(|told| told.left - told.expected).sum::<f64>() / told.len() as f64;
    let p95 = p95(told.iter().map(|told| (told.left - told.expected).abs()));
    let waited = told.iter().map(|told| told.left - told.at).sum::<f64>() / told.len() as f64;
    println!("{name}: {} requests waited for {waited:.1} slots, {mean:.2} later than told; p95 {p95:.2}", told.len());
    (mean, p95)
}

/// [`errors`] that become figures of the `board`.
fn errors_on(board: &mut Scoreboard, name: &str, told: &[Told]) -> (f64, f64) {
    let (mean, p95) = errors(name, told);
    board.add(format!("{name}: error in slots, distance of its mean from 0"), mean.abs());
    board.add(format!("{name}: error in slots, p95"), p95);
    (mean, p95)
}

#[tokio::test(start_paused = true)]
async fn each_client_of_a_burst_is_told_its_own_slot() {
    for clients in [40, 400] {
        let mut crowd = Crowd::new();
        (0..clients).for_each(|number| crowd.works(client(number), 1, 0.0));
        let (_, p95) = errors(&format!("{clients} at once"), &crowd.told(0.0).await);
        assert!(p95 <= 1.0, "{p95}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_just_served_is_told_that_all_others_go_first() {
    for (clients, rounds) in [(40, 5), (400, 3)] {
        let mut crowd = Crowd::new();
        (0..clients).for_each(|number| crowd.works(client(number), rounds, 0.0));
        // The last requests of a client have fewer competitors.
        let (mean, p95) = errors(&format!("{clients} again and again"), &crowd.told(1.0).await);
        assert!(mean.abs() <= 1.0 && p95 <= 1.0, "{mean}, {p95}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_in_the_middle_of_a_round_is_told_who_goes_first() {
    let mut board = Scoreboard::of("one_that_comes_in_the_middle_of_a_round_is_told_who_goes_first");
    for (clients, rounds) in [(40, 10), (400, 4)] {
        let mut crowd = Crowd::new();
        (0..clients).for_each(|number| crowd.works(client(number), rounds, 0.0));
        let mut others = Crowd { world: crowd.world.clone(), ..Crowd::new() };
        let seconds = f64::from(clients) / 10.0 * (rounds as f64 - 2.0);
        (0..20).for_each(|number| others.works(client(1000 + number), 1, seconds));
        let (mean, p95) =
            errors_on(&mut board, &format!("in the middle of {clients}"), &others.told(f64::from(clients)).await);
        // With more than 64 clients, only 64 are sampled.
        let allowed = if clients < 64 { 2.0 } else { 0.15 * f64::from(clients) };
        assert!(mean.abs() <= 0.05 * f64::from(clients) && p95 <= allowed, "{mean}, {p95}");
    }
    board.judge();
}

/// More urgent workers send the next request as soon as they have an answer. So others get only their guaranteed slots:
/// one in 21 for each lower urgency.
#[tokio::test(start_paused = true)]
async fn what_is_less_urgent_is_told_that_more_of_others_comes() {
    let mut board = Scoreboard::of("what_is_less_urgent_is_told_that_more_of_others_comes");
    for urgency in [4, 5] {
        let mut crowd = Crowd::new();
        let of = |urgency, number| Claim { urgency: Urgency::new(urgency).unwrap(), ..client(number) };
        for number in 0..8 {
            crowd.works(of(3, number), 100, 0.0);
            crowd.works(of(4, 100 + number), 5, 0.0);
            crowd.works(of(5, 200 + number), 5, 0.0);
        }
        // All of these leave before the more urgent workers have finished.
        let mut others = Crowd { world: crowd.world.clone(), ..Crowd::new() };
        (0..10).for_each(|number| others.works(of(urgency, 1000 + number), 1, 40.0));
        let told = others.told(100.0).await;
        let waited = told.iter().map(|told| told.left - told.at).sum::<f64>() / told.len() as f64;
        let (mean, p95) = errors_on(&mut board, &format!("of urgency {urgency} beside more urgent ones"), &told);
        assert!(waited >= 60.0, "{waited}");
        assert!(mean.abs() <= 0.25 * waited && p95 <= 0.6 * waited, "{mean}, {p95}");
    }
    board.judge();
}

#[tokio::test(start_paused = true)]
async fn weights_and_urgencies_of_many_clients_count() {
    let mut board = Scoreboard::of("weights_and_urgencies_of_many_clients_count");
    let mut all = Vec::new();
    for number in 0..20 {
        let mut dice = fastrand::Rng::with_seed(number + 20 * seed());
        let mut crowd = Crowd::new();
        for number in 0..60 {
            let weight = Weight(NonZeroU16::new([1, 1, 2, 5][dice.usize(..4)]).unwrap());
            let urgency = Urgency::new([3, 3, 3, 1][dice.usize(..4)]).unwrap();
            let claim = Claim { client_weight: weight, urgency, ..client(number) };
            (0..dice.usize(1..6)).for_each(|_| crowd.works(claim, 1, 5.0));
        }
        // No requests come after these, so that only waiting ones precede them.
        all.extend(crowd.told(49.0).await);
    }
    let (mean, p95) = errors_on(&mut board, "weights and urgencies", &all);
    assert!(mean.abs() <= 3.0 && p95 <= 15.0, "{mean}, {p95}");
    board.judge();
}
