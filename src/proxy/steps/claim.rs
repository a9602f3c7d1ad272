//! A request's claim on its turn, and its stated cost: `Priority`, `Andante-Flow`, `Andante-Cost`, and the client.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

use crate::{
    error::Error,
    lane::{
        AddedRule,
        order::{Claim, ClientId, FlowId, FlowRank, Levels, Urgency, Weight},
    },
    limit::{Cost, Unit},
    policy::{AssignedWeight, ClientIdentity, FlowOrder, Policy, ShareBy, ShareOf, TooSmall, Turns},
    proxy::{context::Proxy, message::priority, session::Requester, steps::keyed_hash},
};

pub(super) const FLOW: HeaderName = HeaderName::from_static("andante-flow");
const COST: HeaderName = HeaderName::from_static("andante-cost");
/// Most urgent value that every client may set, whatever its rule says.
const FREE: u8 = 3;

/// Claim of the request with these fields, which comes from `requester`.
pub(super) fn read(fields: &HeaderMap, requester: Requester, policy: &Policy) -> Claim {
    let (turns, usual) = (&policy.turns, usual(requester, policy));
    let urgency = urgency(fields, requester, turns, usual.urgency);
    let Some(flow) = fields.get(FLOW).map(|value| StatedFlow::read(value.as_bytes())) else {
        return Claim { urgency, ..usual };
    };
    Claim {
        urgency,
        flow: FlowId(keyed_hash::lasting(&*flow.name)),
        flow_weight: Weight(turns.weight_of_flow(&flow.name)),
        rank: if turns.flow_order == FlowOrder::Rank { flow.rank } else { FlowRank::LAST },
        ..usual
    }
}

/// Claim of a request that states nothing.
pub(super) fn usual(Requester { address, client }: Requester, policy: &Policy) -> Claim {
    let client_weight = Weight(policy.turns.weight_of_client(address));
    let urgency = policy.turns.urgency.and_then(Urgency::new).unwrap_or_default();
    Claim { urgency, client, client_weight, levels: levels(&policy.turns), ..Claim::USUAL }
}

/// Urgency of the request with these fields: what it states if it may, or else `usual`. Every client may set [`FREE`] and
/// less urgent values, and those that are no more urgent than `usual`.
pub(super) fn urgency(fields: &HeaderMap, requester: Requester, turns: &Turns, usual: Urgency) -> Urgency {
    let stated = priority::urgency(fields).and_then(Urgency::new);
    let may = |urgency: &Urgency| urgency.get() >= FREE.min(usual.get()) || turns.may_be_urgent(requester.address);
    stated.filter(may).unwrap_or(usual)
}

fn levels(turns: &Turns) -> Levels {
    match (turns.share_by, turns.flow_order) {
        (ShareBy::ClientThenFlow, FlowOrder::Fair) => Levels::ClientThenFlow,
        (ShareBy::FlowThenClient, FlowOrder::Fair) => Levels::FlowThenClient,
        (ShareBy::Flow, FlowOrder::Fair) => Levels::Flow,
        (ShareBy::Client | ShareBy::ClientThenFlow, _) => Levels::Client,
        (ShareBy::Flow | ShareBy::FlowThenClient, FlowOrder::FirstCome | FlowOrder::Rank) => Levels::InOrder,
    }
}

/// Name and rank of a flow.
struct StatedFlow<'a> {
    name: Cow<'a, [u8]>,
    rank: FlowRank,
}

impl<'a> StatedFlow<'a> {
    /// Value of `Andante-Flow`: an item with the parameter `rank`, `due` or both (RFC 9651 §3.3), as in
    /// `nightly;rank=2;due=@1764400000`. Any other value is a name as it stands. A parameter that is no rank, or no time,
    /// counts as none.
    fn read(value: &'a [u8]) -> Self {
        let as_it_stands = || Self { name: value.into(), rank: FlowRank::LAST };
        let Some(end) = memchr::memchr(b';', value) else { return as_it_stands() };
        let Ok(item) = Parser::new(value).parse::<Item>() else { return as_it_stands() };
        let parameter = |name: &str| item.params.get(name);
        let (rank, due) = (parameter("rank"), parameter("due"));
        if rank.is_none() && due.is_none() {
            return as_it_stands();
        }
        let name = match &item.bare_item {
            BareItem::String(name) => name.as_str().as_bytes().to_vec().into(),
            _ => value[..end].trim_ascii().into(),
        };
        let rank = rank.and_then(BareItem::as_integer).and_then(|rank| u16::try_from(i64::from(rank)).ok());
        let seconds = |due: &BareItem| due.as_integer().or_else(|| Some(due.as_date()?.unix_seconds()));
        let due = due.and_then(seconds).and_then(|due| u64::try_from(i64::from(due)).ok());
        Self { name, rank: FlowRank::new(rank.filter(|rank| *rank <= FlowRank::MOST), due) }
    }
}

/// Gives the waiting requests of `proxy` the current weights of their rules. Must be called on a tokio runtime.
pub fn reweigh_waiting(proxy: &Proxy) {
    for lane in proxy.lanes.all() {
        lane.reweigh(weights_of(&lane.policy().turns));
    }
}

/// Gives a claim its weights in `turns`.
fn weights_of(turns: &Turns) -> impl Fn(&Claim) -> Claim {
    let flows: Vec<_> = turns
        .weights
        .iter()
        .filter_map(|share| match &share.of {
            ShareOf::Flow(name) => Some((FlowId(keyed_hash::lasting(name.as_bytes())), Weight(share.weight))),
            ShareOf::Clients(_) => None,
        })
        .collect();
    move |claim| {
        let flow = flows.iter().find(|(flow, _)| *flow == claim.flow);
        // A shared place no longer knows which flows share it.
        let unknown = if claim.flow.is_shared() { claim.flow_weight } else { Weight::ONE };
        let flow_weight = flow.map_or(unknown, |(_, weight)| *weight);
        // A client may be a whole machine: whether it includes a smaller network or address is unknown.
        let within = |share: &AssignedWeight| match share.of {
            ShareOf::Clients(network) => {
                let machine = ClientIdentity::Machine.of(network.addr());
                ClientId::of(machine) == claim.client && !network.contains(&machine)
            }
            ShareOf::Flow(_) => false,
        };
        let client_weight = match turns.weights.iter().any(within) {
            true => claim.client_weight,
            false => Weight(turns.weight_of_client(claim.client.address())),
        };
        Claim { flow_weight, client_weight, ..*claim }
    }
}

/// Cost that the request with these fields states, if any.
pub(super) fn cost(fields: &HeaderMap, policy: &Policy, narrower: &[AddedRule]) -> Result<Option<Cost>, Error> {
    if !fields.contains_key(COST) {
        return Ok(None);
    }
    let cost = said(fields, policy, narrower)?;
    match policy.too_small_for(&cost) {
        Some(TooSmall { cost, limit }) => Err(Error::TooCostly { cost, limit }),
        None => Ok(Some(cost)),
    }
}

/// Value of `Andante-Cost`: a number of requests, or an amount of each unit, as a structured dictionary (RFC 9651
/// §3.2).
fn said(fields: &HeaderMap, policy: &Policy, narrower: &[AddedRule]) -> Result<Cost, Error> {
    let counted = || policy.units().chain(narrower.iter().flat_map(|rule| rule.policy.units()));
    let lines: Vec<_> = fields.get_all(COST).iter().map(HeaderValue::as_bytes).collect();
    let text = lines.join(&b", "[..]);
    let bad = || Error::BadCost { found: String::from_utf8_lossy(&text).into_owned() };
    // A number as in RFC 9110 §8.6: `+5` is invalid.
    if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
        let requests = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        return requests.and_then(Cost::new).ok_or_else(bad);
    }
    let dictionary: Dictionary = Parser::new(&text).parse().map_err(|_| bad())?;
    let mut cost = Cost::MIN;
    for (name, entry) in &dictionary {
        let ListEntry::Item(item) = entry else { return Err(bad()) };
        let amount = item.bare_item.as_integer().and_then(|amount| u32::try_from(amount).ok()).ok_or_else(bad)?;
        let unit = Unit::known(name.as_str());
        match unit {
            Some(Unit::REQUESTS) if amount == 0 => return Err(bad()),
            Some(unit) if unit == Unit::REQUESTS || counted().any(|counted| counted == unit) => {
                cost = cost.with(unit, amount);
            }
            _ if counted().next().is_some() => {
                let mut counted: Vec<_> = counted().map(Unit::name).collect();
                counted.sort_unstable();
                counted.dedup();
                return Err(Error::UncountedUnit { found: name.as_str().to_owned(), counted: counted.join(", ") });
            }
            // A worker may send the same field to all APIs.
            _ => {}
        }
    }
    if dictionary.is_empty() { Err(bad()) } else { Ok(cost) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limit::Limits, policy::Turns};

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(*name, HeaderValue::from_static(value));
        }
        fields
    }

    fn policy(turns: Turns) -> Policy {
        Policy { turns, limits: vec!["10/s".parse().unwrap(), "500/min".parse().unwrap()], ..Policy::new("", vec![]) }
    }

    fn claim(lines: &[(&'static str, &'static str)], turns: Turns) -> Claim {
        let address = [10, 1, 2, 3].into();
        read(&fields(lines), Requester { address, client: ClientId::of(address) }, &policy(turns))
    }

    #[test]
    fn a_request_that_says_nothing_is_one_of_its_clients_nameless_flow() {
        let usual = claim(&[], Turns::default());
        assert_eq!(usual, Claim { client: ClientId::of([10, 1, 2, 3].into()), ..Claim::USUAL });
    }

    #[test]
    fn a_rule_says_who_may_be_urgent_and_everybody_may_be_patient() {
        let urgency = |value, turns| claim(&[("priority", value)], turns).urgency.get();
        let only = |network: &str| Turns { urgent: Some(vec![network.parse().unwrap()]), ..Turns::default() };
        assert_eq!(urgency("u=0", Turns::default()), 0);
        assert_eq!(urgency("u=0", only("10.1.0.0/16")), 0);
        assert_eq!(urgency("u=0", only("10.2.0.0/16")), 3);
        assert_eq!(urgency("u=7", only("10.2.0.0/16")), 7);
    }

    #[test]
    fn levels_are_those_of_the_rule_with_and_without_fields() {
        let (fair, come, rank) = (FlowOrder::Fair, FlowOrder::FirstCome, FlowOrder::Rank);
        for (share_by, flow_order, levels) in [
            (ShareBy::ClientThenFlow, fair, Levels::ClientThenFlow),
            (ShareBy::FlowThenClient, fair, Levels::FlowThenClient),
            (ShareBy::Client, fair, Levels::Client),
            (ShareBy::Flow, fair, Levels::Flow),
            (ShareBy::ClientThenFlow, come, Levels::Client),
            (ShareBy::Client, rank, Levels::Client),
            (ShareBy::FlowThenClient, rank, Levels::InOrder),
            (ShareBy::Flow, come, Levels::InOrder),
        ] {
            let turns = Turns { share_by, flow_order, ..Turns::default() };
            let claims = [claim(&[], turns.clone()), claim(&[("andante-flow", "batch")], turns.clone())];
            assert_eq!(claims.map(|claim| claim.levels), [levels; 2]);
            // A client's address and its flow's name are the same under all of them.
            let by_default = claim(&[("andante-flow", "batch")], Turns::default());
            assert_eq!((claims[1].client, claims[1].flow), (by_default.client, by_default.flow));
        }
    }

    #[test]
    fn flow_may_state_its_rank_and_its_due_time() {
        let turns = |flow_order| Turns { flow_order, ..Turns::default() };
        let named = |value, flow_order| claim(&[("andante-flow", value)], turns(flow_order));
        let plain = named("nightly", FlowOrder::Rank);
        assert_eq!(plain.rank, FlowRank::LAST);
        for (value, rank, due) in [
            ("nightly;rank=2", Some(2), None),
            ("nightly; rank=0", Some(0), None),
            ("nightly;due=@1764400000", None, Some(1_764_400_000)),
            ("nightly;due=1764400000;rank=7", Some(7), Some(1_764_400_000)),
            ("\"nightly\";rank=65534", Some(65_534), None),
            ("nightly;rank=high", None, None),
            ("nightly;rank=-1", None, None),
            ("nightly;rank=65535", None, None),
            ("nightly;rank=1.5;due=2", None, Some(2)),
            ("nightly;rank", None, None),
            ("nightly;due=@-5", None, None),
        ] {
            let ranked = named(value, FlowOrder::Rank);
            assert_eq!((ranked.flow, ranked.rank), (plain.flow, FlowRank::new(rank, due)), "{value}");
            for order in [FlowOrder::Fair, FlowOrder::FirstCome] {
                let unranked = named(value, order);
                assert_eq!((unranked.flow, unranked.rank), (plain.flow, FlowRank::LAST), "{value}");
            }
        }
        // Names as they stand.
        for value in ["nightly;x=2", "nightly;;rank=2", "night ly;rank=2", "\"nightly\""] {
            assert_ne!(named(value, FlowOrder::Rank).flow, plain.flow, "{value}");
        }
    }

    #[test]
    fn weights_are_those_of_the_rule() {
        let weights = ["batch=2", "10.1.0.0/16=7"].map(|text| text.parse().unwrap()).to_vec();
        let turns = Turns { weights, ..Turns::default() };
        let batch = claim(&[("andante-flow", "batch")], turns.clone());
        assert_eq!((batch.flow_weight.0.get(), batch.client_weight.0.get()), (2, 7));
        let live = claim(&[("andante-flow", "live")], turns);
        assert_eq!(live.flow_weight, Weight::ONE);
        assert_ne!((live.flow, batch.flow), (FlowId::default(), live.flow));
        // Waiting requests get the same weights, as far as their claims still show them.
        let weights = ["batch=2", "10.1.0.0/16=7", "2001:db8::1=5"].map(|text| text.parse().unwrap()).to_vec();
        let turns = Turns { weights, ..Turns::default() };
        let weigh = weights_of(&turns);
        let waits = |claim: Claim| {
            let claim = weigh(&Claim { flow_weight: Weight::ONE, ..claim });
            (claim.flow_weight.0.get(), claim.client_weight.0.get())
        };
        assert_eq!((waits(batch), waits(live)), ((2, 7), (1, 7)));
        let of = |address: &str| {
            let client = ClientId::of(ClientIdentity::Machine.of(address.parse().unwrap()));
            waits(Claim { client, ..Claim::USUAL })
        };
        assert_eq!((of("10.2.0.1"), of("2001:db8::2")), ((1, 1), (1, 1)));
    }

    #[test]
    fn a_cost_is_a_whole_number_that_the_smallest_limit_can_give() {
        let cost = |value| cost(&fields(&[("andante-cost", value)]), &policy(Turns::default()), &[]);
        assert_eq!(cost("10").unwrap(), Cost::new(10));
        assert_eq!(cost("tokens=5000, requests=2").unwrap(), Cost::new(2), "nothing counts tokens here");
        for wrong in ["0", "-1", "+1", "1.5", "many", "", "99999999999"] {
            assert!(matches!(cost(wrong), Err(Error::BadCost { .. })), "{wrong}");
        }
        let Err(error) = cost("11") else { panic!("10 in a second are all that there are") };
        assert_eq!(error.to_string(), "a request that costs 11 fits no window of 10/s");
    }

    #[test]
    fn a_cost_is_one_that_a_calendar_can_give() {
        let policy = Policy { calendar: vec!["5/day in UTC".parse().unwrap()], ..Policy::new("", vec![]) };
        let cost = |value| cost(&fields(&[("andante-cost", value)]), &policy, &[]);
        assert_eq!(cost("5").unwrap().map(|cost| cost.requests()), Some(5));
        let Err(error) = cost("6") else { panic!("5 in a day are all that there are") };
        assert_eq!(error.to_string(), "a request that costs 6 fits no window of 5/day in UTC");
    }

    #[test]
    fn a_cost_names_the_units_that_the_limits_count() {
        let limits: Limits = "10/s, 900 in-tokens/min, 200 out-tokens/min, 5000 in-tokens/day in UTC".parse().unwrap();
        let policy = Policy { limits: limits.limits, calendar: limits.calendar, ..Policy::new("", vec![]) };
        let cost = |lines: &[&'static str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("andante-cost", *line)).collect();
            cost(&fields(&lines), &policy, &[])
        };
        let of = |cost: Cost, unit: &str| cost.of(Unit::named(unit).unwrap()).map(std::num::NonZeroU32::get);
        for lines in [&["in-tokens=900, out-tokens=20"][..], &["in-tokens=900", "out-tokens=20;x=1"]] {
            let cost = cost(lines).unwrap().unwrap();
            assert_eq!((of(cost, "in-tokens"), of(cost, "out-tokens"), cost.requests()), (Some(900), Some(20), 1));
        }
        assert_eq!(of(cost(&["in-tokens=0"]).unwrap().unwrap(), "in-tokens"), None);
        assert_eq!(cost(&["4"]).unwrap().unwrap().requests(), 4);
        for wrong in
            ["in-tokens", "in-tokens=-1", "in-tokens=1.5", "in-tokens=(1)", "in-tokens=99999999999", "requests=0"]
        {
            assert!(matches!(cost(&[wrong]), Err(Error::BadCost { .. })), "{wrong}");
        }
        let error = |line| cost(&[line]).unwrap_err().to_string();
        assert_eq!(error("out-tokens=201"), "a request that costs 201 out-tokens fits no window of 200 out-tokens/min");
        let counted = "but the limits here count in-tokens, out-tokens";
        assert_eq!(error("in_tokens=5"), format!("Andante-Cost names \"in_tokens\", {counted}"));
    }
}
