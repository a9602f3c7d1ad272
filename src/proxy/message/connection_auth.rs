//! Authentication schemes that log in a connection and not a request: NTLM, and Negotiate (RFC 4559), which is Kerberos
//! or NTLM. A server accepts every later request on such a connection, regardless of its sender.

use http::{
    HeaderMap, HeaderName,
    header::{AUTHORIZATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE},
};

/// Names of the schemes; they are compared without regard to case (RFC 9110 §11.1).
const SCHEMES: [&[u8]; 3] = [b"ntlm", b"negotiate", b"kerberos"];

/// Returns whether a request with these fields logs in its connection.
pub(crate) fn has_credentials(fields: &HeaderMap) -> bool {
    names_scheme(fields, &AUTHORIZATION) || names_scheme(fields, &PROXY_AUTHORIZATION)
}

/// Returns whether an answer with these fields asks for such a login, or is a part of one.
pub(crate) fn has_challenge(fields: &HeaderMap) -> bool {
    names_scheme(fields, &WWW_AUTHENTICATE) || names_scheme(fields, &PROXY_AUTHENTICATE)
}

/// Returns whether any member of the field `name` begins with one of the schemes. A comma inside a quoted string also
/// counts as the start of a member here: binding a connection without need does no harm.
fn names_scheme(fields: &HeaderMap, name: &HeaderName) -> bool {
    let members = fields.get_all(name).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    members.into_iter().any(|member| {
        let scheme = member.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default();
        SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn challenge(lines: &[&str]) -> bool {
        has_challenge(&lines.iter().map(|line| (WWW_AUTHENTICATE, HeaderValue::from_str(line).unwrap())).collect())
    }

    fn credentials(line: &str) -> bool {
        has_credentials(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(line).unwrap())]))
    }

    #[test]
    fn challenges_are_found_in_any_case_and_place() {
        for lines in [
            &["NTLM"][..],
            &["negotiate"],
            &["nTlM TlRMTVNTUAAC"],
            &["Negotiate\toYG2MIGzoAMKAQ=="],
            &["Basic realm=\"a, b\", Negotiate"],
            &["Basic realm=\"x\",NTLM"],
            &["Bearer realm=\"x\"", "Basic realm=\"x\"", " Negotiate "],
            &["Kerberos"],
        ] {
            assert!(challenge(lines), "{lines:?}");
        }
    }

    #[test]
    fn schemes_that_log_in_a_request_are_left_alone() {
        for line in ["Basic realm=\"NTLM\"", "Digest nonce=\"n\"", "Bearer", "NTLMX", "", ",", "Basic NTLM"] {
            assert!(!challenge(&[line]), "{line:?}");
        }
        for line in ["Bearer negotiate", "Basic bnRsbQ==", "Digest username=\"ntlm\"", "AWS4-HMAC-SHA256 Credential=x"]
        {
            assert!(!credentials(line), "{line:?}");
        }
    }

    #[test]
    fn credentials_are_found_in_any_case() {
        for line in ["NTLM TlRMTVNTUAAB", "ntlm TlRMTVNTUAAB", "Negotiate YII", "NEGOTIATE YII"] {
            assert!(credentials(line), "{line:?}");
        }
    }
}
