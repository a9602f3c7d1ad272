//! Predicted departures compared with the actual ones.

mod clients;
mod overlapping;

use std::{num::NonZeroU16, ops::Range};

use andante_limit::{Unit, settle};
use andante_order::{FlowId, Urgency, Weight};
use andante_scoreboard::{Scoreboard, seed};

use super::*;
use crate::request::{Draw, Draws, PreviewDecision};

/// Resources that a request waits for, in addition to its host's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Tokens; the flows take different amounts of them.
    Tokens,
    /// A sub-limit.
    Search,
}

/// A request that was promised an instant, in seconds.
#[derive(Clone, Copy, Debug)]
struct Promise {
    kind: Kind,
    flow: u64,
    urgency: u8,
    predicted: f64,
    /// With less patience, the request would have been refused at once.
    patience: f64,
    left: f64,
    /// Mean interval between slots of its kind.
    spacing: f64,
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::Tokens, Kind::Search];
const BANDS: [u8; 2] = [3, 5];
const FLOWS: u64 = 3;
/// Ranges of tokens per request, by flow.
type Tokens = [Range<u32>; FLOWS as usize];
const SMALL: Tokens = [50..150, 200..600, 100..300];
const LARGE: Tokens = [100..4000, 100..4000, 100..4000];

/// Requests of three flows of two clients, in two bands, to a host with 100/s and 60,000 tokens/min; some of them draw
/// on a search with 5/s. All come at once, with kinds as in `mix`. At the end one request of each sort comes. Returns
/// the promises of the others and of these last ones.
async fn promised(seed: u64, requests: usize, mix: &[Kind], takes: &Tokens) -> (Vec<Promise>, Vec<Promise>) {
    let world = World::with("100/s, 60000 tokens/min", |policy| {
        settle(&mut policy.limits);
        policy.margin = MarginSpec::Fixed(ms(10));
        policy.max_wait = Duration::from_secs(1_000_000);
    });
    let mut search = Policy::new("search", vec!["*".parse().unwrap()]);
    search.limits = "5/s".parse::<Limits>().unwrap().limits;
    search.max_wait = Duration::from_secs(1_000_000);
    let search: Arc<[Draw]> = [Draw::new(1, search.into())].into();
    let (mut dice, limits) = (fastrand::Rng::with_seed(seed), world.lane.policy().limits.clone());
    let tokens = Unit::named("tokens").unwrap();
    let mut request = |kind, flow: u64, urgency| {
        let client = ClientId::of([10, 0, 0, u8::from(flow == 2)].into());
        let claim = Claim { urgency: Urgency::new(urgency).unwrap(), client, flow: FlowId(flow), ..Claim::USUAL };
        let claim = if flow == 1 { Claim { flow_weight: Weight(NonZeroU16::new(2).unwrap()), ..claim } } else { claim };
        let amount = if kind == Kind::Tokens { dice.u32(takes[flow as usize].clone()) } else { 0 };
        let draws: Draws = (kind == Kind::Search).then(|| search.clone());
        AdmitRequest { cost: Cost::MIN.with(tokens, amount).shared(&limits), claim, draws, ..ask(self::kind()) }
    };
    let mut dice = fastrand::Rng::with_seed(seed + 1000);
    let kinds = KINDS.iter().filter(|kind| mix.contains(kind));
    let all = kinds.flat_map(|kind| (0..FLOWS).flat_map(move |flow| BANDS.map(|band| (*kind, flow, band))));
    let mixed =
        (0..requests).map(|_| (mix[dice.usize(..mix.len())], dice.u64(..FLOWS), BANDS[usize::from(dice.f32() < 0.3)]));
    let tokens_each = takes.iter().map(|of| f64::from(of.start + of.end) / 2.0).sum::<f64>() / FLOWS as f64;
    let spacing = |kind| match kind {
        Kind::Plain => 0.01,
        // 1,000 a second.
        Kind::Tokens => tokens_each / 1000.0,
        Kind::Search => 0.2,
    };
    let mut tasks = tokio::task::JoinSet::new();
    for (number, (kind, flow, urgency)) in mixed.collect::<Vec<_>>().into_iter().chain(all).enumerate() {
        let request = request(kind, flow, urgency);
        let patience = if number < requests { 0.0 } else { least_patience(&world, &request) };
        let (admission, clock) = (world.lane.admit(request), world.clock);
        let predicted = match &admission {
            Admission::Wait(waiting) => waiting.expected.since(Instant::START).as_secs_f64(),
            _ => 0.0,
        };
        let spacing = spacing(kind);
        tasks.spawn(async move {
            let mut permit = permitted(admission).await;
            let left = clock.now().since(Instant::START).as_secs_f64();
            permit.sent();
            tokio::time::sleep(ms(20)).await;
            permit.answered(&AnswerReport::SERVED, Instant::START);
            (number, Promise { kind, flow, urgency, predicted, patience, left, spacing })
        });
    }
    let mut promises = tasks.join_all().await;
    promises.sort_unstable_by_key(|(number, _)| *number);
    let mut promises: Vec<Promise> = promises.into_iter().map(|(_, promise)| promise).collect();
    let last = promises.split_off(requests);
    (promises, last)
}

/// The least patience, in seconds, with which this request is not refused now.
fn least_patience(world: &World, request: &AdmitRequest) -> f64 {
    let mut bounds = (0.0, 1e6);
    while bounds.1 - bounds.0 > 0.001 {
        let patience = (bounds.0 + bounds.1) / 2.0;
        let deadline = world.clock.now() + Duration::from_secs_f64(patience);
        match world.lane.preview(&AdmitRequest { deadline, ..request.clone() }).decision {
            PreviewDecision::Refuse(_) => bounds.0 = patience,
            _ => bounds.1 = patience,
        }
    }
    bounds.1
}

impl Promise {
    fn error(&self) -> f64 {
        (self.left - self.predicted).abs()
    }

    /// The number of members times the mean interval.
    fn turn(&self) -> f64 {
        FLOWS as f64 * BANDS.len() as f64 * self.spacing
    }

    /// 5% of the wait, or a turn if that is longer.
    fn allowed(&self) -> f64 {
        (0.05 * self.left).max(self.turn())
    }
}

/// The 95th percentile of these numbers.
fn p95(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[(sorted.len() * 95).div_ceil(100) - 1]
}

/// The p95 of errors of the promises to each kind, relative to the wait and to the [allowed](Promise::allowed) error.
/// Prints these, and those of promises that later requests delayed. The `board` gets the errors as figures of `name`.
async fn errors(name: &str, mix: &[Kind], takes: &Tokens, board: &mut Scoreboard) -> Vec<(Kind, f64, f64)> {
    let (mut early, mut last) = (Vec::new(), Vec::new());
    for number in 0..10 {
        let (before, promises) = promised(number + 10_000 * seed(), 2000, mix, takes).await;
        early.extend(before);
        last.extend(promises);
    }
    for Promise { kind, flow, urgency, predicted, left, .. } in last.iter().take(18) {
        println!("{kind:?} of flow {flow} in band {urgency}: {predicted:.2} s, and left after {left:.2} s");
    }
    let of = |promises: &[Promise], kind, error: fn(&Promise) -> f64| {
        p95(promises.iter().filter(|promise| promise.kind == kind).map(error))
    };
    let relative = |promise: &Promise| promise.error() / promise.left.max(0.01);
    // Later requests delay it.
    let sooner = |promise: &Promise| (promise.predicted - promise.left) / promise.allowed();
    let mut all: Vec<f64> = early.iter().chain(&last).map(sooner).collect();
    all.sort_unstable_by(f64::total_cmp);
    let [p95, p99, most] = [0.95, 0.99, 1.0].map(|share| all[(all.len() as f64 * share) as usize - 1]);
    println!("sooner than promised, in what is allowed: p95 {p95:.2}, p99 {p99:.2}, at most {most:.2}");
    let sooner = p95;
    let wrong = |promise: &Promise| (promise.patience - promise.left) / promise.turn();
    let wrong = last.iter().map(wrong).fold(f64::MIN, f64::max);
    println!("refused that would leave in time: sooner by {wrong:.2} turns at most");
    board.add(format!("{name}: refused wrongly for a lack of patience, turns at most"), wrong);
    let kinds = KINDS.iter().filter(|kind| mix.contains(kind));
    let mut errors = Vec::new();
    for &kind in kinds {
        let (on_arrival, known) = (of(&early, kind, relative), of(&last, kind, relative));
        let turns = of(&last, kind, |promise| promise.error() / promise.allowed());
        println!("{kind:?}: p95 {known:.3}, {turns:.2} of what is allowed; {on_arrival:.3} with others to come");
        board.add(format!("{name}, {kind:?}: error in waits, p95"), known);
        board.add(format!("{name}, {kind:?}: error in what is allowed, p95"), turns);
        errors.push((kind, known, turns));
    }
    assert!(sooner <= 1.0, "too many are refused that would leave in time: {sooner}");
    assert!(wrong <= 1.0, "refused, and would have left in time: {wrong} turns");
    errors
}

/// The p95 of the errors is at most `most` of what is [allowed](Promise::allowed).
async fn promises_are_kept(name: &str, mix: &[Kind], takes: &Tokens, most: f64, board: &mut Scoreboard) {
    for (kind, known, turns) in errors(name, mix, takes, board).await {
        assert!(turns <= most, "{kind:?}: {known}, {turns}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_promise_is_kept_to_a_turn_or_a_twentieth_if_nobody_comes_after_it() {
    let mut board = Scoreboard::of("a_promise_is_kept_to_a_turn_or_a_twentieth_if_nobody_comes_after_it");
    let mix = [Kind::Plain, Kind::Plain, Kind::Plain, Kind::Search];
    promises_are_kept("without tokens", &mix, &SMALL, 1.0, &mut board).await;
    board.judge();
}

#[tokio::test(start_paused = true)]
async fn what_those_ahead_take_of_another_unit_counts() {
    use Kind::{Plain, Search, Tokens};
    let mix = [Plain, Plain, Plain, Plain, Plain, Tokens, Tokens, Tokens, Tokens, Search];
    let mut board = Scoreboard::of("what_those_ahead_take_of_another_unit_counts");
    // Two turns, or a tenth of the wait: the estimate takes flows for alike in what they take of tokens.
    promises_are_kept("few tokens", &mix, &SMALL, 2.0, &mut board).await;
    promises_are_kept("many tokens", &mix, &LARGE, 2.0, &mut board).await;
    board.judge();
}

/// A flow's requests for a sub-limit of 90/s take 90 of 100 slots a second. So a plain request of the flow behind 100
/// others waits for 10 s: at 10/s.
#[tokio::test(start_paused = true)]
async fn request_beside_a_sub_limit_nearly_as_fast_as_its_host_is_told_its_wait() {
    let world = World::with("100/s", |policy| {
        (policy.margin, policy.max_wait) = (MarginSpec::Fixed(ms(0)), Duration::MAX);
        policy.max_waiting = usize::MAX;
    });
    let mut search = Policy::new("search", vec!["*".parse().unwrap()]);
    search.limits = "90/s".parse::<Limits>().unwrap().limits;
    (search.max_wait, search.max_waiting) = (Duration::MAX, usize::MAX);
    let search: Draws = Some([Draw::new(1, search.into())].into());
    let searches: Vec<_> =
        (0..2000).map(|_| world.lane.admit(AdmitRequest { draws: search.clone(), ..ask(kind()) })).collect();
    let plain: Vec<_> = (0..100).map(|_| world.lane.admit(ask(kind()))).collect();
    let last = world.lane.admit(ask(kind()));
    let Admission::Wait(waiting) = &last else { panic!("others wait") };
    let predicted = waiting.expected.since(Instant::START).as_secs_f64();
    let mut tasks = tokio::task::JoinSet::new();
    for admission in searches.into_iter().chain(plain) {
        tasks.spawn(async move { permitted(admission).await.sent() });
    }
    permitted(last).await.sent();
    let left = world.clock.now().since(Instant::START).as_secs_f64();
    println!("told {predicted:.2} s, left after {left:.2} s");
    assert!((predicted - left).abs() <= 0.1 * left, "{predicted} s, left after {left} s");
}
