//! Certificates as workers see them.

use std::thread;

use x509_parser::{extensions::GeneralName, extensions::ParsedExtension, parse_x509_certificate};

use super::{localhost, secure};
use crate::support::{Andante, tls::Interceptor};

/// Number of certificates that andante stores.
const KEPT: usize = 1024;

#[test]
fn a_certificate_names_its_host_for_a_while_and_is_tied_to_the_ca() {
    let upstream = secure();
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    let pem = std::fs::read(interceptor.data().join("ca.pem")).unwrap();
    let pem = x509_parser::pem::parse_x509_pem(&pem).unwrap().1;
    let ca = pem.parse_x509().unwrap();
    let ca_id = ca.extensions().iter().find_map(|found| match found.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    });
    for target in [localhost(&upstream), upstream.address().to_string()] {
        let worker = interceptor.worker(&target);
        let (_, leaf) = parse_x509_certificate(&worker.certificate).unwrap();
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        match &names.value.general_names[..] {
            [GeneralName::DNSName("localhost")] if target.starts_with("localhost") => {}
            [GeneralName::IPAddress([127, 0, 0, 1])] if target.starts_with("127") => {}
            other => panic!("{target}: {other:?}"),
        }
        assert!(names.critical || leaf.subject().iter_common_name().next().is_some(), "{target}");
        let days = (leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp()) / 86_400;
        assert!((1..=197).contains(&days) && leaf.validity().is_valid(), "{target}: {days}");
        let issued_by = leaf.extensions().iter().find_map(|found| match found.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
            _ => None,
        });
        assert!(issued_by.is_some() && issued_by == ca_id, "{target}: {issued_by:?}");
        assert_ne!(leaf.public_key().raw, ca.public_key().raw, "{target}: the CA's own key");
        assert!(!leaf.is_ca(), "{target}");
    }
}

/// A name that nothing is behind: the handshake is all that is wanted.
fn name(at: usize) -> String {
    format!("n{at}.localhost:1")
}

#[test]
fn a_name_is_minted_once_however_many_ask_at_once() {
    let interceptor = Interceptor::serve(&["--intercept", "*", "--threads", "4"]);
    let ask = || interceptor.worker(&name(0)).certificate;
    let first = thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|_| scope.spawn(ask)).collect();
        let mut seen: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
        seen.dedup();
        assert_eq!(seen.len(), 1, "more than one was minted");
        seen.remove(0)
    });
    assert_eq!(ask(), first);
}

#[test]
fn certificates_and_memory_are_bounded_however_many_names_are_asked_for() {
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    let many = |from: usize, to: usize| {
        thread::scope(|scope| {
            for part in 0..4 {
                let interceptor = &interceptor;
                scope.spawn(move || {
                    (from..to).filter(|at| at % 4 == part).for_each(|at| drop(interceptor.worker(&name(at))))
                });
            }
        });
    };
    let first = interceptor.worker(&name(0)).certificate;
    many(1, 100);
    assert_eq!(interceptor.worker(&name(0)).certificate, first, "not kept");
    many(100, KEPT + 100);
    assert_ne!(interceptor.worker(&name(0)).certificate, first, "kept for ever");
    let before = resident(&interceptor.andante);
    many(KEPT + 100, 2 * KEPT);
    let grown = resident(&interceptor.andante).saturating_sub(before);
    let metrics = interceptor.andante.metrics();
    // Each host that has numbers of its own has one for each outcome, from the start.
    let outcome = "andante_interceptions_total{outcome=\"tls\"";
    let hosts = metrics.lines().filter(|line| line.starts_with(outcome)).count();
    assert!((1..200).contains(&hosts), "{hosts} label sets");
    let lines = metrics.lines().filter(|line| line.starts_with("andante_interceptions_total{")).count();
    assert_eq!(lines % hosts, 0, "{lines} for {hosts} hosts");
    assert!(grown < 6 << 20, "{grown} bytes for {} further names", KEPT - 100);
}

fn resident(andante: &Andante) -> u64 {
    let path = format!("/proc/{}/status", andante.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}
