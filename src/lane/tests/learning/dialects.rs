//! Unconfigured lanes whose API announces its limit in its own dialect: all of it is used, and hardly any request is
//! refused.

use std::time::Duration;

use andante_limiter::{CountingWindow, MockDialect};
use andante_scoreboard::{Scoreboard, seed};

use super::{Trial, ms, print_trials, s};

/// Dialects that report the rest of the limit on every answer: no refusal is needed.
const TELL: &[&str] = &[
    "kong",
    "envoy",
    "gravitee",
    "docker",
    "cloudflare",
    "ietf",
    "ietf-draft7",
    "ietf-draft6",
    "ietf-draft3",
    "openai",
    "groq",
    "anthropic",
    "github",
    "gitlab",
    "twitter",
    "discord",
    "reddit",
    "zendesk",
    "mastodon",
    "atlassian",
    "linear",
    "bigcommerce",
    "hubspot",
];

/// Dialects that report how long to wait on refusals, or the rest but no reset: the first refusal teaches the rate.
const ASK_TO_WAIT: &[&str] = &[
    "gcp",
    "azure-cosmos",
    "azure-apim",
    "retry-after",
    "retry-after-date",
    "retry-after-ms",
    "azure",
    "together",
    "mailgun",
    "shopify",
    "slack",
    "telegram",
    "binance",
];

/// Dialects of which less can be known, and why.
const LESS: &[(&str, &str)] = &[
    ("klaviyo", "also tells of a second's burst, which it does not insist on, and which is kept"),
    ("none", "nothing is said: the rate is found by trying"),
    ("aws", "as none, and a code in the body"),
    ("aws-s3", "as aws"),
    ("kraken", "as none, and 200 with an error in the body"),
    ("amazon-sp", "tells the rate alone, and not how many fit into a burst"),
    ("github-secondary", "shows another bucket's numbers, which have room: the first crowd is refused"),
    ("graphql", "its refusals are 200 and look served until their bodies were read"),
    ("shopify-graphql", "counts points, in a body that is not always looked at"),
    ("spotify", "rounds Retry-After down: who obeys is refused once more"),
    ("tiendanube", "resets in milliseconds are not known from seconds until time has passed"),
    ("musicbrainz", "503 with the whole world's numbers: overload, which teaches no rate"),
];

/// A limiter that is known by how it counts, and what is promised of it.
struct Limiter {
    dialect: &'static str,
    /// The workers' requests, in turn, and the rate per second that the limiter allows for each sender.
    senders: &'static [(&'static str, &'static str)],
    allowed: &'static [f64],
    /// The used share of that from the second minute on, and the share of refusals among all answers after the first
    /// window.
    share: f64,
    late: f64,
}

/// 100 per 10 s of each, which is 10 a second. The shares are what `docs/limiters.md` demands of other people's
/// limiters: 0.95 and no refusal if the API tells its limit, 0.90 and 2% if it only refuses.
const LIMITERS: &[Limiter] = &[
    // The second limit, 50 a second, delays no request that leaves evenly.
    Limiter { share: 0.95, late: 0.0, ..bare("two-limits") },
    // To obey a reset that is a second late would cost an eleventh.
    Limiter { share: 0.95, late: 0.0, ..bare("late-reset") },
    bare("no-burst"),
    bare("503"),
    bare("503-retry-after"),
    bare("token-bucket"),
    bare("sliding-counter"),
    Limiter { senders: &[("GET", ""), ("POST", "")], allowed: &[10.0, 2.0], ..bare("per-route") },
    Limiter { senders: &[("GET", "one"), ("GET", "two")], allowed: &[10.0, 10.0], ..bare("per-key") },
];

const fn bare(dialect: &'static str) -> Limiter {
    Limiter { dialect, senders: &[("GET", "")], allowed: &[10.0], share: 0.90, late: 0.02 }
}

/// Of a daily quota they say "come back tomorrow" after 100 requests: a trial cannot get more.
const DAILY: &[&str] = &["zoom", "salesforce"];

fn trial(dialect: &'static str, window: CountingWindow) -> Trial {
    Trial { dialect, window, ..Trial::default() }
}

/// Long enough for the last tenth of the last window, which is spread to its end, not to count for much.
fn long(dialect: &'static str, window: CountingWindow) -> Trial {
    Trial { requests: 6000, ..trial(dialect, window) }
}

fn promises(trial: Trial, share: f64, most: usize, later: usize) {
    let what = format!("{} {} {:?} {}", trial.dialect, trial.window, trial.latency, trial.workers);
    let outcome = trial.run();
    assert_eq!(outcome.passed_on, 0, "{what}: workers were told");
    let (used, refused) = (outcome.used("100/10s"), outcome.refused.len());
    assert!(used >= share, "{what}: used {used:.3} of what is allowed");
    assert!(refused <= most, "{what}: {refused} refused");
    let after = outcome.refused_after(ms(10_100));
    assert!(after <= later, "{what}: {after} refused after the first window");
}

#[test]
fn what_an_api_tells_is_used_and_nothing_is_refused() {
    for dialect in TELL {
        promises(long(dialect, CountingWindow::Sliding), 0.97, 0, 0);
        promises(long(dialect, CountingWindow::Fixed), 0.97, 0, 0);
    }
}

#[test]
fn of_a_bucket_that_tells_all_is_used() {
    for seed in 0..8 {
        for dialect in TELL {
            promises(Trial { seed, ..trial(dialect, CountingWindow::Bucket) }, 0.93, 2, 2);
        }
    }
}

#[test]
fn an_api_that_asks_to_wait_refuses_in_its_first_window_only() {
    for dialect in ASK_TO_WAIT {
        promises(trial(dialect, CountingWindow::Sliding), 0.95, 30, 0);
        promises(trial(dialect, CountingWindow::Fixed), 0.95, 30, 0);
        // A bucket asks to wait for one request, which does not reveal its size.
        promises(trial(dialect, CountingWindow::Bucket), 0.98, 120, 30);
    }
}

/// Their distribution counts, and no single dialect. Refusals are those of 3,000 requests.
#[test]
fn of_some_dialects_less_can_be_known() {
    let (mut used, mut refused) = (Vec::new(), Vec::new());
    for (dialect, why) in LESS {
        assert!(!why.is_empty());
        let trial = Trial { seed: 1 + seed(), ..trial(dialect, CountingWindow::Sliding) };
        let outcome = trial.run();
        assert_eq!(outcome.passed_on, 0, "{dialect}: workers were told");
        used.push(outcome.used("100/10s"));
        refused.push(outcome.refused.len() as f64);
    }
    let mut board = Scoreboard::of("of_some_dialects_less_can_be_known");
    board.add_used("all", &used);
    board.add_refused("all, number of 3,000", &refused);
    board.judge();
}

/// Measures a limiter from the second minute on: the used share of each sender, and the share of late refusals among
/// all answers.
fn measured(trial: Trial, allowed: &[f64]) -> (Vec<f64>, f64) {
    let (from, to) = (s(60), s(240));
    let requests = (allowed.iter().sum::<f64>() * (to + s(20)).as_secs_f64()) as usize;
    let dialect = trial.dialect;
    let outcome = Trial { requests, ..trial }.run();
    assert_eq!(outcome.passed_on, 0, "{dialect}: workers were told");
    assert!(outcome.took > to, "{dialect}: more than is allowed, over after {:?}", outcome.took);
    let shares = allowed.iter().enumerate().map(|(sender, allowed)| outcome.pace_from(sender, from, to) / allowed);
    let after = |times: &[Duration]| times.iter().filter(|at| **at > ms(10_100)).count() as f64;
    let refused = after(&outcome.refused);
    (shares.collect(), refused / (refused + after(&outcome.accepted)))
}

#[test]
fn limiters_are_used_however_they_count() {
    let mut broken = Vec::new();
    for Limiter { dialect, senders, allowed, share, late } in LIMITERS {
        for seed in 0..4 {
            let window = dialect.parse::<MockDialect>().unwrap().window();
            let (shares, refused) = measured(Trial { senders, seed, ..trial(dialect, window) }, allowed);
            if shares.iter().any(|used| used < share) || refused > *late {
                let refused = 100.0 * refused;
                broken.push(format!(
                    "{dialect}, seed {seed}: used {shares:.3?} of what is allowed, {refused:.2}% refused"
                ));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// With five in flight, 20 ms on the network (21 with jitter) and 180 ms at the API, a client gets 5 per 0.201 s. The
/// limiter would serve 5 per 0.180 s: it does not see the network.
#[test]
fn as_many_are_under_way_as_a_limiter_allows() {
    for seed in 0..4 {
        let trial =
            Trial { limit: "5/s", work: ms(180), seed, ..trial("concurrency-503", CountingWindow::Concurrency) };
        let (shares, refused) = measured(trial, &[5.0 / 0.201]);
        assert!(shares[0] >= 0.9, "seed {seed}: used {shares:.3?} of what is allowed");
        assert!(refused <= 0.02, "seed {seed}: {:.2}% refused", 100.0 * refused);
    }
}

#[test]
fn a_daily_quota_is_told_of_at_once_and_nothing_is_refused() {
    for dialect in DAILY {
        let outcome = trial(dialect, CountingWindow::Sliding).run();
        assert_eq!((outcome.accepted.len(), outcome.refused.len()), (100, 0), "{dialect}");
    }
}

/// With DIALECTS it prints a trial of each of these.
#[test]
fn every_dialect_is_in_one_of_the_tables() {
    use clap::ValueEnum;
    if let Ok(dialects) = std::env::var("DIALECTS") {
        print_trials(dialects.leak());
    }
    let listed = |name: &str| {
        [TELL, ASK_TO_WAIT, DAILY].concat().contains(&name)
            || LESS.iter().any(|(listed, _)| *listed == name)
            || LIMITERS.iter().any(|limiter| limiter.dialect == name)
            || name == "concurrency-503"
    };
    let missing =
        andante_limiter::MockDialect::value_variants().iter().map(ToString::to_string).filter(|name| !listed(name));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn near_and_far_apis_are_used_alike() {
    for latency in [ms(1), ms(200)] {
        for dialect in TELL.iter() {
            promises(Trial { latency, ..long(dialect, CountingWindow::Sliding) }, 0.97, 0, 0);
        }
        for dialect in ASK_TO_WAIT {
            // A date and the answer's `Date` are in whole seconds: up to two of 300 s are lost not to be early.
            let share = if *dialect == "retry-after-date" { 0.94 } else { 0.95 };
            // Requests in flight at the first refusal are refused as well.
            promises(Trial { latency, ..trial(dialect, CountingWindow::Sliding) }, share, 64, 0);
        }
    }
}

#[test]
fn few_and_many_workers_use_it_alike() {
    for workers in [8, 500] {
        for dialect in TELL.iter() {
            promises(Trial { workers, ..long(dialect, CountingWindow::Sliding) }, 0.97, 0, 0);
        }
        for dialect in ASK_TO_WAIT {
            promises(Trial { workers, ..trial(dialect, CountingWindow::Sliding) }, 0.95, 30, 0);
        }
    }
}

#[test]
fn what_refills_is_used_though_its_reset_means_full() {
    for dialect in ["openai", "discord", "ietf", "linear"] {
        promises(trial(dialect, CountingWindow::Bucket), 0.95, 0, 0);
    }
}

#[test]
fn resets_in_milliseconds_are_found_out_by_the_time_that_passes() {
    promises(trial("tiendanube", CountingWindow::Fixed), 0.95, 0, 0);
}

/// Half of the quota goes to another client. Each free slot is tried for, and the other may get it first.
#[test]
fn somebody_else_may_spend_the_same_quota() {
    for dialect in ["ietf", "github", "anthropic", "discord", "openai"] {
        let outcome = Trial { others: Some(ms(200)), requests: 1500, ..trial(dialect, CountingWindow::Sliding) }.run();
        assert_eq!(outcome.passed_on, 0, "{dialect}: workers were told");
        let pace = outcome.pace(s(20), s(200));
        assert!(pace >= 4.5, "{dialect}: {pace} of the 5 per second that are left to us");
        assert!(
            outcome.refused.len() <= 1000,
            "{dialect}: {} of our tries were refused, two in five",
            outcome.refused.len()
        );
    }
}

/// The provider documents an hour. Because another client has used five, the report fits both an hour that is nearly
/// over and ten seconds: the reset shows which. The numbers 94, 100, 100 and 6 leave in the windows of ten seconds.
/// Each window loses up to two seconds, as whole seconds are rounded and not used to their end.
#[test]
fn a_documented_window_is_found_to_be_shorter_at_its_first_reset() {
    for ago in [ms(500), s(4), s(9)] {
        let begun = Some((5, ago));
        let outcome = Trial { begun, requests: 300, ..trial("github", CountingWindow::Fixed) }.run();
        assert_eq!(outcome.refused, Vec::<Duration>::new(), "{ago:?}");
        assert!(outcome.took < s(40), "{ago:?}: {:?}", outcome.took);
    }
}

/// In an hour begun by other clients, spent units are restored at its end, which the API announces: 90 and 90 leave
/// within the ten minutes that were left.
#[test]
fn what_was_sent_in_a_window_of_others_comes_back_at_its_end() {
    let begun = Some((5, s(3000)));
    let outcome = Trial { limit: "100/h", begun, requests: 180, ..trial("github", CountingWindow::Fixed) }.run();
    assert_eq!(outcome.refused.len(), 0);
    assert!((s(3600)..s(3610)).contains(&outcome.took), "{:?}", outcome.took);
}

/// Without delay, one request leaves each ten seconds, 60 in the ten minutes that were left of the hour. In the next
/// hour 90 leave as they come. The earlier ones do not count there, even if answers overtake the first of the next
/// hour. Requests in flight at that moment may count twice.
#[test]
fn what_was_sent_in_a_window_of_others_does_not_count_in_the_next_one() {
    let begun = Some((5, s(3000)));
    for (workers, requests) in [(1, 149), (2, 147), (4, 145)] {
        let latency = s(10) * workers as u32;
        let slow = Trial { limit: "100/h", begun, workers, latency, requests, ..Trial::default() };
        let outcome = Trial { dialect: "github", window: CountingWindow::Fixed, ..slow }.run();
        assert_eq!(outcome.refused.len(), 0, "{workers}");
        let even = s(3000 + 10 * requests as u64);
        assert!((even - s(10)..even + s(50)).contains(&outcome.took), "{workers}: {:?}", outcome.took);
    }
}
