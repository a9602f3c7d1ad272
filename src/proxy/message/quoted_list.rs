//! Lists in fields, with quoted strings in them.

/// The members of a line whose values may be quoted, with commas in them (RFC 9110 §5.6.4).
pub(crate) fn quoted_members(line: &[u8]) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let members = line.split(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' => return !quoted,
            _ => {}
        }
        false
    });
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty()).collect()
}
