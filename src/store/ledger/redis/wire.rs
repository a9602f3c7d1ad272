//! Form of a call to the script, and of its reply.

use super::primary::Requirement;
use crate::fleet::{Epoch, Extent, Micros, Pause, PauseCause, PoolGrant, Reply, Sync, micros};

/// Number of values for each pool in a reply, and for each pause in a call or a reply.
const VALUES: usize = 8;
const PAUSE_VALUES: usize = 3;

/// Arguments of the script for a call. `server` is the condition that the server has to meet. `given` replaces the
/// server's own time and process.
pub(super) fn arguments(call: &Sync, server: Requirement, given: Option<(Micros, &str)>) -> Vec<String> {
    let or_empty = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
    let extent = match call.extent {
        Extent::Some => "some",
        Extent::All => "all",
        Extent::Leaving => "leaving",
    };
    let mut arguments = vec![
        call.member.to_string(),
        call.seq.to_string(),
        call.epoch.map(|epoch| epoch.counter.to_string()).unwrap_or_default(),
        call.epoch.map(|epoch| epoch.id.to_string()).unwrap_or_default(),
        u8::from(call.leased).to_string(),
        call.basis.map(|basis| basis.seq.to_string()).unwrap_or_default(),
        or_empty(call.basis.map(|basis| basis.elapsed)),
        call.terms.lease.to_string(),
        call.terms.split.max(micros(server.split())).to_string(),
        call.nonce.to_string(),
        extent.to_owned(),
        or_empty(given.map(|(time, _)| time)),
        given.map(|(_, run)| run.to_owned()).unwrap_or_default(),
        call.terms.division.to_string(),
        call.pauses_known.to_string(),
        server.to_string(),
        call.pauses.len().to_string(),
    ];
    for Pause { name, left, cause } in &call.pauses {
        arguments.extend([name.to_string(), left.to_string(), cause.as_str().to_owned()]);
    }
    for entry in &call.entries {
        arguments.push(entry.pool.to_string());
        let numbers = [
            entry.limit.into(),
            entry.per,
            entry.settle,
            entry.holds.into(),
            entry.want.into(),
            entry.cost.into(),
            entry.need.into(),
            entry.demand.into(),
        ];
        arguments.extend(numbers.map(|number| number.to_string()));
        arguments.extend([or_empty(entry.ends), entry.word.to_string()]);
    }
    arguments
}

/// Parses the script's reply; `None` if it is malformed.
pub(in super::super) fn read(said: &[String]) -> Option<Reply> {
    let [word, rest @ ..] = said else { return None };
    Some(match word.as_str() {
        "done" => {
            let [counter, id, learning, members, differing, entries, rest @ ..] = rest else { return None };
            let (entries, rest) = chunks(entries, VALUES, rest)?;
            let [pauses_known, pauses, rest @ ..] = rest else { return None };
            let (pauses, _) = chunks(pauses, PAUSE_VALUES, rest)?;
            let epoch = Epoch { counter: counter.parse().ok()?, id: id.parse().ok()? };
            Reply::Done {
                epoch,
                learning: learning.parse().ok()?,
                members: members.parse().ok()?,
                differing: differing.parse().ok()?,
                given: entries.map(given).collect::<Option<_>>()?,
                pauses_known: pauses_known.parse().ok()?,
                pauses: pauses.map(pause).collect::<Option<_>>()?,
            }
        }
        "report" => Reply::Report,
        "reset" => Reply::Reset,
        "deposed" => Reply::Deposed,
        "not-yet" => Reply::NotYet(rest.first()?.parse().ok()?),
        "disagreed" => Reply::Disagreed(rest.first()?.parse().ok()?),
        "ignored" => Reply::Ignored,
        _ => return None,
    })
}

/// Splits off `count` groups of this many values, and returns the rest too.
fn chunks<'a>(
    count: &str,
    values: usize,
    said: &'a [String],
) -> Option<(impl Iterator<Item = &'a [String]>, &'a [String])> {
    let count: usize = count.parse().ok()?;
    let (chunks, rest) = said.split_at_checked(count.checked_mul(values)?)?;
    Some((chunks.chunks(values), rest))
}

fn pause(values: &[String]) -> Option<Pause> {
    let [name, left, cause] = values else { return None };
    Some(Pause { name: name.as_str().into(), left: left.parse().ok()?, cause: PauseCause::read(cause) })
}

fn given(values: &[String]) -> Option<PoolGrant> {
    let [holds, target, wanted, over, queued, limit, pace, word] = values else { return None };
    Some(PoolGrant {
        holds: holds.parse().ok()?,
        target: target.parse().ok()?,
        wanted: wanted == "1",
        over: over == "1",
        queued: queued == "1",
        limit: limit.parse().ok()?,
        pace: pace.parse().ok()?,
        word: word.as_str().into(),
    })
}
