//! How long and how many requests of a rule may wait.

use super::RawRule;
use crate::{
    config::{
        keys,
        reader::{Reader, Table},
    },
    policy::Policy,
};

/// Whether a rule says how long and how many may wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitKeys {
    max_wait: bool,
    max_waiting: bool,
}

/// The bounds on waiting that a rule says.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>, policy: &mut Policy) -> WaitKeys {
    let (wait, waiting) = (reader.one(table, &keys::MAX_WAIT), reader.one(table, &keys::MAX_WAITING));
    let said = WaitKeys { max_wait: wait.is_some(), max_waiting: waiting.is_some() };
    policy.max_wait = wait.map_or(policy.max_wait, |wait| wait.value);
    policy.max_waiting = waiting.map_or(policy.max_waiting, |waiting| waiting.value);
    said
}

/// Gives rules for some requests that do not say how long or how many may wait what the rules of their hosts say: the least of
/// all that hold counts, and a default is not to win against a value that somebody wrote.
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
