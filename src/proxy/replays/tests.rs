use std::time::Duration;

use http::Response;
use http_body::{Frame, SizeHint};

use super::*;
use crate::{
    clock::Clock,
    memory::{Holder, Memory},
    proxy::message::shared_body::BodyEnd,
};

fn key(of: u64) -> Key {
    Key::new(0, |_| of)
}

fn at(seconds: u64) -> Instant {
    Instant::START + Duration::from_secs(seconds)
}

fn begin(replays: &Arc<Replays>, of: u64, now: Instant) -> KeyedPlace {
    let KeyFound::New(place) = replays.find(key(of), now) else { panic!("{of} is known") };
    place
}

fn answer(replays: &Arc<Replays>, place: &KeyedPlace, bytes: usize) {
    let charge = Memory::new(1 << 40, Clock::start()).charge(Holder::Cache);
    let body = SharedBody::new(SizeHint::new(), replays.memory.clone(), charge);
    assert!(body.push(Frame::data(vec![0; bytes].into())));
    body.finish(BodyEnd::Complete);
    let head = Response::new(()).into_parts().0;
    place.answered(KeyedAnswer {
        head,
        body,
        tries: RequestStats::default(),
        for_all: true,
        cookies_taken: Arc::default(),
    });
}

fn is_kept(replays: &Arc<Replays>, of: u64, now: Instant) -> bool {
    matches!(replays.find(key(of), now), KeyFound::Kept(..))
}

#[test]
fn an_answer_is_kept_for_its_time_and_its_memory_is_given_back() {
    let replays = Replays::new(64 << 20);
    let free = replays.memory.left();
    let place = begin(&replays, 1, at(0));
    assert!(matches!(replays.find(key(1), at(0)), KeyFound::UnderWay(_)));
    answer(&replays, &place, 1000);
    place.keep(at(600));
    drop(place);
    assert!(is_kept(&replays, 1, at(599)));
    assert!(replays.memory.left() <= free - 1000);
    replays.sweep(at(600));
    assert_eq!(replays.memory.left(), free);
    begin(&replays, 1, at(600));
}

#[test]
fn what_failed_or_whose_answer_is_not_kept_is_not_remembered() {
    let replays = Replays::new(64 << 20);
    drop(begin(&replays, 1, at(0)));
    let place = begin(&replays, 1, at(0));
    answer(&replays, &place, 10);
    drop(place);
    begin(&replays, 1, at(0));
}

#[test]
fn answers_fill_no_more_than_their_memory_and_the_oldest_goes_first() {
    const MEMORY: usize = 8 * MOST;
    let replays = Replays::new(MEMORY);
    for of in 0..10_000 {
        let place = begin(&replays, of, at(of));
        answer(&replays, &place, 10_000);
        place.keep(at(of + 100_000));
        assert!(MEMORY - replays.memory.left() <= MEMORY - MOST, "{of}");
    }
    // Each answer costs its bytes, and less than 2 KiB besides.
    let kept = replays.entries.lock().kept.len();
    assert!((7 * MOST / 12_048..=7 * MOST / 10_000).contains(&kept), "{kept}");
    assert!(is_kept(&replays, 9_999, at(10_000)) && !is_kept(&replays, 0, at(10_000)));
}

#[tokio::test]
async fn a_twin_learns_when_a_call_that_waits_again_is_expected_and_the_lead_waits_with_it() {
    let place = begin(&Replays::new(64 << 20), 1, at(0));
    let call = place.call().clone();
    assert!(call.elect());
    let (mut lead, mut twin) = (call.lead(), call.twin());
    assert!(matches!((lead.next().await, twin.next().await), (CallEvent::Sent, CallEvent::Sent)));
    call.expects(at(6));
    assert!(matches!(lead.next().await, CallEvent::Leads));
    for twin in [&mut twin, &mut call.twin()] {
        assert!(matches!(twin.next().await, CallEvent::Waits(Some(expected)) if expected == at(6)));
    }
    assert!(call.elect());
    assert!(matches!(twin.next().await, CallEvent::Sent));
    drop(place);
    assert!(matches!((lead.next().await, twin.next().await), (CallEvent::Over(None), CallEvent::Over(None))));
    assert!(!call.elect());
}

#[tokio::test]
async fn a_lead_that_leaves_while_the_call_waits_again_leaves_it_to_its_twins() {
    let place = begin(&Replays::new(64 << 20), 1, at(0));
    let call = place.call().clone();
    assert!(call.elect());
    call.expects(at(6));
    let task = tokio::spawn(std::future::pending::<()>());
    drop(Lead { call: call.clone(), task: task.abort_handle() });
    assert!(!call.is_over() && call.elect());
    task.abort();
}

#[tokio::test]
async fn whoever_leads_ends_a_call_that_waits_and_none_that_was_sent() {
    for sent in [false, true] {
        let replays = Replays::new(64 << 20);
        let place = begin(&replays, 1, at(0));
        let call = place.call().clone();
        if sent {
            assert!(place.call().elect());
        }
        let task = tokio::spawn(std::future::pending::<()>());
        drop(Lead { call: call.clone(), task: task.abort_handle() });
        assert_eq!(call.is_over(), !sent);
        assert_eq!(place.call().elect(), sent);
        task.abort();
    }
}
