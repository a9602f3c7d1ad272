//! Contents of the CA's certificate and of hosts' certificates. Pure except for randomness.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::{crypto::aws_lc_rs, pki_types::DnsName};

use super::{CaError, Constraints, digest::sha256};

/// Validity of a CA: ten years, because a new CA means a change on every worker.
const AUTHORITY: Duration = days(3650);
/// Validity of a host's certificate. Apple's clients accept at most 825 days from any CA (support.apple.com/103769).
const LEAF: Duration = days(90);
/// Time by which the validity begins before the signature, for machines whose clocks are behind ours.
const BACKDATED: Duration = days(1);

/// Duration of `count` days of 24 hours.
pub(super) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

/// Returns the contents of the certificate of a CA with this `key`.
pub(super) fn authority(
    key: &KeyPair,
    constraints: &Constraints,
    now: SystemTime,
) -> Result<CertificateParams, CaError> {
    // The name differs per installation, so that users can distinguish several CAs in one store. A hash of the key
    // makes the difference, because the name of the machine must not leak.
    let id: String = sha256(&key.subject_public_key_info())[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, format!("andante CA {id}"));
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.serial_number = Some(serial()?);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = constraints.to_extension();
    valid(&mut params, now - BACKDATED, now + AUTHORITY);
    Ok(params)
}

/// Returns the contents of the certificate of `host`, and the end of its validity, which is never later than the CA's.
pub(super) fn leaf(
    host: &str,
    now: SystemTime,
    authority_until: SystemTime,
) -> Result<(CertificateParams, SystemTime), CaError> {
    let until = (now - BACKDATED + LEAF).min(authority_until);
    let mut params = CertificateParams::default();
    // The subject is empty, because a common name is limited to 64 bytes and hosts may be longer. An empty subject
    // makes the alternative name critical (RFC 5280 §4.2.1.6).
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![alternative_name(host)?];
    params.serial_number = Some(serial()?);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    valid(&mut params, now - BACKDATED, until);
    Ok((params, until))
}

fn alternative_name(host: &str) -> Result<SanType, CaError> {
    let wrong = || CaError::Host { host: host.to_owned() };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let name = DnsName::try_from(host).map_err(|_| wrong())?;
    // `DnsName` accepts the final dot of an absolute name, but a certificate must not contain it.
    if host.ends_with('.') {
        return Err(wrong());
    }
    Ok(SanType::DnsName(name.as_ref().try_into().map_err(|_| wrong())?))
}

/// Returns a random serial number. The first two bits are 0 and 1: it is positive and encoded in exactly 16 bytes.
fn serial() -> Result<SerialNumber, CaError> {
    let mut bytes = [0; 16];
    let random = aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|error| CaError::Tls(error.into()))?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn valid(params: &mut CertificateParams, from: SystemTime, until: SystemTime) {
    // The dates have a type of the `time` crate, which only rcgen depends on. Adding to a date avoids naming that type.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds =
        |at: SystemTime| Duration::from_secs(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs());
    params.not_before = epoch + seconds(from);
    params.not_after = epoch + seconds(until);
}
