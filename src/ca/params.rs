//! The contents of certificates: the CA's own, and those of hosts. Pure except for randomness.

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

/// The validity of a CA. Long, because replacing a CA means a change on every worker.
const AUTHORITY: Duration = days(3650);
/// The validity of a host's certificate; clients accept at most 197 days.
const LEAF: Duration = days(90);
/// Certificates start in the past, for machines whose clocks are behind ours.
const BACKDATED: Duration = days(1);

/// `count` days.
pub(super) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

/// The contents of the certificate of a CA with this `key`.
pub(super) fn authority(
    key: &KeyPair,
    constraints: &Constraints,
    now: SystemTime,
) -> Result<CertificateParams, CaError> {
    // One name per installation, so that stores that hold several can tell them apart; of the key rather than of the
    // machine, whose name must not leak.
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

/// The contents of the certificate of `host`, and the end of its validity: never later than that of its CA.
pub(super) fn leaf(
    host: &str,
    now: SystemTime,
    authority_until: SystemTime,
) -> Result<(CertificateParams, SystemTime), CaError> {
    let until = (now - BACKDATED + LEAF).min(authority_until);
    let mut params = CertificateParams::default();
    // No subject at all: then the alternative name is critical (RFC 5280 §4.2.1.6), and there is no common name of at
    // most 64 bytes for a host to be too long for.
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
    // The final dot of an absolute name has no place in a certificate.
    if host.ends_with('.') {
        return Err(wrong());
    }
    Ok(SanType::DnsName(name.as_ref().try_into().map_err(|_| wrong())?))
}

/// 16 random bytes that are a positive number of that length.
fn serial() -> Result<SerialNumber, CaError> {
    let mut bytes = [0; 16];
    let random = aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|error| CaError::Tls(error.into()))?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn valid(params: &mut CertificateParams, from: SystemTime, until: SystemTime) {
    // The type of these is one of a crate that only rcgen depends on: this is how to make one without naming it.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds =
        |at: SystemTime| Duration::from_secs(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs());
    params.not_before = epoch + seconds(from);
    params.not_after = epoch + seconds(until);
}
