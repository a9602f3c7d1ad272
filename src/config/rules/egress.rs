//! Reads how a rule's hosts are reached, and holds the parts of that against each other.

use std::net::IpAddr;

use super::super::{
    files::{Holds, Named},
    problem::{Placed, Problem},
    reader::{Reader, Table},
    value::upstream,
};
use crate::policy::{Egress, Identity};

/// The keys that give a rule a purpose although it limits nothing.
pub(super) const KEYS: &[&str] = &["https", "upstream", "via", "resolve", "source", "sni", "client-cert", "client-key"];

/// How a rule's hosts are reached, and the files that it names for that.
pub(super) fn read<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> (Egress, Vec<Named>) {
    let source = reader.one(table, "source", &upstream::SOURCE);
    let via = reader.one(table, "via", &upstream::VIA);
    let resolve = reader.several(table, "resolve", &upstream::RESOLVE).map(|resolve| resolve.value).unwrap_or_default();
    if let Some(source) = &source {
        reader.problems.extend(resolve.iter().filter_map(|target| unreachable(source, target, target.value)));
        let parent = via.as_ref().and_then(|via| via.value.as_ref().and_then(|parent| parent.host.parse().ok()));
        reader.problems.extend(via.as_ref().zip(parent).and_then(|(via, parent)| unreachable(source, via, parent)));
    }
    let (identity, files) = identity(reader, table).unzip();
    let egress = Egress {
        secure: reader.one(table, "upstream", &upstream::UPSTREAM).is_some_and(|secure| secure.value),
        via: via.and_then(|via| via.value),
        resolve: resolve.into_iter().map(|address| address.value).collect(),
        source: source.map(|source| source.value),
        sni: reader.one(table, "sni", &upstream::SNI).map(|sni| sni.value),
        identity,
    };
    (egress, files.unwrap_or_default())
}

/// No connection goes from IPv4 to IPv6, or the other way round.
fn unreachable<T>(source: &Placed<IpAddr>, at: &Placed<T>, target: IpAddr) -> Option<Problem> {
    let family = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let (from, to) = (family(source.value), family(target));
    let what = format!("{target} is {to} and cannot be reached from the `source` {}", source.value);
    (from != to).then(|| Problem::error(at, what, format!("write an {from} address, or another `source`")))
}

fn identity<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<(Identity, Vec<Named>)> {
    let certificate = reader.file(table, "client-cert");
    let key = reader.file(table, "client-key");
    // A certificate that was written wrongly has been reported, and is not missing.
    if let (Some(key), false) = (&key, table.has("client-cert")) {
        let hint = "write client-cert = \"client.pem\", the certificate that it is for";
        reader.problems.push(Problem::error(key, "a key without its certificate is of no use", hint));
    }
    let certificate = certificate?;
    let key = key.unwrap_or_else(|| certificate.clone());
    let identity = Identity { certificate: certificate.value.clone(), key: key.value.clone() };
    Some((identity, vec![Named::new(certificate, Holds::Certificates), Named::new(key, Holds::Key)]))
}
