//! By what a request claims its turn, and what it costs: `Priority`, `Andante-Flow`, `Andante-Cost`, and whose it is.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::{
    error::Error,
    lane::order::{Claim, ClientId, FlowId, Urgency, Weight},
    limit::Cost,
    policy::Policy,
    proxy::{message::priority, steps::keyed_hash},
};

const FLOW: HeaderName = HeaderName::from_static("andante-flow");
const COST: HeaderName = HeaderName::from_static("andante-cost");
/// From here on everybody may say how urgent a request is.
const FREE: u8 = 3;

/// By what the request with these fields claims its turn, which comes from the client at `address`.
pub(super) fn read(fields: &HeaderMap, address: IpAddr, policy: &Policy) -> Claim {
    let turns = &policy.turns;
    let urgency = priority::urgency(fields).and_then(Urgency::new).unwrap_or(Urgency::USUAL);
    let urgency = if urgency.get() < FREE && !turns.may_be_urgent(address) { Urgency::USUAL } else { urgency };
    let flow = fields.get(FLOW).map(http::HeaderValue::as_bytes);
    Claim {
        urgency,
        client: ClientId::of(address),
        flow: flow.map_or(FlowId::default(), |name| FlowId(keyed_hash::of(name))),
        client_weight: Weight(turns.weight_of_client(address)),
        flow_weight: Weight(flow.map_or(std::num::NonZeroU16::MIN, |flow| turns.weight_of_flow(flow))),
    }
}

/// What the request with these fields costs.
pub(super) fn cost(fields: &HeaderMap, policy: &Policy) -> Result<Cost, Error> {
    let Some(said) = fields.get(COST) else { return Ok(Cost::MIN) };
    let text = String::from_utf8_lossy(said.as_bytes()).into_owned();
    let alone = fields.get_all(COST).iter().nth(1).is_none();
    // As RFC 9110 §8.6 writes numbers: `+5` is none.
    let plain = alone && text.bytes().all(|byte| byte.is_ascii_digit());
    let cost = text.parse::<Cost>().ok().filter(|_| plain).ok_or(Error::BadCost { found: text })?;
    match policy.limits.iter().min_by_key(|limit| limit.rate.count) {
        Some(limit) if limit.rate.count < cost => Err(Error::TooCostly { cost, limit: limit.rate.to_string() }),
        _ => Ok(cost),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::policy::Turns;

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
        read(&fields(lines), [10, 1, 2, 3].into(), &policy(turns))
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
    fn weights_are_those_of_the_rule() {
        let weights = ["batch=2", "10.1.0.0/16=7"].map(|text| text.parse().unwrap()).to_vec();
        let turns = Turns { weights, ..Turns::default() };
        let batch = claim(&[("andante-flow", "batch")], turns.clone());
        assert_eq!((batch.flow_weight.0.get(), batch.client_weight.0.get()), (2, 7));
        let live = claim(&[("andante-flow", "live")], turns);
        assert_eq!(live.flow_weight, Weight::ONE);
        assert_ne!((live.flow, batch.flow), (FlowId::default(), live.flow));
    }

    #[test]
    fn a_cost_is_a_whole_number_that_the_smallest_limit_can_give() {
        let cost = |value| cost(&fields(&[("andante-cost", value)]), &policy(Turns::default()));
        assert_eq!(cost("10").unwrap().get(), 10);
        for wrong in ["0", "-1", "+1", "1.5", "many", "", "99999999999"] {
            assert!(matches!(cost(wrong), Err(Error::BadCost { .. })), "{wrong}");
        }
        let Err(error) = cost("11") else { panic!("10 in a second are all that there are") };
        assert_eq!(error.to_string(), "a request that costs 11 fits no window of 10/s");
    }
}
