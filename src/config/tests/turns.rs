//! Claims about the order of waiting requests.

use super::{load, problems};
use crate::policy::{FlowOrder, ShareBy};

fn share_by(text: &str) -> ShareBy {
    load(&format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\nshare-by = {text}"))
        .rules
        .iter()
        .next()
        .unwrap()
        .turns
        .share_by
}

#[test]
fn slots_are_shared_by_clients_and_flows_in_either_order_or_by_one_of_them() {
    assert_eq!(
        load("[[rule]]\nhost = 'a'\nlimits = '10/s'").rules.iter().next().unwrap().turns.share_by,
        ShareBy::ClientThenFlow
    );
    for (text, expected) in [
        ("['client', 'flow']", ShareBy::ClientThenFlow),
        ("['flow', 'client']", ShareBy::FlowThenClient),
        ("['client']", ShareBy::Client),
        ("'client'", ShareBy::Client),
        ("['flow']", ShareBy::Flow),
        ("'flow'", ShareBy::Flow),
    ] {
        assert_eq!(share_by(text), expected, "{text}");
    }
}

#[test]
fn other_levels_are_errors_that_say_what_to_write() {
    let rule = |text: &str| problems(&format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\nshare-by = {text}"));
    for (text, what) in [
        ("[]", "write [\"client\", \"flow\"], [\"flow\", \"client\"], [\"client\"] or [\"flow\"]"),
        ("['flow', 'flow']", "expected one or two levels, each of them once"),
        ("['flow', 'client', 'flow']", "expected one or two levels, each of them once"),
        ("['flow', 'host']", "expected a level of sharing, found \"host\""),
        ("'flows'", "expected a level of sharing, found \"flows\""),
        ("true", "expected a level of sharing"),
    ] {
        let told = rule(text);
        assert!(told.contains(what), "{text}: {told}");
    }
    assert!(!rule("['flow', 'host']").contains("each of them once"), "one mistake is one problem");
    let some =
        "[[rule]]\nhost = 'a'\nlimits = '10/s'\n[[rule]]\nhost = 'a'\npath = '/b'\nlimits = '5/s'\nshare-by = 'flow'";
    assert!(problems(some).contains("`share-by` is a matter of a whole host"));
}

#[test]
fn weight_of_a_level_that_does_not_share_is_reported() {
    let rule = |text: &str| problems(&format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\n{text}"));
    let told = rule("share-by = 'client'\nweights = ['live=3', '10.1.0.0/16=2']");
    assert!(told.contains("by `share-by` and `flow-order`, flows do not share"), "{told}");
    assert_eq!(told.matches("has no effect").count(), 1, "{told}");
    assert!(rule("share-by = 'flow'\nweights = ['10.1.0.0/16=2']").contains("clients do not share"));
    assert_eq!(rule("share-by = ['flow', 'client']\nweights = ['live=3', '10.1.0.0/16=2']"), "");
    let told = rule("flow-order = 'rank'\nweights = ['live=3', '10.1.0.0/16=2']");
    assert_eq!((told.matches("flows do not share").count(), told.matches("has no effect").count()), (1, 1), "{told}");
    let told = rule("share-by = ['flow', 'client']\nflow-order = 'first-come'\nweights = ['live=3', '10.1.0.0/16=2']");
    assert_eq!(told.matches("has no effect").count(), 2, "clients do not share below flows in order: {told}");
}

#[test]
fn flows_are_in_one_of_three_orders() {
    let rule = |text: &str| format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\n{text}");
    let order = |text: &str| load(&rule(text)).rules.iter().next().unwrap().turns.flow_order;
    assert_eq!(order(""), FlowOrder::Fair);
    assert_eq!(order("flow-order = 'fair'"), FlowOrder::Fair);
    assert_eq!(order("flow-order = 'first-come'"), FlowOrder::FirstCome);
    assert_eq!(order("flow-order = 'rank'"), FlowOrder::Rank);
    for wrong in ["'ranks'", "['rank']", "1"] {
        let told = problems(&rule(&format!("flow-order = {wrong}")));
        assert!(told.contains("expected an order of flows"), "{wrong}: {told}");
    }
    let some = rule("[[rule]]\nhost = 'a'\npath = '/b'\nlimits = '5/s'\nflow-order = 'rank'");
    assert!(problems(&some).contains("`flow-order` is a matter of a whole host"));
}

#[test]
fn urgency_is_a_number_from_0_to_7_also_for_some_requests() {
    let config = load(
        "[[rule]]\nhost = 'a'\nlimits = '10/s'\nurgency = 5\n[[rule]]\nhost = 'a'\npath = '/chat/*'\nurgency = 0\n\
         [[rule]]\nhost = 'b'\nlimits = '10/s'",
    );
    let urgencies: Vec<_> = config.rules.iter().map(|rule| rule.turns.urgency).collect();
    assert_eq!(urgencies, [Some(5), Some(0), None]);
    for wrong in ["8", "-1", "1.5", "'high'", "''"] {
        let told = problems(&format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\nurgency = {wrong}"));
        assert!(told.contains("expected an urgency from 0 to 7"), "{wrong}: {told}");
    }
    assert_eq!(problems("[[rule]]\nhost = 'a'\nurgency = 1"), "", "the rule has a purpose");
}

#[test]
fn reserve_of_a_rule_whose_requests_are_all_urgent_is_reported() {
    let rule =
        |urgency| problems(&format!("[[rule]]\nhost = 'a'\nlimits = '10/s'\nreserve = '10%'\nurgency = {urgency}"));
    assert!(
        rule(1).contains("the reserve is for requests of urgency 0 and 1, which all requests have by `urgency = 1`")
    );
    assert_eq!(rule(2), "");
}
