//! Slots are shared by requests, whatever else these take.

use andante_order::Urgency;

use super::*;

fn client(number: u8) -> Claim {
    Claim { client: ClientId::of([10, 0, 0, number].into()), ..Claim::USUAL }
}

fn asks(world: &World, claim: Claim, tokens: u32) -> AdmitRequest {
    AdmitRequest { cost: cost(world, &[("tokens", tokens)]), claim, ..ask(kind()) }
}

/// Number of requests of `claim` among `left`, until `seconds` have passed.
fn until(left: &[(Instant, AdmitRequest)], seconds: u64, claim: &Claim) -> usize {
    let end = Instant::START + Duration::from_secs(seconds);
    left.iter().filter(|(at, left)| *at < end && left.claim == *claim).count()
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_tokens_has_its_share_of_the_slots_all_the_same() {
    let world = metered("100/s, 60000 tokens/min");
    let (one, other) = (client(1), client(2));
    let costly = (0..20).map(|_| asks(&world, one, 4000));
    let plain = (0..1000).flat_map(|_| [asks(&world, one, 0), asks(&world, other, 0)]);
    let left = leaving(&world, costly.chain(plain).collect()).await;
    // 6,000 tokens are saved up, and 1,000 are renewed each second.
    let costly = left.iter().filter(|(at, left)| at.as_nanos() < 10_000_000_000 && left.cost.is_metered()).count();
    assert!((3..=4).contains(&costly), "{costly}");
    let (own, others) = (until(&left, 10, &one), until(&left, 10, &other));
    assert!(own.abs_diff(others) <= 2 && own + others >= 990, "{own} and {others} of 1,000");
}

#[tokio::test(start_paused = true)]
async fn an_urgency_that_has_had_tokens_has_its_share_of_the_slots_all_the_same() {
    let world = metered("100/s, 60000 tokens/min");
    let (usual, last) = (client(1), Claim { urgency: Urgency::LEAST, ..client(2) });
    let costly = (0..2).map(|_| asks(&world, last, 6000));
    let plain = (0..2000).flat_map(|_| [asks(&world, usual, 0), asks(&world, last, 0)]);
    let left = leaving(&world, costly.chain(plain).collect()).await;
    // The last urgency gets one slot after each 20 of others.
    let last = until(&left, 15, &last);
    assert!((70..=73).contains(&last), "{last} of 1,500");
}
