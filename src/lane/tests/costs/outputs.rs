//! Outputs of unknown size until their answers end; some are much longer than most.

use super::*;

/// Output sizes, and the time per token.
#[derive(Clone, Copy)]
struct Api {
    /// The median output.
    output: f64,
    token: Duration,
}

const WORKERS: u64 = 100;
const MINUTE: Duration = Duration::from_secs(60);

/// An output between 100 and 3,000, most of them near the usual one.
fn output(dice: &mut fastrand::Rng, usual: f64) -> u32 {
    let normal = (-2.0 * (1.0 - dice.f64()).ln()).sqrt() * (std::f64::consts::TAU * dice.f64()).cos();
    ((0.7 * normal).exp() * usual).clamp(100.0, 3000.0) as u32
}

/// `WORKERS` send one request after the other for `minutes`. A third of the answers are streams; clients leave a
/// quarter of these early.
async fn works(world: &World, api: Api, minutes: u32, seed: u64) -> Vec<(Instant, u32)> {
    let unit = Unit::named("out-tokens").unwrap();
    let counted = Arc::new(Mutex::new(Vec::new()));
    let until = world.clock.now() + MINUTE * minutes;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        let (lane, clock, counted) = (world.lane.clone(), world.clock, counted.clone());
        let mut dice = fastrand::Rng::with_seed(seed * WORKERS + worker);
        tasks.spawn(async move {
            while clock.now() < until {
                let used = output(&mut dice, api.output);
                let streams = dice.u8(..3) == 0;
                let leaves = streams && dice.u8(..4) == 0;
                let used = if leaves { used.min(120) } else { used };
                let mut permit = permitted(lane.admit(ask(kind()))).await;
                permit.sent();
                if streams {
                    permit.answered(&AnswerReport::SERVED, Instant::START);
                }
                tokio::time::sleep(api.token * used).await;
                counted.lock().push((clock.now(), used));
                if !streams {
                    permit.answered(&AnswerReport::SERVED, Instant::START);
                }
                let bytes = streams.then_some(u64::from(used) * 9);
                let said = Usage { streamed: bytes, ..Usage::default() };
                permit.used(&if leaves {
                    Usage { at_least: vec![(unit, 0)], ..said }
                } else {
                    Usage { said: vec![(unit, used)], ..said }
                });
            }
        });
    }
    tasks.join_all().await;
    let mut counted = counted.lock().clone();
    counted.retain(|(at, _)| *at < until);
    counted.sort_unstable_by_key(|(at, _)| *at);
    counted
}

/// The most tokens in any minute, and the share of `count` a minute that was used from the second minute on.
fn most(counted: &[(Instant, u32)], count: u32, minutes: u32) -> (u64, f64) {
    let (mut most, mut held, mut first) = (0, 0, 0);
    for (at, tokens) in counted {
        held += u64::from(*tokens);
        while counted[first].0 + MINUTE <= *at {
            held -= u64::from(counted[first].1);
            first += 1;
        }
        most = most.max(held);
    }
    let late = counted.iter().filter(|(at, _)| *at >= Instant::START + MINUTE);
    let late: u64 = late.map(|(_, tokens)| u64::from(*tokens)).sum();
    (most, late as f64 / f64::from(count * (minutes - 1)))
}

/// Runs an API with this time per token for six minutes: no run has a minute with too many tokens by more than its
/// largest answer. Returns the mean share that was used.
async fn counts(token: u64, output: f64, seeds: std::ops::Range<u64>) -> f64 {
    let mut shares = Vec::new();
    for seed in seeds {
        let world = told("20000 out-tokens/min");
        let counted = works(&world, Api { output, token: ms(token) }, 6, seed).await;
        let (most, share) = most(&counted, 20_000, 6);
        let largest = counted.iter().map(|(_, used)| *used).max().unwrap();
        let beyond = most.saturating_sub(20_000);
        assert!(beyond <= largest.into(), "seed {seed}: {beyond} beyond, and {largest} are the largest");
        shares.push(share);
    }
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// When the first requests leave, a guess has to suffice.
#[tokio::test(start_paused = true)]
async fn outputs_of_any_size_are_kept_within_one_of_them_and_use_their_limit() {
    for output in [250.0, 500.0, 800.0] {
        let share = counts(2, output, 100..160).await;
        assert!(share >= 0.95, "{share} where half of them are smaller than {output}");
    }
}

/// While an answer of six seconds is in flight, the tenth of a window that it may need goes by unused.
#[tokio::test(start_paused = true)]
async fn answers_that_take_long_leave_most_of_the_limit_to_others() {
    let share = counts(10, 500.0, 100..120).await;
    assert!(share >= 0.8, "{share}");
}

#[tokio::test(start_paused = true)]
async fn what_no_answer_ever_tells_holds_nobody_up() {
    let world = told("6000/min burst 6000, 1000 out-tokens/min burst 1000");
    for _ in 0..100 {
        let Admission::Send(mut permit) = world.ask() else { panic!("nothing that is known was used") };
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
    }
    assert_eq!(world.lane.snapshot().limits[1].used, 100, "one each");
}
