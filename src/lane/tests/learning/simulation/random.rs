//! Random limiters.

use super::{
    dice::Dice,
    limiter::Limiter,
    tells::{Tells, Wait},
    world::World,
};

const WINDOWS: [f64; 11] = [1.0, 1.0, 2.0, 5.0, 10.0, 10.0, 30.0, 60.0, 60.0, 7.0, 25.0];

/// The family of a random limiter. Beside other senders, some refusals come at any rate.
pub(super) fn family(world: &World) -> &'static str {
    let is_window = |limiter: &Limiter| !matches!(limiter, Limiter::Bucket { .. } | Limiter::Delay { .. });
    if world.strangers > 0.0 {
        "beside other senders"
    } else if world.limiters.iter().any(|(limiter, _)| is_window(limiter)) {
        "windows"
    } else {
        "buckets"
    }
}

/// The world of this seed.
pub(super) fn world(seed: u64) -> World {
    let mut dice = Dice::with_seed(seed * 104_729 + 7);
    let window = WINDOWS[(dice.fraction() * 11.0) as usize];
    let rate = 10f64.powf(-0.3 + dice.fraction() * 2.8);
    let limit = (rate * window).round().clamp(1.0, 20_000.0);
    let rate = limit / window;
    let sort = (dice.fraction() * 8.0) as usize;
    let (limiter, name) = match sort {
        0 => (Limiter::fixed(limit, window), "fixed"),
        1 => (Limiter::aligned(limit, window), "aligned"),
        2 => (Limiter::log(limit, window), "log"),
        3 => (Limiter::counter(limit, window), "counter"),
        4 => (Limiter::bucket(limit, rate), "full bucket"),
        5 => (Limiter::bucket(limit.min(5.0), rate), "bucket of 5"),
        6 => (Limiter::bucket(1.0, rate), "no burst"),
        _ => (Limiter::delay(20.0, rate), "delay"),
    };
    let tells = match (dice.fraction() * 10.0) as usize {
        _ if sort > 4 => Tells::Nothing,
        0..=3 => Tells::Nothing,
        4..=6 => Tells::Truth,
        7 => Tells::Late,
        8 => Tells::WrongWindow,
        _ if dice.fraction() < 0.5 => Tells::Frozen,
        _ => Tells::Others,
    };
    let refuses = if dice.fraction() < 0.25 { 503 } else { 429 };
    let wait = match (dice.fraction() * 6.0) as usize {
        _ if sort == 7 => Wait::Unsaid,
        0 => Wait::Truth,
        1 => Wait::Always(1.0),
        _ => Wait::Unsaid,
    };
    let latency = 0.01 * 15f64.powf(dice.fraction());
    let strangers = if dice.fraction() < 0.15 { rate * 0.3 } else { 0.0 };
    let shared = if strangers > 0.0 { " shared" } else { "" };
    let name = format!("#{seed} {name} {limit}/{window} {tells:?} {refuses} {wait:?} {:.0} ms{shared}", latency * 1e3);
    let mut world = World::new(&name, [limiter]);
    (world.tells, world.refuses, world.wait) = (tells, refuses, wait);
    (world.latency, world.jitter, world.work) = (latency, latency * 0.03, latency * 0.3);
    (world.strangers, world.lasts) = (strangers, 240.0);
    world.capacity = Some((rate - strangers).min(64.0 / latency * 0.9));
    world
}
