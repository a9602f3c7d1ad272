//! Reads the keys for reaching a rule's hosts, and compares them with each other.

use std::net::IpAddr;

use crate::config::{
    diagnostic::{Diagnostic, Spanned},
    files::{FileRef, PemKind},
    keys,
    reader::{Reader, Table},
};
use crate::policy::{Egress, Identity, RuleTimeouts};

/// Reads the keys for reaching a rule's hosts, with the files in these keys.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> (Egress, Vec<FileRef>) {
    let source = reader.one(table, &keys::SOURCE);
    let via = reader.one(table, &keys::VIA);
    let resolve = reader.several(table, &keys::RESOLVE).map(|resolve| resolve.value).unwrap_or_default();
    if let Some(source) = &source {
        reader.problems.extend(resolve.iter().filter_map(|target| unreachable(source, target, target.value)));
        let parent = via.as_ref().and_then(|via| via.value.as_ref().and_then(|parent| parent.host.parse().ok()));
        reader.problems.extend(via.as_ref().zip(parent).and_then(|(via, parent)| unreachable(source, via, parent)));
    }
    let (identity, files) = identity(reader, table).unzip();
    let egress = Egress {
        secure: reader.one(table, &keys::UPSTREAM).is_some_and(|secure| secure.value),
        via: via.and_then(|via| via.value),
        unannounced: reader.one(table, &keys::VIA_FIELD).is_some_and(|announced| !announced.value),
        resolve: resolve.into_iter().map(|address| address.value).collect(),
        source: source.map(|source| source.value),
        sni: reader.one(table, &keys::SNI).map(|sni| sni.value),
        identity,
        timeouts: timeouts(reader, table),
    };
    (egress, files.unwrap_or_default())
}

fn timeouts<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> RuleTimeouts {
    let mut timeouts = RuleTimeouts::default();
    let Some(table) = reader.table(table, "timeouts", "timeouts.") else { return timeouts };
    reader.only(&table, &keys::RULE_TIMEOUT);
    for (key, timeout) in [
        (keys::RULE_CONNECT, &mut timeouts.connect),
        (keys::RULE_ANSWER, &mut timeouts.answer),
        (keys::RULE_IDLE, &mut timeouts.idle),
    ] {
        *timeout = reader.one(&table, &key).map(|written| written.value);
    }
    timeouts
}

/// Reports addresses of different families: no connection leads from IPv4 to IPv6 or back.
fn unreachable<T>(source: &Spanned<IpAddr>, at: &Spanned<T>, target: IpAddr) -> Option<Diagnostic> {
    let family = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let (from, to) = (family(source.value), family(target));
    let what = format!("{target} is {to} and cannot be reached from the `source` {}", source.value);
    (from != to).then(|| Diagnostic::error(at, what, format!("write an {from} address, or another `source`")))
}

fn identity<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<(Identity, Vec<FileRef>)> {
    let certificate = reader.file(table, &keys::CLIENT_CERT);
    let key = reader.file(table, &keys::CLIENT_KEY);
    // An invalid certificate has been reported, and is not missing.
    if let (Some(key), false) = (&key, table.has(keys::CLIENT_CERT.entry.name)) {
        let hint = "write client-cert = \"client.pem\", the certificate that it is for";
        reader.problems.push(Diagnostic::error(key, "a key without its certificate is of no use", hint));
    }
    let certificate = certificate?;
    let key = key.unwrap_or_else(|| certificate.clone());
    let identity = Identity { certificate: certificate.value.clone(), key: key.value.clone() };
    Some((identity, vec![FileRef::new(certificate, PemKind::Certificates), FileRef::new(key, PemKind::Key)]))
}
