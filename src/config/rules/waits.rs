//! Bounds on the wait and the number of a rule's queued requests.

use super::RawRule;
use crate::{
    config::{
        keys,
        reader::{Reader, Table},
    },
    policy::Policy,
};

/// Records which bounds a rule has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitKeys {
    max_wait: bool,
    max_waiting: bool,
}

/// Reads a rule's bounds on waiting.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>, policy: &mut Policy) -> WaitKeys {
    let (wait, waiting) = (reader.one(table, &keys::MAX_WAIT), reader.one(table, &keys::MAX_WAITING));
    let said = WaitKeys { max_wait: wait.is_some(), max_waiting: waiting.is_some() };
    policy.max_wait = wait.map_or(policy.max_wait, |wait| wait.value);
    policy.max_waiting = waiting.map_or(policy.max_waiting, |waiting| waiting.value);
    said
}

/// Gives added rules without bounds the bounds of their hosts' rules. The strictest applicable bound holds, and a
/// default must not override a value that the user wrote.
pub(in crate::config) fn settle_waits(drafts: &mut [RawRule]) {
    let own: Vec<Policy> =
        drafts.iter().filter(|draft| draft.policy.added.is_none()).map(|draft| draft.policy.clone()).collect();
    for draft in drafts.iter_mut().filter(|draft| draft.policy.added.is_some()) {
        let hosts = &draft.policy.hosts;
        let of_hosts = own.iter().filter(|own| own.hosts.iter().any(|own| hosts.iter().any(|host| host.overlaps(own))));
        let (wait, waiting) = of_hosts
            .fold((draft.policy.max_wait, draft.policy.max_waiting), |(wait, waiting), own| {
                (wait.max(own.max_wait), waiting.max(own.max_waiting))
            });
        if !draft.waits.max_wait {
            draft.policy.max_wait = wait;
        }
        if !draft.waits.max_waiting {
            draft.policy.max_waiting = waiting;
        }
    }
}
