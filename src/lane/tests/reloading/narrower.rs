//! Changes of narrower rules, and of their hosts' own rules.

use andante_policy::Added;

use super::*;
use crate::{Draw, Draws};

/// The host's rule, for these ports, and narrower rules: name, method and limits of each.
fn with(ports: &[&str], narrower: &[(&str, &str, &str)]) -> Rules {
    let own: Vec<_> = ports.iter().map(|port| (*port, *port, "1000/s burst 1000")).collect();
    let own: Vec<_> = rules(&own).iter().map(|rule| Policy::clone(rule)).collect();
    let narrower = narrower.iter().map(|(name, method, limits)| {
        let mut rule = Policy::clone(rules(&[(*name, "api.test", *limits)]).get(0));
        rule.added = Some(Added { methods: vec![(*method).into()], ..Added::default() });
        rule
    });
    Rules::new(own.into_iter().chain(narrower).collect())
}

fn lanes_with(ports: &[&str], narrower: &[(&str, &str, &str)]) -> Arc<Lanes> {
    Arc::new(Lanes::new(with(ports, narrower), Metrics::new(), Clock::start()))
}

/// The sub-limits of a request under these rules, if all of them apply to it.
fn draws(lanes: &Lanes) -> Draws {
    let draw = |rule: &Arc<Policy>| Draw::new(Draw::budget_of(&rule.name, 7), rule.clone());
    Some(lanes.rules().iter().filter(|rule| rule.added.is_some()).map(draw).collect())
}

/// Number of requests that leave at once, out of `count` asked for one after the other, each answered.
fn leave(lanes: &Lanes, port: u16, draws: &Draws, count: usize) -> usize {
    let lane = lanes.find(&origin(port));
    let admitted = (0..count).map(|_| lane.admit(AdmitRequest { draws: draws.clone(), port, ..ask(kind()) }));
    let sent = admitted.filter_map(|admission| match admission {
        Admission::Send(permit) => Some(permit),
        _ => None,
    });
    sent.map(send).count()
}

const HOST: &[&str] = &["api.test"];
const PORTS: &[&str] = &["api.test:80", "api.test:8443"];
const SEARCH: &[(&str, &str, &str)] = &[("search", "POST", "5/min burst 5"), ("daily", "POST", "7/day in UTC")];

#[tokio::test(start_paused = true)]
async fn what_was_sent_within_a_narrower_rule_counts_where_lanes_part_and_where_they_become_one() {
    for (before, after) in [(HOST, PORTS), (PORTS, HOST)] {
        let lanes = lanes_with(before, SEARCH);
        assert_eq!(leave(&lanes, 80, &None, 1), 1, "both ports have been asked for");
        assert_eq!(leave(&lanes, 8443, &draws(&lanes), 9), 5);
        lanes.reload(with(after, SEARCH));
        assert_eq!([80, 8443].map(|port| leave(&lanes, port, &draws(&lanes), 9)), [0, 0], "{after:?}");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(leave(&lanes, 8443, &draws(&lanes), 9), 2, "seven a day: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_taken_out_and_put_back_goes_on_while_what_was_sent_counts() {
    let lanes = lanes_with(HOST, SEARCH);
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 9), 5);
    lanes.reload(with(HOST, &[]));
    let sweeps = |seconds| {
        let lanes = lanes.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            lanes.sweep();
        }
    };
    sweeps(10).await;
    lanes.reload(with(HOST, SEARCH));
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 9), 0, "five a minute");
    lanes.reload(with(HOST, &[]));
    sweeps(90).await;
    lanes.reload(with(HOST, SEARCH));
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 9), 2, "seven a day");
    lanes.reload(with(HOST, &[]));
    sweeps(86_400).await;
    assert_eq!(lanes.find(&origin(80)).sub_limits(), 0, "nothing counts any more");
}

const THREE: &[&str] = &["api.test:80", "api.test:8443", "api.test:9000"];

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_lanes_parted_counts_once_in_each_and_once_when_they_are_one_again() {
    let daily = &[("daily", "POST", "20/day in UTC")];
    let lanes = lanes_with(HOST, daily);
    for (port, sent) in [(80, 3), (8443, 2), (9000, 1)] {
        assert_eq!(leave(&lanes, port, &draws(&lanes), sent), sent);
    }
    lanes.reload(with(THREE, daily));
    tokio::time::advance(ms(1)).await;
    assert_eq!(leave(&lanes, 9000, &draws(&lanes), 30), 14, "six of twenty");
    lanes.reload(with(HOST, daily));
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 30), 0, "all twenty");
    lanes.reload(with(THREE, daily));
    lanes.reload(with(HOST, daily));
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 30), 20);
}

/// Two reloads that cancel out, without requests in between: five of twenty are used.
#[tokio::test(start_paused = true)]
async fn going_there_and_back_costs_nothing() {
    let daily = &[("daily", "POST", "20/day in UTC")];
    let lanes = lanes_with(HOST, daily);
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 4) + leave(&lanes, 8443, &draws(&lanes), 1), 5);
    for rules in [PORTS, HOST, PORTS, HOST] {
        lanes.reload(with(rules, daily));
    }
    assert_eq!(leave(&lanes, 8443, &draws(&lanes), 30), 15);
}

/// Two lanes that were separate when something else was reloaded.
#[tokio::test(start_paused = true)]
async fn what_two_ports_have_sent_counts_for_both_when_they_become_one() {
    let daily = &[("daily", "POST", "20/day in UTC")];
    let lanes = lanes_with(PORTS, daily);
    assert_eq!([80, 8443].map(|port| leave(&lanes, port, &draws(&lanes), 7)), [7, 7]);
    lanes.reload(with(PORTS, &[daily[0], ("other", "PUT", "20/day in UTC")]));
    tokio::time::advance(ms(1)).await;
    lanes.reload(with(HOST, daily));
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 30), 6);
}

/// A lane opened after a reload has never been one with another port's lane.
#[tokio::test(start_paused = true)]
async fn a_port_with_a_rule_of_its_own_has_nothing_of_another_one() {
    let daily = &[("daily", "POST", "20/day in UTC")];
    let lanes = lanes_with(PORTS, daily);
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 30), 20);
    lanes.find(&origin(80)).pause(None);
    lanes.reload(with(PORTS, &[daily[0], ("other", "PUT", "20/day in UTC")]));
    assert_eq!(leave(&lanes, 8443, &None, 1), 1, "nobody has paused it");
    let daily = draws(&lanes).map(|draws| draws.iter().filter(|draw| &*draw.rule.name == "daily").cloned().collect());
    assert_eq!(leave(&lanes, 8443, &daily, 30), 20);
}

#[tokio::test(start_paused = true)]
async fn what_holds_a_host_up_holds_up_its_port_with_a_rule_of_its_own() {
    let lanes = lanes_with(HOST, &[]);
    assert_eq!([80, 8443].map(|port| leave(&lanes, port, &None, 1)), [1, 1]);
    lanes.find(&origin(80)).pause(Some(Duration::from_secs(30)));
    lanes.reload(with(&["api.test", "api.test:8443"], &[]));
    assert_eq!(leave(&lanes, 8443, &None, 1), 0, "an operator has paused it");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(leave(&lanes, 8443, &None, 1), 1);
}

/// A request whose body is still being read at the reload, or that is to be resent, knows the old rules.
#[tokio::test(start_paused = true)]
async fn a_budget_has_the_limit_that_holds_whichever_the_first_request_knew() {
    let lanes = lanes_with(HOST, &[("search", "POST", "100/s burst 100")]);
    let before = draws(&lanes);
    lanes.find(&origin(80));
    lanes.reload(with(HOST, &[("search", "POST", "5/s burst 5")]));
    assert_eq!(leave(&lanes, 80, &before, 9), 5);
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 9), 0, "it is the same budget");
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_a_lane_that_becomes_part_of_another_leaves_within_the_new_limit() {
    let lanes = lanes_with(PORTS, &[("search", "POST", "50/s burst 1")]);
    let clock = Clock::start();
    lanes.find(&origin(80));
    let port = lanes.find(&origin(8443));
    let asked = draws(&lanes);
    let waiting: Vec<_> = (0..4)
        .filter_map(|_| match port.admit(AdmitRequest { draws: asked.clone(), ..ask(kind()) }) {
            Admission::Wait(waiting) => Some(waiting),
            Admission::Send(permit) => {
                send(permit);
                None
            }
            Admission::Refuse(refusal) => panic!("{refusal}"),
        })
        .collect();
    assert_eq!(waiting.len(), 3);
    lanes.reload(with(HOST, &[("search", "POST", "1/s burst 1")]));
    for waiting in waiting {
        send(waiting.await.unwrap());
    }
    let took = clock.now().since(Instant::START);
    assert!((ms(3000)..ms(3010)).contains(&took), "the fourth of one a second: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_a_name_goes_on_when_it_is_for_other_requests() {
    let post = &[("api.test POST", "POST", "5/min burst 5")];
    let lanes = lanes_with(HOST, post);
    let before = draws(&lanes);
    assert_eq!(leave(&lanes, 80, &before, 9), 5);
    let Admission::Wait(mut waiting) =
        lanes.find(&origin(80)).admit(AdmitRequest { draws: before.clone(), ..ask(kind()) })
    else {
        panic!("five have left")
    };
    lanes.reload(with(HOST, &[("api.test PUT", "PUT", "5/min burst 5")]));
    assert_eq!(leave(&lanes, 80, &draws(&lanes), 9), 0);
    assert_eq!(leave(&lanes, 80, &before, 9), 0, "one that is sent again");
    assert!(tokio::time::timeout(ms(11_000), &mut waiting).await.is_err(), "it would be six in a minute");
    // And once more.
    lanes.reload(with(HOST, &[("api.test PATCH", "PATCH", "5/min burst 5")]));
    assert_eq!((leave(&lanes, 80, &draws(&lanes), 9), leave(&lanes, 80, &before, 9)), (0, 0));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(matches!(tokio::time::timeout(ms(0), waiting).await, Ok(Ok(_))), "it has its slot");
}
