//! Keys that restrict a rule to some of its hosts' requests, and keys that such a rule must not have.

use crate::{
    config::{
        diagnostic::{Diagnostic, Spanned},
        keys,
        reader::{Reader, Table},
    },
    policy::{Added, HostPattern, KeyPart, PathPattern},
};

/// Keys that only a rule for a whole host has: they concern the way to the host, the order of requests, or the
/// use of answers.
const OF_HOSTS: [&str; 30] = [
    keys::PRESET.entry.name,
    keys::READ_BODY.entry.name,
    keys::USAGE.entry.name,
    keys::INCLUDE_USAGE.entry.name,
    keys::REFUSED.entry.name,
    keys::URGENT.entry.name,
    keys::SHARE_BY.entry.name,
    keys::FLOW_ORDER.entry.name,
    keys::WEIGHTS.entry.name,
    keys::RESERVE.entry.name,
    keys::CACHE.entry.name,
    keys::REVALIDATE.entry.name,
    keys::NOT_MODIFIED.entry.name,
    keys::COALESCE.entry.name,
    keys::IDEMPOTENCY_KEYS.entry.name,
    keys::ALLOW_PRIVATE.entry.name,
    keys::HTTPS.entry.name,
    keys::UPSTREAM.entry.name,
    keys::VIA.entry.name,
    keys::VIA_FIELD.entry.name,
    keys::RESOLVE.entry.name,
    keys::SOURCE.entry.name,
    keys::SNI.entry.name,
    keys::CLIENT_CERT.entry.name,
    keys::CLIENT_KEY.entry.name,
    keys::SPEND.entry.name,
    keys::TRUST.entry.name,
    keys::RETRY.entry.name,
    keys::BREAKER.entry.name,
    "timeouts",
];

/// Reads the keys that select requests; `None` makes the rule its hosts' own.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    table: &Table<'a>,
    hosts: &[Spanned<HostPattern>],
    header: &Spanned<()>,
) -> Option<Added> {
    let named = [keys::RULE_PATH.entry.name, keys::METHOD.entry.name, keys::HEADER.entry.name, keys::KEY.entry.name];
    let only = reader.switch(table, &keys::ONLY);
    if !named.iter().any(|name| table.has(name)) {
        if let Some(only) = only.filter(|only| only.value) {
            let hint = "say which requests it is for, by path, method or header, or leave it out";
            reader.problems.push(Diagnostic::error(&only, "the rule of a host is the only one already", hint));
        }
        return None;
    }
    let path = reader.one(table, &keys::RULE_PATH);
    let methods = reader.several(table, &keys::METHOD).map(|methods| methods.value).unwrap_or_default();
    let headers = reader.several(table, &keys::HEADER).map(|headers| headers.value).unwrap_or_default();
    let key = reader.several(table, &keys::KEY);
    if let Some(key) = &key {
        check_key(reader, key, path.as_ref().map(|path| &path.value), hosts);
    }
    for name in OF_HOSTS {
        if table.has(name) {
            let what = format!("`{name}` is a matter of a whole host");
            let hint = "write it into a rule for the host, without path, method, header and key";
            reader.problems.push(Diagnostic::error(header, what, hint));
        }
    }
    Some(Added {
        path: path.map(|path| path.value),
        methods: methods.into_iter().map(|method| method.value).collect(),
        headers: headers.into_iter().map(|header| header.value).collect(),
        key: key.map(|key| key.value.into_iter().map(|part| part.value).collect()).unwrap_or_default(),
        only: only.is_some_and(|only| only.value),
        patient: false,
    })
}

/// Reports parts of `key` that requests cannot have.
fn check_key(
    reader: &mut Reader<'_>,
    key: &Spanned<Vec<Spanned<KeyPart>>>,
    path: Option<&PathPattern>,
    hosts: &[Spanned<HostPattern>],
) {
    for part in &key.value {
        if let KeyPart::Path(name) = &part.value
            && path.is_none_or(|path| !path.names(name))
        {
            let (what, hint) = (format!("no segment of the rule's path is called {name}"), format!("write {{{name}}}"));
            let hint = format!("{hint} instead: path = \"/v1/{{{name}}}/*\"");
            reader.problems.push(Diagnostic::error(part, what, hint));
        }
    }
    let one = matches!(hosts, [host] if host.value.is_single());
    if !one && !key.value.iter().any(|part| part.value == KeyPart::Host) {
        let what = "several hosts cannot share a budget";
        let hint = "begin the key with \"host\": each host has budgets of its own";
        reader.problems.push(Diagnostic::error(key, what, hint));
    }
}
