//! Predictions for requests that draw on several sub-limits while others draw on some of these.

use super::*;

/// The rules of a host: a budget for all, one for a part, one for a part of that, and one for each tenant.
struct Host {
    world: World,
    part: Arc<Policy>,
    inner: Arc<Policy>,
    tenant: Arc<Policy>,
    /// Rate of each of these, per second.
    rates: [u32; 4],
}

/// The sub-limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    Nothing,
    Part,
    Inner,
    Tenant(u64),
    PartAndTenant(u64),
}

const CLIENTS: u8 = 4;
const URGENCIES: [u8; 3] = [1, 3, 5];
/// Number of requests that come last.
const LAST: usize = 8;

impl Host {
    fn new(dice: &mut fastrand::Rng) -> Self {
        let all = [20, 50, 100][dice.usize(..3)];
        let part = dice.u32(2..all);
        let rates = [all, part, dice.u32(1..part), dice.u32(1..10)];
        let world = World::with(&format!("{all}/s"), |policy| {
            policy.margin = MarginSpec::Fixed(ms(10));
            policy.max_wait = Duration::from_secs(1_000_000);
        });
        let rule = |name: &str, rate: u32| {
            let mut rule = Policy::new(name, vec!["*".parse().unwrap()]);
            rule.limits = format!("{rate}/s").parse::<Limits>().unwrap().limits;
            rule.max_wait = Duration::from_secs(1_000_000);
            rule.into()
        };
        let [_, part, inner, tenant] = rates;
        Self { world, part: rule("part", part), inner: rule("inner", inner), tenant: rule("tenant", tenant), rates }
    }

    fn request(&self, drawn: Drawn, urgency: u8, client: u8) -> AdmitRequest {
        let part = Draw::new(1, self.part.clone());
        let of_tenant = |tenant| Draw::new(10 + tenant, self.tenant.clone());
        let draws: Vec<Draw> = match drawn {
            Drawn::Nothing => Vec::new(),
            Drawn::Part => vec![part],
            Drawn::Inner => vec![part, Draw::new(2, self.inner.clone())],
            Drawn::Tenant(tenant) => vec![of_tenant(tenant)],
            Drawn::PartAndTenant(tenant) => vec![part, of_tenant(tenant)],
        };
        let urgency = Urgency::new(urgency).unwrap();
        let claim = Claim { urgency, client: ClientId::of([10, 0, 0, client].into()), ..Claim::USUAL };
        AdmitRequest { claim, draws: (!draws.is_empty()).then(|| draws.into()), ..ask(kind()) }
    }

    /// Interval between slots of the slowest of these budgets.
    fn spacing(&self, drawn: Drawn) -> f64 {
        let [all, part, inner, tenant] = self.rates;
        let rate = match drawn {
            Drawn::Nothing => all,
            Drawn::Part => part,
            Drawn::Inner => inner,
            Drawn::Tenant(_) => all.min(tenant),
            Drawn::PartAndTenant(_) => part.min(tenant),
        };
        1.0 / f64::from(rate)
    }
}

/// A combination of budgets, client and urgency.
#[derive(Clone, Copy, Debug)]
struct Sort {
    drawn: Drawn,
    client: u8,
    urgency: u8,
}

impl Sort {
    /// A random combination, at a host with this many tenants.
    fn random(dice: &mut fastrand::Rng, tenants: u64, client: u8) -> Self {
        let drawn = match dice.u8(..5) {
            0 => Drawn::Nothing,
            1 => Drawn::Part,
            2 => Drawn::Inner,
            3 => Drawn::Tenant(dice.u64(..tenants)),
            _ => Drawn::PartAndTenant(dice.u64(..tenants)),
        };
        Self { drawn, client, urgency: URGENCIES[dice.usize(..3)] }
    }

    /// The combination for another tenant.
    fn of_tenant(self, other: u64) -> Self {
        let drawn = match self.drawn {
            Drawn::Tenant(_) => Drawn::Tenant(other),
            Drawn::PartAndTenant(_) => Drawn::PartAndTenant(other),
            drawn => drawn,
        };
        Self { drawn, ..self }
    }

    /// Length of a turn at this host: one slot of each member, or the slots that others get before one of a lower
    /// urgency.
    fn turn(&self, host: &Host) -> f64 {
        let members = usize::from(CLIENTS + 1) * URGENCIES.len();
        let slots = if self.urgency > URGENCIES[0] { members.max(21) } else { members };
        slots as f64 * host.spacing(self.drawn)
    }
}

/// A request that came last: its sort, its predicted departure, the least patience with which it was let wait, and its
/// departure; in turns.
#[derive(Clone, Copy, Debug)]
struct Told {
    seed: u64,
    sort: Sort,
    predicted: f64,
    patience: f64,
    left: f64,
}

/// The requests that came last to a random host, where requests of a few sorts wait, of one tenant each or of all.
async fn told(seed: u64) -> Vec<Told> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let host = Host::new(&mut dice);
    let (requests, tenants, sorts) = (dice.usize(50..600), dice.u64(1..40), dice.usize(2..5));
    let sorts: Vec<_> = (0..sorts)
        .map(|_| {
            let client = dice.u8(..CLIENTS);
            Sort::random(&mut dice, tenants, client)
        })
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..requests + LAST {
        let is_last = number >= requests;
        let sort = if is_last { Sort::random(&mut dice, tenants, CLIENTS) } else { sorts[dice.usize(..sorts.len())] };
        let sort = if seed.is_multiple_of(2) { sort.of_tenant(dice.u64(..tenants)) } else { sort };
        let request = host.request(sort.drawn, sort.urgency, sort.client);
        let patience = if is_last { least_patience(&host.world, &request) } else { 0.0 };
        let (admission, clock, turn) = (host.world.lane.admit(request), host.world.clock, sort.turn(&host));
        let predicted = match &admission {
            Admission::Wait(waiting) => waiting.expected.since(Instant::START).as_secs_f64(),
            _ => 0.0,
        };
        tasks.spawn(async move {
            let mut permit = permitted(admission).await;
            let left = clock.now().since(Instant::START).as_secs_f64();
            permit.sent();
            permit.answered(&AnswerReport::SERVED, Instant::START);
            let told = Told { seed, sort, predicted: predicted / turn, patience: patience / turn, left: left / turn };
            (number, told)
        });
    }
    let told = tasks.join_all().await;
    told.into_iter().filter(|(number, _)| *number >= requests).map(|(_, told)| told).collect()
}

/// Lower urgencies are sometimes promised turns behind requests that wait for another budget, and then do not have to
/// wait for them.
#[tokio::test(start_paused = true)]
async fn what_a_slower_budget_holds_up_is_not_in_the_way() {
    let mut all = Vec::new();
    for number in 0..100 {
        all.extend(told(number + 100 * seed()).await);
    }
    let wrong = |told: &Told| told.patience - told.left;
    all.sort_unstable_by(|one, other| wrong(other).total_cmp(&wrong(one)));
    let by_a_turn = all.iter().filter(|told| wrong(told) > 1.0).count();
    let Told { seed, sort, patience, left, .. } = all[0];
    println!("of {} refused wrongly by more than a turn: {by_a_turn}", all.len());
    println!("host {seed}, {sort:?}: refused below {patience:.2} turns, and would leave after {left:.2}");
    let error = p95(all.iter().map(|told| (told.predicted - told.left).abs() / (0.05 * told.left).max(1.0)));
    let mut board = Scoreboard::of("what_a_slower_budget_holds_up_is_not_in_the_way");
    board.add("refused wrongly by more than a turn, in percent", 100.0 * by_a_turn as f64 / all.len() as f64);
    board.add("refused wrongly, turns at most", wrong(&all[0]));
    board.add("error in what is allowed, p95", error);
    board.judge();
    assert!(by_a_turn * 200 <= all.len(), "{by_a_turn} of {}", all.len());
    assert!(wrong(&all[0]) <= 1.5, "refused, and would have left in time: {:?}", all[0]);
    assert!(error <= 2.0, "{error} of what is allowed");
}
