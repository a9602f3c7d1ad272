//! Store of root certificates for Java (PKCS #12, RFC 7292), which reads no PEM. Pure.
//!
//! The store is neither encrypted nor signed, because it holds nothing secret. So it opens without a password.

use yasna::{DERWriter, DERWriterSeq, Tag, models::ObjectIdentifier};

/// PKCS #7 `data`.
const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
/// PKCS #12 `certBag`.
const CERTIFICATE_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 3];
/// PKCS #9 `x509Certificate`.
const X509: &[u64] = &[1, 2, 840, 113_549, 1, 9, 22, 1];
/// PKCS #9 `friendlyName`: Java's alias, unique within a store.
const ALIAS: &[u64] = &[1, 2, 840, 113_549, 1, 9, 20];
/// Oracle's `trustedKeyUsage`. Without it, Java treats a certificate as part of a chain, not as a root.
const TRUSTED: &[u64] = &[2, 16, 840, 1, 113_894, 746_875, 1, 1];
/// `anyExtendedKeyUsage`.
const FOR_ANYTHING: &[u64] = &[2, 5, 29, 37, 0];

/// Returns a store of certificates, given as pairs of alias and DER.
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

/// Writes an unencrypted `ContentInfo`.
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

/// Writes the OID of a type, then a value of that type with the context tag 0.
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
