//! Tests of the certificates' fields, read by other libraries than the one that wrote them.

use std::{fs, process::Command};

use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    parse_x509_certificate,
};

use super::*;

fn extension<'a, T>(
    certificate: &'a X509Certificate<'_>,
    wanted: impl Fn(&'a ParsedExtension<'a>) -> Option<T>,
) -> Option<(T, bool)> {
    certificate.extensions().iter().find_map(|found| Some((wanted(found.parsed_extension())?, found.critical)))
}

#[test]
fn r44_a_leaf_says_what_it_must() {
    let now = SystemTime::now();
    let ca = ca();
    let (_, authority) = parse_x509_certificate(ca.certificate().der()).unwrap();
    for host in ["api.example.com", "10.0.0.5", "2001:db8::5"] {
        let der = leaf(&ca, host, now);
        let (_, leaf) = parse_x509_certificate(&der).unwrap();
        assert_eq!(leaf.subject().iter().count(), 0, "{host}");
        assert_eq!(leaf.issuer(), authority.subject(), "{host}");

        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert!(names.critical, "{host}");
        let address = host.parse::<IpAddr>().map(|ip| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        });
        match (&names.value.general_names[..], address) {
            ([GeneralName::DNSName(name)], Err(_)) => assert_eq!(*name, host),
            ([GeneralName::IPAddress(bytes)], Ok(address)) => assert_eq!(*bytes, address),
            (names, _) => panic!("{host}: {names:?}"),
        }

        let theirs = extension(&authority, |found| match found {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
        let ours = extension(&leaf, |found| match found {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
            _ => None,
        });
        assert!(ours.is_some() && ours == theirs, "{host}: {ours:?} {theirs:?}");

        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any && usage.other.is_empty(), "{host}");
        let usage = leaf.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.flags == 1, "{host}: {}", usage.value);
        assert!(leaf.basic_constraints().unwrap().is_none_or(|found| !found.value.ca), "{host}");

        let validity = leaf.validity();
        let days = (validity.not_after.timestamp() - validity.not_before.timestamp()) / 86_400;
        assert_eq!(days, 90, "{host}");
        let start = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 86_400;
        assert_eq!(u64::try_from(validity.not_before.timestamp()).unwrap(), start, "{host}");
        assert_eq!(leaf.raw_serial().len(), 16, "{host}");
        assert_ne!(leaf.public_key().raw, authority.public_key().raw, "{host}");
    }
}

#[test]
fn serial_numbers_differ_and_the_leaves_key_does_not() {
    let now = SystemTime::now();
    let ca = ca();
    let (one, other) = (leaf(&ca, "a.example", now), leaf(&ca, "b.example", now));
    let [one, other] = [&one, &other].map(|der| parse_x509_certificate(der).unwrap().1);
    assert_ne!(one.raw_serial(), other.raw_serial());
    assert_eq!(one.public_key().raw, other.public_key().raw);
}

#[test]
fn the_ca_says_what_it_is_for() {
    let now = SystemTime::now();
    let ca = Ca::generate(&hosts(&["example.com"]), now).unwrap();
    let (_, authority) = parse_x509_certificate(ca.certificate().der()).unwrap();
    let basic = authority.basic_constraints().unwrap().unwrap();
    assert!(basic.critical && basic.value.ca);
    assert_eq!(basic.value.path_len_constraint, Some(0));
    let usage = authority.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
    assert_eq!(usage.value.flags.count_ones(), 2);
    assert!(authority.name_constraints().unwrap().unwrap().critical);
    let validity = authority.validity();
    assert_eq!((validity.not_after.timestamp() - validity.not_before.timestamp()) / 86_400, 3651);
    let free = super::ca();
    let (_, free) = parse_x509_certificate(free.certificate().der()).unwrap();
    assert!(free.name_constraints().unwrap().is_none());
    assert_ne!(free.subject(), authority.subject());
}

#[test]
fn openssl_has_nothing_to_object() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: there is no openssl here");
        return;
    }
    let now = SystemTime::now();
    let dir = tempfile::tempdir().unwrap();
    for bounds in [&[][..], &hosts(&["example.com", "10.0.0.5"])] {
        let ca = Ca::generate(bounds, now).unwrap();
        fs::write(dir.path().join("ca.pem"), ca.certificate_pem()).unwrap();
        for (host, asked) in [("api.example.com", "-verify_hostname"), ("10.0.0.5", "-verify_ip")] {
            fs::write(dir.path().join("leaf.pem"), certificate::encode(&leaf(&ca, host, now))).unwrap();
            let mut openssl = Command::new("openssl");
            openssl.args(["verify", "-x509_strict", "-purpose", "sslserver", asked, host, "-CAfile", "ca.pem"]);
            let output = openssl.arg("leaf.pem").current_dir(dir.path()).output().unwrap();
            assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
