//! Refused chains, and the error texts that name the faulty certificate and its fault.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, GeneralSubtree, IsCa, NameConstraints, SanType, SerialNumber,
    date_time_ymd,
};
use rustls::{
    SignatureAlgorithm, SignatureScheme,
    pki_types::pem::PemObject,
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, Signer, SigningKey},
};

use super::{
    pki::{TestLeaf, params},
    *,
};

/// Shows certificates without having their key, so that its signatures are wrong.
#[derive(Clone, Debug)]
struct Impostor(Vec<CertificateDer<'static>>, SignatureScheme);

/// Reason why `tls` refuses `chain`, and the advice.
async fn refusal(tls: &Tls, chain: Vec<CertificateDer<'static>>, host: &str) -> (String, &'static str) {
    refusal_of(tls, Impostor(chain, SignatureScheme::RSA_PSS_SHA256), host).await
}

async fn refusal_of(tls: &Tls, impostor: Impostor, host: &str) -> (String, &'static str) {
    let upstream = Upstream::with(|builder| builder.with_cert_resolver(Arc::new(impostor))).await;
    let (reason, hint) = upstream.refusal(tls, host).await;
    let about = format!("the certificate of {host}:443 ");
    (reason.strip_prefix(&about).unwrap_or_else(|| panic!("{reason}")).to_owned(), hint)
}

/// The certificates that an upstream shows for `leaf` below `issuers`. The last issuer is the root, which is left out.
fn chain(leaf: &TestLeaf, issuers: &[&Authority]) -> Vec<CertificateDer<'static>> {
    let above = issuers[..issuers.len() - 1].iter().map(|issuer| issuer.der());
    leaf.chain().into_iter().chain(above).collect()
}

#[tokio::test]
async fn the_certificate_whose_dates_are_wrong_is_the_one_that_is_named() {
    let root = Authority::new("Root");
    let tls = believing(&root);
    let old = root.below("Old\u{7}Between", |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 2, 3));
    });
    let young = root.below("Young Between", |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2090, 1, 1), date_time_ymd(2091, 1, 1));
    });
    for (issuer, said) in [
        (old, "depends on the intermediate certificate \"OldBetween\", which expired on 2020-02-03T00:00:00Z"),
        (
            young,
            "depends on the intermediate certificate \"Young Between\", which is valid only from 2090-01-01T00:00:00Z",
        ),
    ] {
        let (reason, hint) = refusal(&tls, chain(&issuer.sign(&["a.example"]), &[&issuer, &root]), "a.example").await;
        assert_eq!(reason, said);
        assert!(hint.contains("intermediate") && hint.contains("clock"), "{hint}");
    }
    let between = root.below("Between", |_| {});
    let mut old = params(&["a.example"]);
    (old.not_before, old.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 2, 3));
    let (reason, _) = refusal(&tls, chain(&between.sign_as(old), &[&between, &root]), "a.example").await;
    assert_eq!(reason, "expired on 2020-02-03T00:00:00Z", "its own");
}

#[tokio::test]
async fn the_certificate_that_is_revoked_is_the_one_that_is_named() {
    let (root, numbered) = (Authority::new("Root"), |params: &mut CertificateParams, serial: u64| {
        params.serial_number = Some(SerialNumber::from(serial));
    });
    let between = root.below("Between", |params| numbered(params, 7));
    let (ca, by_root, by_between) = (Pem::file(root.pem()), root.revoke(7), between.revoke(7));
    let mut leaf = params(&["a.example"]);
    numbered(&mut leaf, 7);
    let chain = chain(&between.sign_as(leaf), &[&between, &root]);
    for (list, said) in [
        (by_root, "depends on the intermediate certificate \"Between\", which has been revoked"),
        (by_between, "has been revoked"),
    ] {
        let list = Pem::file(list.pem().unwrap());
        let tls = Tls::new(&[ca.path()], &[list.path()], &Rules::default()).unwrap();
        assert_eq!(refusal(&tls, chain.clone(), "a.example").await.0, said);
    }
}

#[tokio::test]
async fn rules_for_chains_are_told_in_words() {
    let root = Authority::new("Root");
    let tls = believing(&root);
    let constrained = root.below("Narrow", |params| {
        let permitted_subtrees = vec![GeneralSubtree::DnsName("b.example".into())];
        params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    });
    let usual = root.below("Usual", |params| params.is_ca = IsCa::NoCa);
    let last = root.below("Last", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let beyond = last.below("Beyond", |_| {});
    let between = root.below("Between", |_| {});
    let mut strange = params(&["a.example"]);
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    strange.custom_extensions.push(extension);
    for (chain, said) in [
        (
            chain(&constrained.sign(&["a.example"]), &[&constrained, &root]),
            "has a name that \"Narrow\" may not sign for (name constraints)",
        ),
        (
            chain(&usual.sign(&["a.example"]), &[&usual, &root]),
            "is signed by \"Usual\", which is not the certificate of an authority (CA:TRUE)",
        ),
        (
            chain(&beyond.sign(&["a.example"]), &[&beyond, &last, &root]),
            "is at the end of a longer chain than an authority above it allows (path length)",
        ),
        (
            chain(&between.sign_as(strange), &[&between, &root]),
            "has an extension that is critical, and that andante does not know (1.2.3.4)",
        ),
    ] {
        let (reason, hint) = refusal(&tls, chain, "a.example").await;
        assert_eq!(reason, said);
        assert!(hint.contains("operator"), "{hint}");
    }
}

#[tokio::test]
async fn an_address_among_the_names_is_told_from_one_among_the_addresses() {
    let authority = Authority::new("Root");
    let tls = believing(&authority);
    let mut mistaken = params(&["www.example"]);
    mistaken.subject_alt_names.push(SanType::DnsName("10.0.0.1".try_into().unwrap()));
    let leaf = authority.sign_as(mistaken);
    let (reason, hint) = refusal(&tls, leaf.chain(), "10.0.0.1").await;
    assert_eq!(reason, "has 10.0.0.1 as a DNS name and not as an IP address, where it would count");
    assert!(hint.contains("IP:"), "{hint}");
    let (reason, _) = refusal(&tls, leaf.chain(), "10.0.0.2").await;
    assert!(reason.starts_with("is not for \"10.0.0.2\" but for www.example"), "{reason}");
}

/// Certificates that openssl 3.0 still makes (`openssl ca -md sha1`, `-md md5`, `rsa:1024`, without extensions), valid
/// until 2120. All are for `a.example`; their keys are deleted.
#[tokio::test]
async fn what_is_too_old_to_be_believed_is_told_to_be_that() {
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    macro_rules! old {
        ($name:literal) => {
            include_str!(concat!("old/", $name, ".pem"))
        };
    }
    let (ca, small) = (Pem::file(old!("ca")), Pem::file(old!("small-ca")));
    let tls = Tls::new(&[ca.path(), small.path()], &[], &Rules::default()).unwrap();
    for (chain, said) in [
        (vec![old!("sha1")], "is signed with SHA-1, which can be forged"),
        (vec![old!("md5")], "is signed with MD5, which can be forged"),
        (
            vec![old!("by-sha1-intermediate"), old!("sha1-intermediate")],
            "depends on the intermediate certificate \"Old Intermediate\", which is signed with SHA-1, which can be forged",
        ),
        (vec![old!("v1")], "is of X.509 version 1, which has no names of hosts; version 3 does"),
        (vec![old!("small")], "has an RSA key of 1024 bits, where 2048 to 8192 can be verified"),
        (
            vec![old!("by-small-ca")],
            "is signed by \"Small CA\", which has an RSA key of 1024 bits, where 2048 to 8192 can be verified",
        ),
    ] {
        let (reason, hint) = refusal(&tls, chain.into_iter().map(read).collect(), "a.example").await;
        assert_eq!(reason, said);
        assert!(hint.contains("operator"), "{hint}");
    }
}

#[tokio::test]
async fn a_signature_that_is_merely_wrong_is_called_that() {
    let authority = Authority::new("Root");
    let (tls, chain) = (believing(&authority), authority.sign(&["a.example"]).chain());
    for (scheme, said) in [
        (SignatureScheme::ECDSA_NISTP256_SHA256, "has a signature that is wrong"),
        (SignatureScheme::RSA_PSS_SHA256, "comes with a signature of another kind than its key, or its issuer's"),
    ] {
        assert_eq!(refusal_of(&tls, Impostor(chain.clone(), scheme), "a.example").await.0, said);
    }
}

// === impl Impostor ===

impl ResolvesServerCert for Impostor {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::new(CertifiedKey::new(self.0.clone(), Arc::new(self.clone()))))
    }
}

impl SigningKey for Impostor {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(self.clone()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl Signer for Impostor {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0; 128])
    }

    fn scheme(&self) -> SignatureScheme {
        self.1
    }
}
