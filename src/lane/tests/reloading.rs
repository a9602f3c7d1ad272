//! Rules that change while requests wait and leave.

mod narrower;

use andante_policy::Trust;

use super::*;

fn rules(of: &[(&str, &str, &str)]) -> Rules {
    let rule = |(name, host, limits): &(&str, &str, &str)| {
        let limits: Limits = limits.parse().unwrap();
        let mut policy = Policy::new(name, vec![host.parse().unwrap()]);
        (policy.limits, policy.in_flight, policy.margin) = (limits.limits, limits.in_flight, MarginSpec::Fixed(ms(0)));
        policy.calendar = limits.calendar;
        policy
    };
    Rules::new(of.iter().map(rule).collect())
}

fn lanes(of: &[(&str, &str, &str)]) -> (Arc<Lanes>, Metrics, Clock) {
    let (metrics, clock) = (Metrics::new(), Clock::start());
    (Arc::new(Lanes::new(rules(of), metrics.clone(), clock)), metrics, clock)
}

fn origin(port: u16) -> Origin {
    Origin::parse(Scheme::Http, "api.test", Some(port)).unwrap()
}

fn send(mut permit: Permit) {
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
}

fn waits(lane: &Arc<Lane>) -> crate::Waiting {
    match lane.admit(ask(kind())) {
        Admission::Wait(waiting) => waiting,
        Admission::Send(_) => panic!("it has a slot"),
        Admission::Refuse(refusal) => panic!("refused: {refusal}"),
    }
}

fn leaves(lane: &Arc<Lane>) -> bool {
    match lane.admit(ask(kind())) {
        Admission::Send(permit) => {
            send(permit);
            true
        }
        Admission::Wait(_) | Admission::Refuse(_) => false,
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_keep_their_places_and_leave_by_the_new_limit() {
    let (lanes, metrics, clock) = lanes(&[("slow", "api.test", "1/min")]);
    let slow = lanes.find(&origin(80));
    assert!(leaves(&slow));
    let (first, second) = (waits(&slow), waits(&slow));
    tokio::time::advance(ms(1000)).await;
    lanes.reload(rules(&[("fast", "*.test", "2/s")]));
    let fast = lanes.find(&origin(80));
    // The first of them could have left at 0.5 s.
    assert_eq!((fast.waiting(), &*fast.policy().name), (1, "fast"));
    let third = waits(&fast);
    let times = [first, second, third].map(|waiting| async {
        send(waiting.await.unwrap());
        clock.now().since(Instant::START)
    });
    let [first, second, third] = times;
    let (third, second, first) = tokio::join!(third, second, first);
    assert_eq!([first, second, third], [ms(1000), ms(1500), ms(2000)]);
    // Each was counted by the rule that it came to, and all of them have left.
    for rule in ["slow", "fast"] {
        assert_eq!((metrics.rule(rule).waiting.get(), metrics.rule(rule).in_flight.count()), (0, 0), "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_of_an_api_that_is_trusted_holds_at_once() {
    let trusting = |limit: &str| {
        let policy = Policy::new("api", vec!["*".parse().unwrap()]);
        Rules::new(vec![Policy { limits: vec![limit.parse().unwrap()], trust: Trust::Api, ..policy }])
    };
    let clock = Clock::start();
    let lanes = Lanes::new(trusting("1/min"), Metrics::new(), clock);
    let lane = lanes.find(&origin(80));
    assert!(leaves(&lane));
    let waiting = waits(&lane);
    lanes.reload(trusting("1/s"));
    send(waiting.await.unwrap());
    assert_eq!(clock.now().since(Instant::START), ms(1000));
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_counts_what_has_left() {
    let (lanes, _, _) = lanes(&[("api", "api.test", "10/s burst 10")]);
    let before = lanes.find(&origin(80));
    assert!((0..8).all(|_| leaves(&before)));
    lanes.reload(rules(&[("api", "api.test", "8/min burst 8")]));
    let after = lanes.find(&origin(80));
    assert!(!leaves(&after));
    tokio::time::advance(ms(59_999)).await;
    assert!(!leaves(&after));
    tokio::time::advance(ms(1)).await;
    assert!(leaves(&after));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_change_is_the_same_lane() {
    let (lanes, _, _) = lanes(&[("api", "api.test", "10/s")]);
    let before = lanes.find(&origin(80));
    lanes.reload(rules(&[("other", "other.test", "1/s"), ("api", "api.test", "10/s")]));
    assert!(Arc::ptr_eq(&before, &lanes.find(&origin(80))));
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_a_port_begins_with_what_the_host_has_sent() {
    let (lanes, _, _) = lanes(&[("host", "api.test", "5/min burst 5")]);
    let host = lanes.find(&origin(8443));
    assert!((0..5).all(|_| leaves(&host)));
    lanes.reload(rules(&[("host", "api.test", "5/min burst 5"), ("port", "api.test:8443", "5/min burst 5")]));
    let port = lanes.find(&origin(8443));
    assert_eq!(&*port.policy().name, "port");
    assert!(!leaves(&port));
    // And back again: both have sent it.
    lanes.reload(rules(&[("host", "api.test", "5/min burst 5")]));
    assert!(!leaves(&lanes.find(&origin(8443))));
}

#[tokio::test(start_paused = true)]
async fn other_ports_begin_with_what_the_host_sent_before_its_first_port_got_a_rule_of_its_own() {
    let (lanes, _, _) = lanes(&[("host", "api.test", "5/min burst 5")]);
    assert!((0..5).all(|_| leaves(&lanes.find(&origin(80)))));
    lanes.reload(rules(&[("host", "api.test", "5/min burst 5"), ("port", "api.test:80", "5/min burst 5")]));
    assert_eq!([80, 443, 9000].map(|port| leaves(&lanes.find(&origin(port)))), [false; 3]);
}

#[tokio::test(start_paused = true)]
async fn what_a_calendar_renews_begins_with_what_the_host_has_sent() {
    const LIMIT: &str = "6/month in UTC";
    let (one, two) = ([("host", "api.test", LIMIT)], [("host", "api.test", LIMIT), ("port", "api.test:8443", LIMIT)]);
    let (lanes, _, _) = lanes(&one);
    assert!((0..4).all(|_| leaves(&lanes.find(&origin(80)))));
    lanes.reload(rules(&two));
    tokio::time::advance(ms(1)).await;
    let port = lanes.find(&origin(8443));
    assert!(leaves(&port) && leaves(&port) && !leaves(&port));
    // And back again: together they have sent as many.
    lanes.reload(rules(&one));
    assert!(!leaves(&lanes.find(&origin(80))));
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_unsent_hides_nothing_that_has_left_since() {
    let (lanes, _, _) = lanes(&[("api", "api.test", "10/10s burst 10")]);
    let before = lanes.find(&origin(80));
    let Admission::Send(held) = before.admit(ask(kind())) else { panic!("nothing was sent yet") };
    tokio::time::advance(ms(900)).await;
    assert!(leaves(&before));
    drop(held);
    tokio::time::advance(ms(110)).await;
    lanes.reload(rules(&[("api", "api.test", "1/s")]));
    assert!(!leaves(&lanes.find(&origin(80))), "the last one left 110 ms ago");
}

/// Limits that change at random while five workers send as fast as possible. No window since a change holds more than
/// the current limit, and no window that spans a change more than the larger of both.
#[tokio::test(start_paused = true)]
async fn random_reloads_under_load_break_no_window() {
    const LIMITS: [&str; 8] =
        ["10/s", "3/s", "10/s burst 10", "20/2s burst 4", "7/2s", "30/10s burst 5", "5/s, 30/10s", "100/s burst 50"];
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (lanes, _, clock) = lanes(&[("api", "api.test", LIMITS[0])]);
        let sent = Arc::new(Mutex::new(Vec::<Instant>::new()));
        let workers: Vec<_> = (0..5)
            .map(|_| {
                let (lanes, sent) = (lanes.clone(), sent.clone());
                tokio::spawn(async move {
                    loop {
                        send(permitted(lanes.find(&origin(80)).admit(ask(kind()))).await);
                        sent.lock().push(clock.now());
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let mut changes = vec![(Instant::START, LIMITS[0])];
        for _ in 0..30 {
            tokio::time::sleep(ms(random.u64(1..2500))).await;
            let limits = LIMITS[random.usize(..LIMITS.len())];
            lanes.reload(rules(&[(if random.bool() { "api" } else { "renamed" }, "api.test", limits)]));
            changes.push((clock.now(), limits));
        }
        tokio::time::sleep(ms(5000)).await;
        workers.iter().for_each(tokio::task::JoinHandle::abort);
        let sent = sent.lock();
        assert!(sent.len() > 100, "{}", sent.len());
        for (index, (since, limits)) in changes.iter().enumerate() {
            let until = changes.get(index + 1).map_or(Instant::FAR, |(next, _)| *next);
            for limit in limits.parse::<Limits>().unwrap().limits {
                // Requests that left at the very instant of a change may have left before it.
                for last in sent.iter().filter(|at| **at > *since && **at < until) {
                    let window = sent.iter().filter(|at| **at <= *last && **at + limit.rate.per > *last);
                    assert!(window.count() <= limit.rate.count.get() as usize, "{limit} at {last:?}, seed {seed}");
                }
            }
        }
    }
}

/// Two processes of a fleet, each with its lanes, and the book that both call: the reports about a pool.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_renamed_is_the_same_limit_to_the_store_unless_ports_have_limits_of_their_own() {
    let pools = async |before: &[(&str, &str, &str)], after: &[(&str, &str, &str)]| {
        let lease = andante_fleet::Lease::default();
        let (wakes, _listening) = tokio::sync::mpsc::unbounded_channel();
        let lanes = Lanes::new(rules(before), Metrics::new(), Clock::start()).sharing(crate::Sharing::new(
            "redis://store".into(),
            lease.clone(),
            wakes,
        ));
        lease.set(Instant::FAR);
        let pool = |lanes: &Lanes| {
            let lane = lanes.find(&origin(80));
            let _waiting = lane.admit(ask(kind()));
            let said = lane.speak(true).entries;
            lane.unheard(&said);
            said.iter().map(|entry| entry.pool.to_string()).collect::<Vec<_>>()
        };
        let first = pool(&lanes);
        lanes.reload(rules(after));
        (first, pool(&lanes))
    };
    let (api, renamed) = (("api", "api.test", "5/min"), ("port", "api.test:80", "5/min"));
    let (before, after) = pools(&[api], &[renamed]).await;
    assert_eq!((before.len(), before), (1, after));
    let (before, after) = pools(&[api], &[api, ("other", "*.test:8080", "1/s"), ("all", "*", "1/s")]).await;
    assert_eq!((before.len(), before), (1, after));
    let (before, after) = pools(&[api], &[api, ("other", "api.test:8080", "1/s")]).await;
    assert_eq!(before.len(), 1);
    assert!(
        !after.is_empty() && after.iter().all(|pool| !before.contains(pool) || pool.starts_with('\n')),
        "{after:?}"
    );
    assert!(after.iter().any(|pool| pool.starts_with("api\n")), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_port_that_gets_a_rule_of_its_own_leaves_within_that() {
    let (lanes, _, clock) = lanes(&[("host", "api.test", "1/s")]);
    let host = lanes.find(&origin(80));
    assert!(leaves(&host));
    // To the two ports in turn.
    let asks = |port: u16| match host.admit(AdmitRequest { port, ..ask(kind()) }) {
        Admission::Wait(waiting) => (port, waiting),
        other => panic!("one has left: {other:?}"),
    };
    let waiting: Vec<_> = (0..8).map(|number| asks(if number % 2 == 0 { 8443 } else { 80 })).collect();
    lanes.reload(rules(&[("host", "api.test", "1/s"), ("port", "api.test:80", "1000/s burst 1000")]));
    let [http, https] = [80, 8443].map(|port| lanes.find(&origin(port)));
    assert_eq!((https.waiting(), http.waiting()), (4, 4));
    let last = waits(&https);
    let mut tasks = tokio::task::JoinSet::new();
    for (port, waiting) in waiting.into_iter().chain([(8443, last)]) {
        tasks.spawn(async move {
            send(waiting.await.unwrap());
            (port, clock.now().since(Instant::START).as_millis())
        });
    }
    let mut times = tasks.join_all().await;
    times.sort_unstable();
    // At the start, one request has left.
    assert_eq!(times.split_off(4), [1000, 2000, 3000, 4000, 5000].map(|time| (8443, time)));
    assert!(times.iter().all(|(port, time)| *port == 80 && *time < 10), "{times:?}");
}

/// Rules for two ports of a host, each with `limit`, and the rule that later replaces them.
fn two_become_one(limit: &'static str) -> ([(&'static str, &'static str, &'static str); 2], Rules) {
    let two = [("one", "api.test:80", limit), ("other", "api.test:8443", limit)];
    (two, rules(&[("both", "api.test", limit)]))
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_in_lanes_that_become_one_leave_within_one_limit() {
    let (two, one) = two_become_one("1/s");
    let (lanes, metrics, clock) = lanes(&two);
    let [http, https] = [80, 8443].map(|port| lanes.find(&origin(port)));
    assert!(leaves(&http) && leaves(&https));
    let waiting: Vec<_> = (0..3).flat_map(|_| [waits(&http), waits(&https)]).collect();
    let [mut polled, unpolled] = [waits(&http), waits(&https)];
    lanes.reload(one);
    let both = lanes.find(&origin(80));
    assert_eq!(both.waiting(), 8);
    // A request that was moved to another lane leaves that lane.
    assert!(tokio::time::timeout(ms(0), &mut polled).await.is_err());
    drop((polled, unpolled));
    assert_eq!(both.waiting(), 6);
    let mut tasks = tokio::task::JoinSet::new();
    for waiting in waiting {
        tasks.spawn(async move {
            send(waiting.await.unwrap());
            clock.now().since(Instant::START).as_millis()
        });
    }
    let mut times = tasks.join_all().await;
    times.sort_unstable();
    assert!(times[0] >= 1000, "both have left at the start: {times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1000), "one a second: {times:?}");
    for rule in ["one", "other", "both"] {
        assert_eq!((metrics.rule(rule).waiting.get(), metrics.rule(rule).in_flight.count()), (0, 0), "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_lanes_that_become_one_the_longest_pause_holds() {
    for paused in [80, 8443] {
        let (two, one) = two_become_one("100/s");
        let (lanes, _, _) = lanes(&two);
        for port in [80, 8443] {
            assert!(leaves(&lanes.find(&origin(port))));
        }
        lanes.find(&origin(paused)).pause(None);
        lanes.reload(one);
        tokio::time::advance(ms(3_600_000)).await;
        let both = lanes.find(&origin(80));
        assert!(!leaves(&both), "an operator has paused port {paused}");
        assert!(both.resume() && leaves(&both));
    }
}

/// A tunnel keeps its lane for as long as it lasts.
#[tokio::test(start_paused = true)]
async fn requests_of_a_lane_that_another_has_absorbed_take_slots_there() {
    let (two, one) = two_become_one("1/h burst 2");
    let (lanes, ..) = lanes(&two);
    let before = [80, 8443].map(|port| lanes.find(&origin(port)));
    assert!(before.iter().all(leaves));
    lanes.reload(one);
    let both = lanes.find(&origin(80));
    assert!(before.iter().all(|lane| !leaves(lane)), "two were sent within the hour");
    let _waiting = before.each_ref().map(waits);
    assert_eq!(both.waiting(), 2);
}
