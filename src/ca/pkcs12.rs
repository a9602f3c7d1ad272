//! Roots as a store for Java (PKCS #12, RFC 7292), which reads no PEM. Pure.
//!
//! Neither encrypted nor signed: it holds nothing secret, and so needs no password to open it.

use yasna::{DERWriter, DERWriterSeq, Tag, models::ObjectIdentifier};

/// PKCS #7 `data`.
const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
/// PKCS #12 `certBag`.
const CERTIFICATE_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 3];
/// PKCS #9 `x509Certificate`.
const X509: &[u64] = &[1, 2, 840, 113_549, 1, 9, 22, 1];
/// PKCS #9 `friendlyName`: Java's alias, each once.
const ALIAS: &[u64] = &[1, 2, 840, 113_549, 1, 9, 20];
/// Oracle's `trustedKeyUsage`: without it Java takes a certificate for part of a chain, not for a root.
const TRUSTED: &[u64] = &[2, 16, 840, 1, 113_894, 746_875, 1, 1];
/// `anyExtendedKeyUsage`.
const FOR_ANYTHING: &[u64] = &[2, 5, 29, 37, 0];

/// A store of these certificates (DER), each by an alias of its own.
pub(super) fn store<'a>(roots: impl Iterator<Item = (String, &'a [u8])>) -> Vec<u8> {
    let bags = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| roots.for_each(|(alias, root)| bag(writer.next(), &alias, root)));
    });
    let contents = yasna::construct_der(|writer| writer.write_sequence(|writer| data(writer.next(), &bags)));
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(3);
            data(writer.next(), &contents);
        });
    })
}

/// A `ContentInfo` that is not encrypted.
fn data(writer: DERWriter<'_>, content: &[u8]) {
    writer.write_sequence(|writer| typed(writer, DATA, |writer| writer.write_bytes(content)));
}

fn bag(writer: DERWriter<'_>, alias: &str, certificate: &[u8]) {
    writer.write_sequence(|writer| {
        typed(writer, CERTIFICATE_BAG, |writer| {
            writer.write_sequence(|writer| typed(writer, X509, |writer| writer.write_bytes(certificate)));
        });
        writer.next().write_set_of(|writer| {
            attribute(writer.next(), ALIAS, |writer| writer.write_bmp_string(alias));
            attribute(writer.next(), TRUSTED, |writer| oid(writer, FOR_ANYTHING));
        });
    });
}

/// What something is, and then the thing itself.
fn typed(writer: &mut DERWriterSeq<'_>, kind: &[u64], value: impl FnOnce(DERWriter<'_>)) {
    oid(writer.next(), kind);
    writer.next().write_tagged(Tag::context(0), value);
}

fn attribute(writer: DERWriter<'_>, kind: &[u64], value: impl FnOnce(DERWriter<'_>)) {
    writer.write_sequence(|writer| {
        oid(writer.next(), kind);
        writer.next().write_set_of(|writer| value(writer.next()));
    });
}

fn oid(writer: DERWriter<'_>, id: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(id));
}
