//! Cookies of an upstream as cookies of the gateway (RFC 6265 §5.2).
//!
//! All upstreams share the gateway's host, so only paths keep their cookies apart. Names that begin with `__Host-` or
//! `__Secure-` demand attributes that a gateway without TLS cannot give: clients will not keep those cookies.

/// `value` in the form for a client of the gateway; `None` if it may stay as it is.
///
/// `place` maps the path that the cookie names, or its absence, to a gateway path.
pub(crate) fn rewrite(value: &[u8], place: impl Fn(Option<&[u8]>) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut parts = value.split(|byte| *byte == b';');
    let mut rewritten = parts.next()?.to_vec();
    let (mut changed, mut placed) = (false, false);
    for part in parts {
        let attribute = part.trim_ascii();
        let (name, said) = match attribute.iter().position(|byte| *byte == b'=') {
            Some(at) => (attribute[..at].trim_ascii(), attribute[at + 1..].trim_ascii()),
            None => (attribute, &b""[..]),
        };
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        // The connection to the gateway has no TLS, and clients keep `SameSite=None` only along with `Secure`.
        if is("domain") || is("secure") || (is("samesite") && said.eq_ignore_ascii_case(b"none")) {
            changed = true;
            continue;
        }
        rewritten.push(b';');
        let path = (is("path") && said.starts_with(b"/")).then(|| place(Some(said))).flatten();
        match path {
            Some(path) => {
                // The bytes before and after the path stay unchanged.
                let start = said.as_ptr() as usize - part.as_ptr() as usize;
                rewritten.extend_from_slice(&part[..start]);
                rewritten.extend_from_slice(&path);
                rewritten.extend_from_slice(&part[start + said.len()..]);
                (changed, placed) = (true, true);
            }
            None => rewritten.extend_from_slice(part),
        }
    }
    if !placed && let Some(path) = place(None) {
        rewritten.extend_from_slice(b"; Path=");
        rewritten.extend_from_slice(&path);
        changed = true;
    }
    changed.then_some(rewritten)
}
