use super::*;
use crate::{
    clock::cpu_time_of,
    lane::order::{FlowId, Urgency},
};

fn key() -> Key {
    Key::new(1, u64::from)
}

fn at(seconds: u64) -> Instant {
    Instant::START + Duration::from_secs(seconds)
}

/// A claim that holds a ticket of its own.
fn urgent() -> Claim {
    Claim { urgency: Urgency::MOST, ..Claim::USUAL }
}

#[tokio::test]
async fn an_error_is_for_the_one_whose_request_has_failed_whoever_looks_first() {
    let sharing = SharedCalls::new(64 << 20);
    let (mut owner, candidate) = sharing.join(key(), Claim::USUAL);
    let (mut other, none) = sharing.join(key(), Claim::USUAL);
    assert!(none.is_none());
    candidate.unwrap().failed(Error::UriTooLong);
    assert!(matches!(other.next().await, CallEvent::Over(SharedOutcome::Rejoin)));
    assert!(matches!(owner.next().await, CallEvent::Over(SharedOutcome::Error(Error::UriTooLong))));
}

#[tokio::test]
async fn a_member_learns_when_a_call_is_expected_although_it_came_before_that_was_known() {
    let sharing = SharedCalls::new(64 << 20);
    let (mut owner, candidate) = sharing.join(key(), Claim::USUAL);
    let (mut other, _) = sharing.join(key(), Claim::USUAL);
    assert!(matches!((owner.next().await, other.next().await), (CallEvent::Leads, CallEvent::Waits(None))));
    candidate.unwrap().expects(at(3));
    assert!(matches!(other.next().await, CallEvent::Waits(Some(expected)) if expected == at(3)));
}

#[tokio::test]
async fn a_call_that_waits_again_is_expected_by_all_but_the_one_whose_request_it_is() {
    let sharing = SharedCalls::new(64 << 20);
    let (mut owner, candidate) = sharing.join(key(), Claim::USUAL);
    let (mut other, lost) = sharing.join(key(), urgent());
    let candidate = candidate.unwrap();
    assert!(candidate.elect() && !lost.as_ref().unwrap().elect());
    assert!(matches!((owner.next().await, other.next().await), (CallEvent::Sent, CallEvent::Sent)));
    candidate.expects(at(6));
    lost.unwrap().expects(at(1));
    let (mut late, none) = sharing.join(key(), urgent());
    assert!(none.is_none());
    assert!(matches!(owner.next().await, CallEvent::Leads));
    for member in [&mut other, &mut late] {
        assert!(matches!(member.next().await, CallEvent::Waits(Some(expected)) if expected == at(6)));
    }
    drop(owner);
    assert!(candidate.elect());
    assert!(matches!((other.next().await, late.next().await), (CallEvent::Sent, CallEvent::Sent)));
}

#[tokio::test]
async fn a_ticket_that_fails_when_another_one_has_sent_the_call_fails_nobody() {
    let sharing = SharedCalls::new(64 << 20);
    let (mut owner, lost) = sharing.join(key(), Claim::USUAL);
    let (_other, elected) = sharing.join(key(), urgent());
    assert!(elected.as_ref().unwrap().elect());
    lost.unwrap().failed(Error::UriTooLong);
    assert!(matches!(owner.next().await, CallEvent::Sent));
    elected.unwrap().expects(at(6));
    assert!(matches!(owner.next().await, CallEvent::Waits(Some(_))));
    assert!(sharing.join(key(), Claim::USUAL).1.is_none(), "it may still be shared");
}

/// A worker may give each of its requests a flow of its own. A pass over all tickets for each of them would take
/// minutes.
#[tokio::test]
async fn ticket_costs_the_same_however_many_there_are() {
    const TICKETS: u64 = 40_000;
    let sharing = SharedCalls::new(64 << 20);
    let took = cpu_time_of(|| {
        let claim = |flow| Claim { flow: FlowId(flow), ..Claim::USUAL };
        let joined: Vec<_> = (0..TICKETS).map(|flow| sharing.join(key(), claim(flow))).collect();
        // Each ticket has two members.
        let others: Vec<_> = (0..TICKETS).map(|flow| sharing.join(key(), claim(flow))).collect();
        let (members, tickets): (Vec<_>, Vec<_>) =
            joined.into_iter().map(|(member, ticket)| (member, ticket.unwrap())).unzip();
        tickets.iter().for_each(|ticket| ticket.expects(at(3)));
        let (first, second) = tickets.split_at(tickets.len() / 2);
        first.iter().for_each(|ticket| ticket.failed(Error::UriTooLong));
        assert!(second[0].elect() && !second[1].elect());
        drop((members, others));
    });
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn failed_ticket_wakes_its_own_members_only() {
    let sharing = SharedCalls::new(64 << 20);
    let (mut owner, lost) = sharing.join(key(), Claim::USUAL);
    let (mut other, waits) = sharing.join(key(), urgent());
    assert!(matches!((owner.next().await, other.next().await), (CallEvent::Leads, CallEvent::Leads)));
    lost.unwrap().failed(Error::UriTooLong);
    assert!(matches!(owner.next().await, CallEvent::Over(SharedOutcome::Error(Error::UriTooLong))));
    assert!(!other.stage.has_changed().unwrap());
    assert!(waits.unwrap().elect());
    assert!(matches!(other.next().await, CallEvent::Sent));
}

/// Retries with a flow each may come and go for as long as one request waits.
#[tokio::test]
async fn tickets_leave_with_their_members() {
    let sharing = SharedCalls::new(64 << 20);
    let (member, _waits) = sharing.join(key(), Claim::USUAL);
    for flow in 1..100 {
        let (left, ticket) = sharing.join(key(), Claim { flow: FlowId(flow), ..Claim::USUAL });
        if flow % 2 == 0 {
            ticket.unwrap().failed(Error::UriTooLong);
        }
        drop(left);
    }
    let state = member.group.state.lock();
    assert_eq!((state.places.len(), state.open.len(), state.members), (1, 1, 1));
}

/// The task of such a ticket is aborted, and could not get the answer for the others.
#[tokio::test]
async fn ticket_that_its_members_have_left_is_not_elected() {
    let sharing = SharedCalls::new(64 << 20);
    let (left, lost) = sharing.join(key(), Claim::USUAL);
    let (mut member, waits) = sharing.join(key(), urgent());
    drop(left);
    assert!(!lost.unwrap().elect());
    assert!(matches!(member.next().await, CallEvent::Leads));
    assert!(waits.unwrap().elect());
    assert!(matches!(member.next().await, CallEvent::Sent));
}

#[tokio::test]
async fn elected_ticket_stays_for_members_of_others_and_ends_with_the_last() {
    let sharing = SharedCalls::new(64 << 20);
    let (owner, elected) = sharing.join(key(), Claim::USUAL);
    let (other, _lost) = sharing.join(key(), urgent());
    let elected = elected.unwrap();
    let task = tokio::spawn(std::future::pending::<()>());
    elected.runs_in(task.abort_handle());
    assert!(elected.elect());
    drop(owner);
    let (late, none) = sharing.join(key(), urgent());
    assert!(none.is_none() && !late.is_elected());
    drop(other);
    tokio::task::yield_now().await;
    assert!(!task.is_finished());
    drop(late);
    assert!(task.await.unwrap_err().is_cancelled());
}
