//! The two names in a certificate, for messages. Decides nothing: what is believed is decided by webpki.

/// Who signed `certificate`; `None` if it did so itself, or cannot be read.
pub(super) fn signed_by(certificate: &[u8]) -> Option<String> {
    let (issuer, subject) = names(certificate)?;
    (issuer != subject).then(|| common_name(issuer))
}

/// Whose `certificate` is.
pub(super) fn subject(certificate: &[u8]) -> String {
    names(certificate).map_or_else(String::new, |(_, subject)| common_name(subject))
}

/// Issuer and subject (RFC 5280 §4.1).
fn names(mut certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut certificate = take(&mut certificate)?.1;
    let mut fields = take(&mut certificate)?.1;
    const VERSION: u8 = 0xa0;
    let mut field = take(&mut fields)?;
    if field.0 == VERSION {
        field = take(&mut fields)?;
    }
    let _serial_number = field;
    let _signature = take(&mut fields)?;
    let issuer = take(&mut fields)?.1;
    let _validity = take(&mut fields)?;
    Some((issuer, take(&mut fields)?.1))
}

/// The common name in a name, or its last part if it has none. Comes from a stranger, and is cut and cleaned.
fn common_name(mut name: &[u8]) -> String {
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    let mut best: &[u8] = b"";
    while let Some((_, mut set)) = take(&mut name) {
        let Some((_, mut attribute)) = take(&mut set) else { break };
        let (Some((_, kind)), Some((_, value))) = (take(&mut attribute), take(&mut attribute)) else { break };
        best = value;
        if kind == COMMON_NAME {
            break;
        }
    }
    String::from_utf8_lossy(best).chars().filter(|c| !c.is_control()).take(100).collect()
}

/// Takes one element off `input`: its tag and its content.
fn take<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], rest) = input.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        // 0x80 is for BER; nobody's certificate is longer than 16 MB.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, content))
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
