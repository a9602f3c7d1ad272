//! Finds files whose certificates have expired.

use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::clock;

/// Advice about expired certificates.
pub const EXPIRED_HINT: &str = "name a file with certificates that are valid, or set this machine's clock";

/// Problem with the certificates in `bytes`, if all have expired. A single valid certificate is enough: bundles
/// keep old ones for years.
pub fn expired(bytes: &[u8]) -> Option<String> {
    let ders: Vec<CertificateDer<'static>> = match bytes.first() {
        Some(0x30) => vec![bytes.to_vec().into()],
        _ => CertificateDer::pem_slice_iter(bytes).filter_map(Result::ok).collect(),
    };
    let now = i64::try_from(clock::wall().as_secs()).unwrap_or(i64::MAX);
    let mut last: Option<(i64, String)> = None;
    for der in &ders {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let until = certificate.validity().not_after.timestamp();
        if until > now {
            return None;
        }
        if last.as_ref().is_none_or(|(latest, _)| until > *latest) {
            let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
            last = Some((until, name.map_or_else(|| certificate.subject().to_string(), str::to_owned)));
        }
    }
    let (until, name) = last?;
    let day = UNIX_EPOCH.checked_add(Duration::from_secs(until.try_into().ok()?))?;
    let day = humantime::format_rfc3339_seconds(day).to_string();
    let what = if ders.len() > 1 { "all certificates have expired, the last one, " } else { "the certificate " };
    let verb = if ders.len() > 1 { "," } else { " expired" };
    Some(format!("{what}{name:?}{verb} on {}", day.split('T').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str, years: std::ops::Range<i32>) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 12, 31);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_file_whose_certificates_have_all_expired_is_told_with_name_and_day() {
        let (old, new) = (pem("Old Corp CA", 2010..2020), pem("New Corp CA", 2020..2099));
        let what = "the certificate \"Old Corp CA\" expired on 2020-12-31";
        assert_eq!(expired(old.as_bytes()).as_deref(), Some(what));
        assert_eq!(expired(new.as_bytes()), None);
        assert_eq!(expired(format!("{old}{new}").as_bytes()), None, "bundles carry old ones");
        let older = pem("Older CA", 2000..2001);
        let what = "all certificates have expired, the last one, \"Old Corp CA\", on 2020-12-31";
        assert_eq!(expired(format!("{old}{older}").as_bytes()).as_deref(), Some(what));
    }
}
