//! Amount of each unit that a request takes.

mod text;

use andante_clock::nanos;

use super::{Amount, LimitSpec, Unit, lesser};

/// Amount of each unit that a request takes: requests, nearly always one, and other units that its rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cost {
    requests: Amount,
    share: Amount,
    /// Units other than requests with a known amount; [`Unit::REQUESTS`] ends the list.
    units: [Unit; Self::MOST],
    amounts: [u32; Self::MOST],
    /// [`OPEN`](Self::OPEN) if only the response tells the amount of some unit, and one bit for each of `amounts` that
    /// is a reservation until then.
    pending_usage: u8,
}

/// Total of each unit that several requests take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    requests: u64,
    /// Number of costs in the sum.
    costs: u64,
    others: Vec<UnitSum>,
}

/// Sum of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnitSum {
    unit: Unit,
    amount: u64,
    /// Number of costs that state an amount of the unit.
    costs: u64,
}

/// The longest window divided by this is still a share of at least 1, so that shares differ where costs do.
const SHARES: u64 = 1 << 16;

// === impl Cost ===

impl Cost {
    /// A single request and no other unit.
    pub const MIN: Self = Self {
        requests: Amount::MIN,
        share: Amount::MIN,
        units: [Unit::REQUESTS; Self::MOST],
        amounts: [0; Self::MOST],
        pending_usage: 0,
    };
    /// Maximum number of units besides requests in one cost.
    pub const MOST: usize = 3;
    /// The bit after those of `amounts`.
    const OPEN: u8 = 1 << Self::MOST;

    /// A number of requests and no other unit.
    pub fn new(requests: u32) -> Option<Self> {
        Some(Amount::new(requests)?.into())
    }

    /// This cost with `amount` of `unit`, which may be 0. Units beyond [`MOST`](Self::MOST) are not counted: a
    /// configuration whose rules count more units for one host is refused.
    #[must_use]
    pub fn with(mut self, unit: Unit, amount: u32) -> Self {
        if unit == Unit::REQUESTS {
            self.requests = Amount::new(amount).unwrap_or(Amount::MIN);
            self.share = self.requests;
            return self;
        }
        let place = (0..Self::MOST).find(|&place| [Unit::REQUESTS, unit].contains(&self.units[place]));
        if let Some(place) = place {
            (self.units[place], self.amounts[place]) = (unit, amount);
        }
        self
    }

    /// This cost, for a request that takes unstated amounts of some units.
    #[must_use]
    pub fn open(self) -> Self {
        Self { pending_usage: self.pending_usage | Self::OPEN, ..self }
    }

    /// Returns true if the request takes unstated amounts of some units.
    pub fn is_open(&self) -> bool {
        self.pending_usage & Self::OPEN != 0
    }

    /// This cost with `amount` of `unit` reserved until the response reports the usage.
    #[must_use]
    pub fn reserving(self, unit: Unit, amount: u32) -> Self {
        let cost = self.with(unit, amount).open();
        Self { pending_usage: cost.pending_usage | cost.bit(unit), ..cost }
    }

    /// This cost without a reservation of `unit`: the response has reported the usage.
    #[must_use]
    pub fn told(self, unit: Unit) -> Self {
        Self { pending_usage: self.pending_usage & !self.bit(unit), ..self }
    }

    /// Units with a reservation until the response reports the usage.
    pub fn reserved(&self) -> impl Iterator<Item = Unit> {
        let (units, pending_usage) = (self.units, self.pending_usage);
        (0..Self::MOST).filter(move |place| pending_usage & 1 << place != 0).map(move |place| units[place])
    }

    fn bit(&self, unit: Unit) -> u8 {
        self.units.iter().position(|other| *other == unit).map_or(0, |place| 1 << place)
    }

    /// Amount of `unit` that the request takes, if any.
    pub fn of(&self, unit: Unit) -> Option<Amount> {
        if unit == Unit::REQUESTS {
            return Some(self.requests);
        }
        self.others().find(|(other, _)| *other == unit).map(|(_, amount)| amount)
    }

    /// Amount of `unit` that `many` such requests take.
    pub fn times(&self, many: u64, unit: Unit) -> u64 {
        self.of(unit).map_or(0, |amount| many * u64::from(amount.get()))
    }

    /// Returns true if the cost states an amount of `unit`, even 0.
    pub fn says(&self, unit: Unit) -> bool {
        unit == Unit::REQUESTS || self.units.contains(&unit)
    }

    /// Number of requests that the request counts as.
    pub fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Amounts above 0 of units other than requests.
    pub fn others(&self) -> impl Iterator<Item = (Unit, Amount)> {
        self.said().filter_map(|(unit, amount)| Some((unit, Amount::new(amount)?)))
    }

    /// Stated amounts of units other than requests, including 0.
    fn said(&self) -> impl Iterator<Item = (Unit, u32)> {
        let end = self.units.iter().position(|unit| *unit == Unit::REQUESTS).unwrap_or(Self::MOST);
        self.units[..end].iter().zip(&self.amounts).map(|(unit, amount)| (*unit, *amount))
    }

    /// This cost, completed with the amounts that only `other` states, including 0.
    #[must_use]
    pub fn completed_by(self, other: &Self) -> Self {
        other.said().filter(|(unit, _)| !self.says(*unit)).fold(self, |cost, (unit, amount)| cost.with(unit, amount))
    }

    /// This stated cost without the amounts of 0 of units for which `is_unstated` holds.
    #[must_use]
    pub fn without_zeros(self, is_unstated: impl Fn(Unit) -> bool) -> Self {
        let stated = self.said().filter(|(unit, amount)| *amount > 0 || !is_unstated(*unit));
        stated.fold(self.requests.into(), |cost: Self, (unit, amount)| cost.with(unit, amount))
    }

    /// Amount of each unit, requests first.
    pub fn each(&self) -> impl Iterator<Item = (Unit, Amount)> {
        std::iter::once((Unit::REQUESTS, self.requests)).chain(self.others())
    }

    /// Sum of both costs.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let with = |both: Self, (unit, amount): (Unit, Amount)| {
            let own = self.of(unit).map_or(0, Amount::get);
            both.with(unit, own.saturating_add(amount.get()))
        };
        other.each().fold(*self, with)
    }

    /// Smaller amount of each unit that both costs take.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        let mut least = Self { share: self.share.min(other.share), ..self.requests.min(other.requests).into() };
        for (unit, amount) in self.others() {
            least = least.with(unit, other.of(unit).map_or(0, |others| lesser(others, amount).get()));
        }
        least
    }

    /// Returns true if this cost takes less of any unit than `other`, so that it may fit where `other` does not.
    pub fn takes_less(&self, other: &Self) -> bool {
        let less = |(unit, amount)| self.of(unit).is_none_or(|own| own < amount);
        self.requests < other.requests || other.others().any(less)
    }

    /// Returns true if the request takes units other than requests.
    pub fn is_metered(&self) -> bool {
        self.pending_usage != 0 || self.amounts != [0; Self::MOST]
    }

    /// This cost reduced to requests.
    #[must_use]
    pub fn unmetered(&self) -> Self {
        self.requests.into()
    }

    /// The largest amount: how many sequence numbers a charge of this cost covers.
    pub(super) fn span(&self) -> u64 {
        self.amounts
            .iter()
            .fold(self.requests, |span, amount| span.max(Amount::new(*amount).unwrap_or(span)))
            .get()
            .into()
    }

    /// Weight among waiting requests. Rules that count only requests use the number of requests.
    pub fn share(&self) -> u64 {
        self.share.get().into()
    }

    /// This cost with its share under `limits`: the longest time that any of them needs to allow the cost.
    #[must_use]
    pub fn shared(self, limits: &[LimitSpec]) -> Self {
        if limits.iter().all(|limit| limit.unit == Unit::REQUESTS) {
            return Self { share: self.requests, ..self };
        }
        let shortest = limits.iter().map(|limit| nanos(limit.rate.per)).min().unwrap_or_default();
        let times = limits.iter().filter_map(|limit| {
            let amount = self.of(limit.unit)?;
            Some(nanos(limit.rate.interval()).saturating_mul(amount.get().into()))
        });
        let share = times.max().unwrap_or_default().div_ceil((shortest / SHARES).max(1));
        let share = Amount::new(u32::try_from(share).unwrap_or(u32::MAX)).unwrap_or(Amount::MIN);
        Self { share, ..self }
    }
}

impl From<Amount> for Cost {
    fn from(requests: Amount) -> Self {
        Self { requests, share: requests, ..Self::MIN }
    }
}

// === impl Sum ===

impl Sum {
    /// Adds `cost`.
    pub fn add(&mut self, cost: &Cost) {
        self.requests += u64::from(cost.requests());
        self.costs += 1;
        for (unit, amount) in cost.said() {
            let sum = self.sum_of(unit);
            sum.amount += u64::from(amount);
            sum.costs += 1;
        }
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        self.requests += other.requests;
        self.costs += other.costs;
        for other in &other.others {
            let sum = self.sum_of(other.unit);
            sum.amount += other.amount;
            sum.costs += other.costs;
        }
    }

    /// Replaces `reserved` units, added before, by the `used` ones.
    pub fn settle(&mut self, unit: Unit, reserved: u64, used: u64) {
        let sum = if unit == Unit::REQUESTS { &mut self.requests } else { &mut self.sum_of(unit).amount };
        *sum = (*sum + used).saturating_sub(reserved);
    }

    /// Subtracts a `cost` that was added before.
    pub fn subtract(&mut self, cost: &Cost) {
        self.requests -= u64::from(cost.requests());
        self.costs -= 1;
        for (unit, amount) in cost.said() {
            let sum = self.sum_of(unit);
            sum.amount -= u64::from(amount);
            sum.costs -= 1;
        }
    }

    fn sum_of(&mut self, unit: Unit) -> &mut UnitSum {
        let known = self.others.iter().position(|sum| sum.unit == unit);
        let index = known.unwrap_or_else(|| {
            self.others.push(UnitSum { unit, amount: 0, costs: 0 });
            self.others.len() - 1
        });
        &mut self.others[index]
    }

    /// Sums of units other than requests.
    pub fn others(&self) -> impl Iterator<Item = (Unit, u64)> {
        self.others.iter().map(|sum| (sum.unit, sum.amount))
    }

    /// Number of costs in the sum.
    pub fn costs(&self) -> u64 {
        self.costs
    }

    /// Number of costs that state nothing about `unit`.
    pub fn unsaid(&self, unit: Unit) -> u64 {
        if unit == Unit::REQUESTS {
            return 0;
        }
        self.costs - self.others.iter().find(|sum| sum.unit == unit).map_or(0, |sum| sum.costs)
    }

    /// Sum of `unit`.
    pub fn of(&self, unit: Unit) -> u64 {
        if unit == Unit::REQUESTS {
            return self.requests;
        }
        self.others.iter().find(|sum| sum.unit == unit).map_or(0, |sum| sum.amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn unit(name: &str) -> Unit {
        Unit::named(name).unwrap()
    }

    #[test]
    fn a_cost_says_how_much_of_each_unit() {
        let (tokens, points) = (unit("tokens"), unit("points"));
        let cost = Cost::MIN.with(tokens, 500).with(points, 0).with(Unit::REQUESTS, 2);
        assert_eq!((cost.requests(), cost.of(Unit::REQUESTS), cost.of(tokens)), (2, Amount::new(2), Amount::new(500)));
        assert_eq!((cost.of(points), cost.says(points), Cost::MIN.says(points)), (None, true, false));
        assert!(cost.is_metered() && !Cost::MIN.is_metered() && !cost.unmetered().is_metered());
        assert_eq!((cost.span(), Cost::new(9).unwrap().span()), (500, 9));
        let rule = Cost::new(9).unwrap().with(tokens, 7).with(points, 3).with(unit("bytes"), 0);
        assert_eq!(cost.completed_by(&rule), cost.with(unit("bytes"), 0), "that it takes nothing is said");
        let without = cost.without_zeros(|unit| unit == points);
        assert_eq!((without, without.says(points)), (Cost::new(2).unwrap().with(tokens, 500), false));
        assert_eq!(cost.without_zeros(|unit| unit == tokens), cost, "500 is an amount");
    }

    #[test]
    fn what_takes_less_of_one_unit_may_find_room() {
        let (tokens, points) = (unit("tokens"), unit("points"));
        let of = |tokens_, points_| Cost::MIN.with(tokens, tokens_).with(points, points_);
        assert!(of(1, 9).takes_less(&of(2, 1)) && of(0, 9).takes_less(&of(2, 1)) && of(2, 0).takes_less(&of(2, 1)));
        assert!(!of(2, 1).takes_less(&of(2, 1)) && !of(3, 9).takes_less(&of(2, 1)) && !of(9, 9).takes_less(&Cost::MIN));
        assert!(Cost::MIN.takes_less(&Cost::new(2).unwrap()));
        let least = |one: Cost, other: Cost| one.least(&other).others().collect::<Vec<_>>();
        assert_eq!(least(of(1, 9), of(2, 1)), [(tokens, Amount::MIN), (points, Amount::MIN)]);
        assert_eq!(least(of(1, 0), of(0, 1)), [], "they have nothing in common");
    }

    #[test]
    fn the_scarcest_unit_is_what_counts_among_others() {
        let limits: Limits = "600/min, 60000 tokens/min".parse().unwrap();
        let share = |tokens| Cost::MIN.with(unit("tokens"), tokens).shared(&limits.limits).share();
        // One request takes 100 ms of its limit, and so do 100 tokens.
        assert_eq!(share(1), share(100));
        let (one, ten) = (share(100) as f64, share(1000) as f64);
        assert!((ten / one - 10.0).abs() < 0.1, "{one} {ten}");
        let requests: Limits = "600/min".parse().unwrap();
        assert_eq!(Cost::new(7).unwrap().with(unit("tokens"), 5000).shared(&requests.limits).share(), 7);
    }

    #[test]
    fn a_cost_is_read_as_it_is_written() {
        let cost = |text: &str| text.parse::<Cost>();
        assert_eq!(cost("5").unwrap(), Cost::new(5).unwrap());
        let some = cost("tokens=500,points = 0").unwrap();
        assert_eq!(some, Cost::MIN.with(unit("tokens"), 500).with(unit("points"), 0));
        assert_eq!((some.of(unit("points")), some.says(unit("points"))), (None, true));
        assert!(cost("a=0, b=0, c=0, d=1").is_err(), "of four units it says something");
        for text in ["requests=5", "tokens=500, points=3", "requests=2, tokens=1"] {
            assert_eq!(cost(text).unwrap().to_string(), text);
        }
        for text in ["", "0", "many", "tokens", "tokens=-1", "Tokens=1", "requests=0", "a=1, b=1, c=1, d=1"] {
            assert!(cost(text).is_err(), "{text}");
        }
        assert_eq!(cost("many").unwrap_err().to_string(), "expected a cost, found \"many\"");
    }

    #[test]
    fn what_was_added_can_be_taken_off() {
        let tokens = unit("tokens");
        let (mut sum, cost) = (Sum::default(), Cost::MIN.with(tokens, 500));
        sum.add(&cost);
        sum.add(&Cost::new(3).unwrap());
        assert_eq!((sum.of(Unit::REQUESTS), sum.of(tokens)), (4, 500));
        assert_eq!((sum.unsaid(tokens), sum.unsaid(Unit::REQUESTS)), (1, 0));
        sum.add(&Cost::MIN.with(tokens, 0));
        assert_eq!(sum.unsaid(tokens), 1, "that it takes nothing is said");
        sum.subtract(&Cost::MIN.with(tokens, 0));
        sum.subtract(&cost);
        assert_eq!((sum.of(Unit::REQUESTS), sum.of(tokens), sum.unsaid(tokens)), (3, 0, 1));
    }
}
