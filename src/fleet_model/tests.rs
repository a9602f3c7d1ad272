use super::*;
use andante_fleet::{CallAge, Terms};

const S: Micros = 1_000_000;
const LEASE: Micros = 10 * S;

/// A call of a member that wants nothing. `since` is the age of its last call at this one, if that was answered.
fn call(member: u64, seq: u64, since: Option<Micros>) -> Sync {
    Sync {
        member: MemberId(member),
        seq,
        epoch: (seq > 1).then_some(Epoch { counter: 1, id: 3 }),
        leased: seq > 1,
        basis: since.map(|elapsed| CallAge { seq: seq - 1, elapsed }),
        terms: Terms { lease: LEASE, split: 0, division: Division::default() },
        nonce: 5,
        extent: Extent::Some,
        pauses_known: 0,
        pauses: vec![],
        entries: vec![],
    }
}

/// Number of members that the store reports.
fn members(book: &mut Book, call: &Sync, wall: Micros) -> u32 {
    match book.sync(call, wall, "a").0 {
        Reply::Done { members, .. } => members,
        other => panic!("{other:?}"),
    }
}

/// No member confirms that six seconds have passed, so the store does not count them. Then its clock is set forward by
/// a minute, and a member reports the true time.
#[test]
fn a_lease_is_not_shorter_because_the_stores_time_makes_up_for_a_lag() {
    let mut book = Book::declared_new("a", 0, LEASE, 3);
    members(&mut book, &call(1, 1, None), 0);
    assert_eq!(members(&mut book, &call(2, 1, None), 0), 2);
    assert_eq!(members(&mut book, &call(2, 2, None), 6 * S), 2);
    assert_eq!(members(&mut book, &call(1, 2, Some(7 * S)), 67 * S), 2);
    for second in 8..16 {
        let call = call(1, second as u64 - 5, Some(S));
        assert_eq!(
            members(&mut book, &call, (second + 60) * S),
            2,
            "its lease lasts from the 6th second to the 16th: {second}"
        );
    }
    for second in 16..=20 {
        members(&mut book, &call(1, second as u64 - 5, Some(S)), (second + 60) * S);
    }
    assert_eq!(members(&mut book, &call(1, 16, Some(S)), 81 * S), 1);
}
