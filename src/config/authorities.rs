//! Checks that a file of authorities contains any.

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::prelude::X509Certificate;

/// Advice for a file without an authority.
pub const NO_AUTHORITY_HINT: &str = "name the certificate of the authority that has signed the API's, which is its last one: \
                                     `openssl s_client -showcerts`";

/// Problem of a file with `bytes` if none of its certificates may sign others. A self-signed one is trusted as it is.
pub fn missing(bytes: &[u8]) -> Option<String> {
    let ders: Vec<CertificateDer<'static>> = match bytes.first() {
        Some(0x30) => vec![bytes.to_vec().into()],
        _ => CertificateDer::pem_slice_iter(bytes).filter_map(Result::ok).collect(),
    };
    let mut names = Vec::new();
    for der in &ders {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        if may_sign(&certificate) || certificate.subject() == certificate.issuer() {
            return None;
        }
        names.push(certificate.subject().to_string());
    }
    let first = names.first()?;
    Some(format!(
        "it holds no authority: the certificate of {first:?} is a server's or a client's, and cannot sign others"
    ))
}

fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        // Version 1 has no extensions.
        Ok(None) => certificate.version().0 == 0,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    #[test]
    fn a_servers_certificate_is_no_authority_and_its_issuer_is() {
        let named = |name: &str| {
            let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params
        };
        let mut authority = named("Corp CA");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let server = named("a.test").signed_by(&key, &authority).unwrap().pem();
        assert!(missing(server.as_bytes()).unwrap().contains("holds no authority"));
        assert_eq!(missing(authority.pem().as_bytes()), None);
        assert_eq!(missing(format!("{server}{}", authority.pem()).as_bytes()), None);
        assert_eq!(missing(named("self").self_signed(&key).unwrap().pem().as_bytes()), None, "it is trusted as it is");
        assert_eq!(missing(b""), None);
    }
}
