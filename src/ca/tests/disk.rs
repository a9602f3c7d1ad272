//! Tests of a CA in its folder and in a bundle.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    process::Command,
};

use rustls::pki_types::pem::PemObject as _;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn r46_the_key_is_its_owners_alone_and_the_certificate_everybody_s() {
    let (home, now) = (folder(), SystemTime::now());
    let dir = home.path().join("share/andante");
    assert!(matches!(Ca::open(&dir, now), Err(CaError::Missing { .. })));
    let made = Ca::find_or_create(&dir, now).unwrap();
    assert_eq!((mode(&dir.join(KEY)), mode(&dir.join(CERTIFICATE))), (0o600, 0o644));
    assert_eq!(fs::read_to_string(dir.join(CERTIFICATE)).unwrap(), made.certificate_pem());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    for again in [Ca::open(&dir, now).unwrap(), Ca::find_or_create(&dir, now).unwrap()] {
        assert_eq!(again.fingerprint(), made.fingerprint());
        handshake(&client(&made), "a.example", again.server_config("a.example", Alpn::Http2First, now).unwrap())
            .unwrap();
    }
    assert_eq!(Certificate::open(&dir).unwrap().fingerprint(), made.fingerprint());
    let error = Ca::create(&dir, &[], now).unwrap_err();
    assert!(matches!(error, CaError::Exists { .. }), "{error}");
}

#[test]
fn r46_all_who_start_at_once_have_the_same_ca() {
    for _ in 0..10 {
        let dir = folder();
        let start = Barrier::new(8);
        let mut found: Vec<String> = thread::scope(|scope| {
            let ask = || {
                start.wait();
                let ca = Ca::find_or_create(dir.path(), SystemTime::now()).unwrap();
                assert_eq!(fs::read_to_string(dir.path().join(CERTIFICATE)).unwrap(), ca.certificate_pem());
                ca.fingerprint()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        found.dedup();
        assert_eq!(found.len(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn what_was_not_published_is_published_later() {
    let (dir, now) = (folder(), SystemTime::now());
    Ca::create(dir.path(), &[], now).unwrap();
    let path = dir.path().join(CERTIFICATE);
    for spoil in [|path: &Path| fs::remove_file(path).unwrap(), |path: &Path| fs::write(path, "old").unwrap()] {
        spoil(&path);
        let ca = Ca::find_or_create(dir.path(), now).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), ca.certificate_pem());
    }
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_remedy() {
    let (dir, now) = (folder(), SystemTime::now());
    Ca::create(dir.path(), &[], now).unwrap();
    let key = dir.path().join(KEY);
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    for error in [Ca::open(dir.path(), now).unwrap_err(), Ca::find_or_create(dir.path(), now).unwrap_err()] {
        assert!(error.to_string().ends_with("its mode is 0644"), "{error}");
        assert_eq!(error.hint().unwrap(), format!("chmod 600 {}", key.display()));
    }
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    assert!(Ca::open(dir.path(), now).is_ok());
}

#[test]
fn what_is_not_in_order_is_refused() {
    let (dir, now) = (folder(), SystemTime::now());
    let ca = Ca::create(dir.path(), &[], now).unwrap();
    let error = Ca::open(dir.path(), now + DAY * 3650).unwrap_err();
    assert!(matches!(error, CaError::Expired { .. }), "{error}");
    let path = dir.path().join(KEY);
    let text = fs::read_to_string(&path).unwrap();
    let key = text.split_inclusive("-----END PRIVATE KEY-----\n").next().unwrap();
    let other = super::ca();
    for (content, what) in [
        (String::new(), "no items found"),
        (key.to_owned(), "no items found"),
        (ca.certificate_pem().to_owned(), "no items found"),
        (format!("{key}{}", other.certificate_pem()), "do not belong together"),
        (format!("{key}{}", certificate::encode(&leaf(&ca, "a.example", now))), "not that of a CA"),
    ] {
        fs::write(&path, content).unwrap();
        let error = Ca::find_or_create(dir.path(), now).unwrap_err();
        assert!(matches!(error, CaError::Malformed { .. }), "{what}: {error}");
        assert!(error.to_string().contains(what) && !error.to_string().contains("MIG"), "{what}: {error}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named_with_the_remedy() {
    let (dir, now) = (folder(), SystemTime::now());
    // A file blocks the path, because a mode would not stop root.
    fs::write(dir.path().join("file"), "").unwrap();
    let wanted = dir.path().join("file/andante");
    for error in [Ca::find_or_create(&wanted, now).unwrap_err(), Ca::create(&wanted, &[], now).unwrap_err()] {
        assert!(error.to_string().contains("file/andante"), "{error}");
        assert!(error.hint().unwrap().contains("--data DIR"), "{error}");
    }
}

fn in_bundle(text: &str, ca: &Ca) -> bool {
    CertificateDer::pem_slice_iter(text.as_bytes()).any(|found| found.unwrap() == *ca.certificate().der())
}

#[test]
fn a_bundle_holds_ours_and_what_further_files_do() {
    let (dir, ours, corporate) = (folder(), ca(), ca());
    let file = dir.path().join("corporate.pem");
    fs::write(&file, format!("{0}{0}", corporate.certificate_pem())).unwrap();
    let gather = || Bundle::gather(ours.certificate(), std::slice::from_ref(&file)).unwrap();
    let text = gather().pem();
    assert!(in_bundle(&text, &ours) && in_bundle(&text, &corporate));
    assert_eq!(text.matches(corporate.certificate_pem()).count(), 1);
    assert_eq!(text, gather().pem());
    assert!(!text.contains("PRIVATE"));
}

#[test]
fn java_s_store_is_pkcs_12_that_opens_without_a_password_and_holds_the_same_roots() {
    let (dir, ours, corporate) = (folder(), ca(), ca());
    let [file, store] = ["corporate.pem", "bundle.p12"].map(|name| dir.path().join(name));
    fs::write(&file, corporate.certificate_pem()).unwrap();
    let bundle = Bundle::gather(ours.certificate(), &[file]).unwrap();
    fs::write(&store, bundle.pkcs12()).unwrap();
    // OpenSSL, an independent implementation, reads the store.
    let mut openssl = Command::new("openssl");
    openssl.args(["pkcs12", "-nomacver", "-nokeys", "-passin", "pass:", "-in"]).arg(&store);
    let output = openssl.output().unwrap();
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    let read = |text: &str| CertificateDer::pem_slice_iter(text.as_bytes()).map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(read(&text), read(&bundle.pem()), "{said}");
    assert_eq!(text.matches("friendlyName: andante\n").count(), 1);
    // Java treats only certificates with this attribute as roots.
    assert_eq!(text.matches("2.16.840.1.113894.746875.1.1: ").count(), read(&text).len());
}

#[test]
fn in_place_of_a_bundle_of_ours_its_sources_are_read_again() {
    let (dir, corporate) = (folder(), ca());
    let [file, certificate, written, missing] =
        ["corporate.pem", CERTIFICATE, "bundle.pem", "missing.pem"].map(|name| dir.path().join(name));
    fs::write(&file, corporate.certificate_pem()).unwrap();
    let found = |named: &[&PathBuf]| sources(named.iter().copied().cloned(), &certificate);
    let first = found(&[&file, &file, &missing]);
    assert_eq!(first, [file.as_path()]);
    let old = ca();
    fs::write(&written, Bundle::gather(old.certificate(), &first).unwrap().pem()).unwrap();
    // A second `eval "$(andante ca env)"` finds these two files.
    let second = found(&[&written, &certificate]);
    assert_eq!(second, first);
    assert!(!in_bundle(&Bundle::gather(corporate.certificate(), &second).unwrap().pem(), &old));
    assert_eq!(found(&[]), [] as [PathBuf; 0]);
    assert_eq!(bundle_name(&[]), "bundle.pem");
    assert_eq!(bundle_name(&first), bundle_name(&second));
    assert_ne!(bundle_name(&first), bundle_name(&[missing]));
}
