//! Signatures of requests: AWS (`SignedHeaders=…` in `Authorization` or in the query) and RFC 9421 (`Signature-Input`).

use http::{HeaderMap, HeaderName, Uri, header::AUTHORIZATION};

/// Fields that name what a signature covers.
const SIGNATURES: [HeaderName; 2] = [AUTHORIZATION, HeaderName::from_static("signature-input")];

/// Returns whether a signature names the field, so that the API would refuse another value of it.
pub(crate) fn cover(fields: &HeaderMap, uri: &Uri, name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let names = |text: &[u8]| text.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name));
    SIGNATURES.iter().flat_map(|of| fields.get_all(of)).any(|value| names(value.as_bytes()))
        || uri.query().is_some_and(|query| names(query.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::{
        HeaderValue,
        header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE},
    };

    use super::*;

    #[test]
    fn signatures_name_what_they_cover() {
        let plain = Uri::from_static("/x");
        for (name, value) in [
            ("authorization", "AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=accept-encoding;host, Signature=1f"),
            ("signature-input", "sig1=(\"@method\" \"accept-encoding\");created=1618884473"),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(name, HeaderValue::from_static(value));
            assert!(cover(&fields, &plain, &ACCEPT_ENCODING) && !cover(&fields, &plain, &ACCEPT_LANGUAGE), "{name}");
        }
        let presigned = Uri::from_static("/x?X-Amz-SignedHeaders=accept-encoding%3Bhost&X-Amz-Signature=1f");
        assert!(cover(&HeaderMap::new(), &presigned, &ACCEPT_ENCODING));
        assert!(!cover(&HeaderMap::new(), &plain, &ACCEPT_ENCODING));
    }
}
