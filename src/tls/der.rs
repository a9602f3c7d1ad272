//! The two names in a certificate, for messages. Decides nothing: webpki decides about trust.

use x509_parser::{certificate::X509Certificate, parse_x509_certificate, x509::X509Name};

/// Issuer of `certificate`; `None` if it is self-signed, or cannot be read.
pub(super) fn signed_by(certificate: &[u8]) -> Option<String> {
    let read = read(certificate)?;
    (read.issuer().as_raw() != read.subject().as_raw()).then(|| common_name(read.issuer()))
}

/// Subject of `certificate`.
pub(super) fn subject(certificate: &[u8]) -> String {
    read(certificate).map_or_else(String::new, |read| common_name(read.subject()))
}

fn read(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    parse_x509_certificate(certificate).ok().map(|(_, read)| read)
}

/// The common name in a name, or its last part if it has none. The text is foreign, so it is shortened and
/// cleaned.
pub(super) fn common_name(name: &X509Name<'_>) -> String {
    let best = name.iter_common_name().next().or_else(|| name.iter_attributes().last());
    let best = best.map_or(&[][..], |attribute| attribute.as_slice());
    String::from_utf8_lossy(best).chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junk_has_no_names() {
        for junk in
            [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0x84, 1, 1, 1, 1], &[0x30, 0x83, 0xff, 0xff, 0xff], &[0x30; 64]]
        {
            assert_eq!(signed_by(junk), None);
            assert_eq!(subject(junk), "");
        }
    }
}
