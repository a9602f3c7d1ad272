//! The limit that delays a waiting request most, as named in traces.

use super::*;

impl World {
    /// The bottleneck of a request that begins to wait now.
    fn bottleneck(&self) -> [String; 2] {
        let asked = ask(kind());
        let Admission::Wait(_waiting) = self.lane.admit(asked.clone()) else { panic!("it does not wait") };
        let found = self.lane.bottleneck(&asked);
        [found.rule, found.limit]
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_waits_for_the_process_before_it_pauses() {
    let world = World::new("10/s");
    world.lane.await_predecessor();
    assert_eq!(world.bottleneck(), ["test", "pause (handover)"]);
    // When an operator resumes the lane, nothing leaves yet.
    world.lane.pause(None);
    assert_eq!(world.bottleneck(), ["test", "pause (handover)"]);
    world.lane.predecessor_ended();
    assert_eq!(world.bottleneck(), ["test", "pause (operator)"]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_that_is_used_most_is_named() {
    let world = World::new("1/s,100/min,in-flight 3");
    let mut permit = world.permit().await;
    permit.sent();
    assert_eq!(world.bottleneck(), ["test", "1/s"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_api_asked_for_is_named() {
    let world = World::new("10/s");
    let mut permit = world.permit().await;
    permit.sent();
    let headers = [("retry-after".parse().unwrap(), "30".parse().unwrap())].into_iter().collect();
    let (status, arrived) = (StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(1_790_000_000));
    let hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived });
    permit.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
    assert_eq!(world.bottleneck(), ["test", "pause (retry-after)"]);
}
