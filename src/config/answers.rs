//! Reads the keys on an API's answers (`spend`, `trust`, `retry`, `breaker`): of a rule, and the defaults of the file,
//! the environment and the flags.

use std::num::NonZeroU32;

use super::{
    keys,
    reader::{Reader, Table},
};
use crate::policy::{Policy, RetryPolicy, Spend, Trust};

/// Values of one source; weaker sources fill in the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerKeys {
    pub(super) spend: Option<Spend>,
    pub(super) trust: Option<Trust>,
    pub(super) retry: Option<bool>,
    /// Longest body that is kept. Separate from `retry`, because `"on"` leaves the size to weaker sources.
    pub(super) body: Option<u64>,
    /// Attempts per request at most. Separate from `retry` for the same reason.
    pub(super) tries: Option<NonZeroU32>,
    pub(super) breaker: Option<bool>,
}

// === impl AnswerKeys ===

impl AnswerKeys {
    /// Reads the keys of `table`, which is a rule or the whole file.
    pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Self {
        let (retry, body, tries) = retry(reader, table);
        Self {
            spend: reader.one(table, &keys::SPEND).map(|spend| spend.value),
            trust: reader.one(table, &keys::TRUST).map(|trust| trust.value),
            retry,
            body,
            tries,
            breaker: reader.one(table, &keys::BREAKER).map(|breaker| breaker.value),
        }
    }

    /// Fills in the gaps from `weaker`.
    pub(super) fn or(self, weaker: Self) -> Self {
        Self {
            spend: self.spend.or(weaker.spend),
            trust: self.trust.or(weaker.trust),
            retry: self.retry.or(weaker.retry),
            body: self.body.or(weaker.body),
            tries: self.tries.or(weaker.tries),
            breaker: self.breaker.or(weaker.breaker),
        }
    }

    /// Returns `policy`, with these values over its own.
    pub(super) fn over(self, policy: Policy) -> Policy {
        let body = self.body.or(policy.retry.map(|retry| retry.body)).unwrap_or(RetryPolicy::BODY);
        let tries = self.tries.or(policy.retry.and_then(|retry| retry.tries));
        Policy {
            spend: self.spend.unwrap_or(policy.spend),
            trust: self.trust.unwrap_or(policy.trust),
            retry: self.retry.unwrap_or(policy.retry.is_some()).then_some(RetryPolicy { body, tries }),
            breaker: self.breaker.unwrap_or(policy.breaker),
            ..policy
        }
    }
}

/// Reads `retry`, a word or a table; a table means "on" and adds details.
fn retry<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> (Option<bool>, Option<u64>, Option<NonZeroU32>) {
    if !table.has_table(keys::RETRY.entry.name) {
        return (reader.one(table, &keys::RETRY).map(|on| on.value), None, None);
    }
    let Some(inner) = reader.table(table, keys::RETRY.entry.name, "retry.") else { return (None, None, None) };
    reader.only(&inner, &keys::RETRY_TABLE);
    let body = reader.one(&inner, &keys::BODY).map(|body| body.value);
    (Some(true), body, reader.one(&inner, &keys::TRIES).map(|tries| tries.value))
}
