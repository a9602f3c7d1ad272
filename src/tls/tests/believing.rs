use rcgen::{IsCa, SerialNumber, date_time_ymd};

use super::{
    pki::{TestLeaf, params},
    *,
};

async fn upstream(leaf: &TestLeaf) -> Upstream {
    Upstream::start(leaf.chain(), leaf.key()).await
}

#[tokio::test]
async fn r42_an_authority_that_is_named_is_believed_for_names_and_addresses() {
    let authority = Authority::new("Test CA");
    let tls = believing(&authority);
    let upstream = upstream(&authority.sign(&["api.example.com", "*.example.org", "127.0.0.1", "::1"])).await;
    for host in ["api.example.com", "a.example.org", "127.0.0.1", "::1"] {
        assert!(upstream.reach(&tls.plain, host).await.is_ok(), "{host}");
    }
}

#[tokio::test]
async fn r42_a_certificate_for_another_name_is_refused_with_the_names_that_it_has() {
    let authority = Authority::new("Test CA");
    let tls = believing(&authority);
    let upstream = upstream(&authority.sign(&["www.example.com", "10.0.0.1"])).await;
    for host in ["api.example.com", "127.0.0.1"] {
        let (reason, hint) = upstream.refusal(&tls, host).await;
        let expected = format!("the certificate of {host}:443 is not for \"{host}\" but for www.example.com, 10.0.0.1");
        assert_eq!(reason, expected);
        assert!(hint.contains("`sni`"), "{hint}");
    }
}

#[tokio::test]
async fn dates_are_told() {
    let authority = Authority::new("Test CA");
    let tls = believing(&authority);
    let mut old = params(&["a.example"]);
    old.not_after = date_time_ymd(2020, 2, 3);
    old.not_before = date_time_ymd(2019, 1, 1);
    let (reason, hint) = upstream(&authority.sign_as(old)).await.refusal(&tls, "a.example").await;
    assert_eq!(reason, "the certificate of a.example:443 expired on 2020-02-03T00:00:00Z");
    assert!(hint.contains("clock"), "{hint}");
    let mut new = params(&["a.example"]);
    new.not_before = date_time_ymd(2090, 1, 1);
    new.not_after = date_time_ymd(2091, 1, 1);
    let (reason, _) = upstream(&authority.sign_as(new)).await.refusal(&tls, "a.example").await;
    assert_eq!(reason, "the certificate of a.example:443 is valid only from 2090-01-01T00:00:00Z");
}

#[tokio::test]
async fn an_authority_that_is_not_known_is_named() {
    let tls = believing(&Authority::new("Test CA"));
    let stranger = Authority::new("Somebody's CA\n\u{1b}[31m");
    let leaf = stranger.sign(&["a.example"]);
    // With the leaf alone, and with the root in addition, which many servers send.
    let with_root = Upstream::start(vec![leaf.certificate.der().clone(), stranger.der()], leaf.key()).await;
    for upstream in [upstream(&leaf).await, with_root] {
        let (reason, hint) = upstream.refusal(&tls, "a.example").await;
        let expected = "the certificate of a.example:443 is signed by \"Somebody's CA[31m\", which is not trusted here";
        assert_eq!(reason, expected);
        assert!(hint.contains("--upstream-ca FILE"), "{hint}");
    }
}

#[tokio::test]
async fn a_certificate_that_signed_itself_is_refused_until_it_is_named() {
    let stranger = believing(&Authority::new("Test CA"));
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa, IsCa::Ca(rcgen::BasicConstraints::Unconstrained)] {
        let mut params = params(&["a.example"]);
        params.is_ca = is_ca;
        let leaf = TestLeaf::self_signed(params);
        let upstream = upstream(&leaf).await;
        let (reason, hint) = upstream.refusal(&stranger, "a.example").await;
        assert!(reason.contains("is signed by itself"), "{reason}");
        assert!(hint.contains("--upstream-ca FILE"), "{hint}");
        let file = Pem::file(leaf.certificate.pem());
        let tls = Tls::new(&[file.path()], &[], &Rules::default()).unwrap();
        assert!(upstream.reach(&tls.plain, "a.example").await.is_ok());
        let (reason, _) = upstream.refusal(&tls, "b.example").await;
        assert!(reason.contains("is not for \"b.example\" but for a.example"), "{reason}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_named_expires_all_the_same() {
    let mut params = params(&["a.example"]);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(2020, 1, 1);
    let leaf = TestLeaf::self_signed(params);
    let file = Pem::file(leaf.certificate.pem());
    let tls = Tls::new(&[file.path()], &[], &Rules::default()).unwrap();
    let (reason, _) = upstream(&leaf).await.refusal(&tls, "a.example").await;
    assert!(reason.contains("expired on 2020-01-01"), "{reason}");
}

#[tokio::test]
async fn what_a_list_revokes_is_refused_and_nothing_else() {
    let (authority, other) = (Authority::new("Test CA"), Authority::new("Other CA"));
    let numbered = |authority: &Authority, serial: u64| {
        let mut params = params(&["a.example"]);
        params.serial_number = Some(SerialNumber::from(serial));
        authority.sign_as(params)
    };
    let ca = Pem::file(authority.pem() + &other.pem());
    let list = authority.revoke(7);
    for list in [Pem::file(list.pem().unwrap()), Pem::file(list.der())] {
        let tls = Tls::new(&[ca.path()], &[list.path()], &Rules::default()).unwrap();
        let (reason, _) = upstream(&numbered(&authority, 7)).await.refusal(&tls, "a.example").await;
        assert_eq!(reason, "the certificate of a.example:443 has been revoked");
        for good in [numbered(&authority, 8), numbered(&other, 7)] {
            assert!(upstream(&good).await.reach(&tls.plain, "a.example").await.is_ok());
        }
    }
}

#[test]
fn a_file_that_is_of_no_use_is_named_at_the_start() {
    let good = Pem::file(Authority::new("Test CA").pem());
    let (text, broken) =
        (Pem::file("hello"), Pem::file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"));
    let missing = PathBuf::from("/nonexistent/ca.pem");
    let list = Pem::file("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
    for (ca, crl, said) in [
        (&missing, None, format!("could not read {}", missing.display())),
        (&text.path(), None, format!("{} holds no certificate", text.path().display())),
        (&broken.path(), None, format!("{} holds a certificate that cannot be used", broken.path().display())),
        (&good.path(), Some(good.path()), format!("{} holds no revocation list", good.path().display())),
        (&good.path(), Some(list.path()), format!("{} holds a revocation list that cannot", list.path().display())),
    ] {
        let crl: Vec<_> = crl.into_iter().collect();
        let error = Tls::new(std::slice::from_ref(ca), &crl, &Rules::default()).err().expect("it is of no use");
        assert!(error.to_string().starts_with(&said), "{error}");
        assert!(!error.hint().is_empty());
    }
}
