use rustls::{HandshakeKind, RootCertStore, server::WebPkiClientVerifier, version};

use super::{pki::TestLeaf, *};
use crate::policy::HostPattern;

/// A policy with this `egress`.
fn policy(name: &str, egress: Egress) -> Policy {
    let host: HostPattern = name.parse().unwrap();
    Policy { egress, ..Policy::new(name, vec![host]) }
}

fn identity(leaf: &TestLeaf) -> (Identity, [Pem; 2]) {
    let files = [Pem::file(leaf.certificate.pem()), Pem::file(leaf.key.serialize_pem())];
    (Identity { certificate: files[0].path(), key: files[1].path() }, files)
}

#[tokio::test]
async fn the_protocol_is_the_one_that_both_speak() {
    let authority = Authority::new("Test CA");
    let tls = believing(&authority);
    let leaf = authority.sign(&["a.example"]);
    for (speaks, http1_only, agreed) in [
        (&["h2", "http/1.1"][..], false, Protocol::Http2),
        (&["h2", "http/1.1"], true, Protocol::Http1),
        (&["http/1.1"], false, Protocol::Http1),
        (&[], false, Protocol::Http1),
    ] {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(leaf.chain(), leaf.key()).unwrap();
        config.alpn_protocols = speaks.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let upstream = Upstream::run(config).await;
        let stream = TcpStream::connect(("127.0.0.1", upstream.port)).await.unwrap();
        let (_, protocol) = tls.plain.connect(&origin("a.example"), stream, http1_only).await.unwrap();
        assert_eq!(protocol, agreed, "{speaks:?}, {http1_only}");
    }
}

#[tokio::test]
async fn sessions_are_resumed() {
    let authority = Authority::new("Test CA");
    let tls = believing(&authority);
    let leaf = authority.sign(&["a.example"]);
    let upstream = Upstream::start(leaf.chain(), leaf.key()).await;
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let (mut stream, _) = upstream.reach(&tls.plain, "a.example").await.unwrap();
        // The tickets come with the first bytes.
        stream.read_exact(&mut [0; 2]).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(kind));
    }
}

#[tokio::test]
async fn a_rule_may_give_another_name_to_ask_for_and_to_verify() {
    let authority = Authority::new("Test CA");
    let file = Pem::file(authority.pem());
    let named = policy("api.example", Egress { sni: Some("inner.example".into()), ..Egress::default() });
    let tls = Tls::new(&[file.path()], &[], &Rules::new(vec![named.clone(), policy("*", Egress::default())])).unwrap();
    let leaf = authority.sign(&["inner.example"]);
    let upstream = Upstream::start(leaf.chain(), leaf.key()).await;
    let (stream, _) = upstream.reach(&tls.client(&named), "api.example").await.unwrap();
    assert!(stream.get_ref().1.peer_certificates().is_some());
    let other = tls.client(&policy("*", Egress::default()));
    assert!(upstream.reach(&other, "api.example").await.is_err());
}

#[test]
fn a_name_that_no_certificate_could_have_is_told_at_the_start() {
    let named = policy("api.example", Egress { sni: Some("https://a b".into()), ..Egress::default() });
    let error = Tls::new(&[], &[], &Rules::new(vec![named])).err().expect("no name");
    assert_eq!(error.to_string(), "\"https://a b\" is not a name that a certificate could have");
}

/// A server that demands a client certificate.
async fn demanding(authority: &Authority, versions: &[&'static rustls::SupportedProtocolVersion]) -> Upstream {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
    let leaf = authority.sign(&["a.example"]);
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let builder = builder.with_client_cert_verifier(verifier);
    Upstream::run(builder.with_single_cert(leaf.chain(), leaf.key()).unwrap()).await
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_a_rule_says_so() {
    let authority = Authority::new("Test CA");
    let file = Pem::file(authority.pem());
    let (identity, _files) = identity(&authority.sign(&["worker"]));
    let known = policy("a.example", Egress { identity: Some(identity), ..Egress::default() });
    let tls = Tls::new(&[file.path()], &[], &Rules::new(vec![known.clone()])).unwrap();
    for versions in [&[&version::TLS12][..], &[&version::TLS13]] {
        let upstream = demanding(&authority, versions).await;
        let (mut stream, _) = upstream.reach(&tls.client(&known), "a.example").await.unwrap();
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hi");
    }
}

#[tokio::test]
async fn who_wants_a_client_certificate_is_understood_in_the_handshake_and_after_it() {
    let authority = Authority::new("Test CA");
    let tls = believing(&authority);
    for versions in [&[&version::TLS12][..], &[&version::TLS13]] {
        let upstream = demanding(&authority, versions).await;
        let error = match upstream.reach(&tls.plain, "a.example").await {
            Err(error) => error,
            // In TLS 1.3 the client's handshake ends before the server's verdict arrives.
            Ok((mut stream, _)) => {
                let error = stream.read_u8().await.unwrap_err();
                failure(&origin("a.example"), &error).expect("it is one of TLS")
            }
        };
        assert_eq!((error.status().as_u16(), error.proxy_status()), (502, "tls_alert_received"), "{error}");
        assert!(error.hint().contains("`client-cert`"), "{}", error.hint());
        let alert = if versions[0].version == rustls::ProtocolVersion::TLSv1_3 { "certificate_required" } else { "\"" };
        assert!(error.to_string().contains(alert), "{error}");
    }
}

#[test]
fn a_key_that_is_not_the_certificates_is_told_at_the_start() {
    let authority = Authority::new("Test CA");
    let (one, _files) = identity(&authority.sign(&["one"]));
    let (two, _more) = identity(&authority.sign(&["two"]));
    for (certificate, key, said) in [
        (&one.certificate, &two.key, "is not the one of the certificate in"),
        (&one.certificate, &one.certificate, "holds no private key"),
        (&one.key, &one.key, "holds no certificate"),
    ] {
        let identity = Identity { certificate: certificate.clone(), key: key.clone() };
        let rule = policy("a.example", Egress { identity: Some(identity), ..Egress::default() });
        let error = Tls::new(&[], &[], &Rules::new(vec![rule])).err().expect("of no use").to_string();
        assert!(error.contains(said) && error.contains(&*key.to_string_lossy()), "{error}");
    }
}

#[tokio::test]
async fn an_upstream_that_speaks_no_tls_is_a_502_that_says_so() {
    let tls = believing(&Authority::new("Test CA"));
    for (answer, said) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "the upstream does not speak TLS on this port"),
        (b"220 mail.example ESMTP\r\n", "the upstream does not speak TLS on this port"),
        (b"", "it closed the connection in the middle of the handshake"),
    ] {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        theirs.write_all(answer).await.unwrap();
        let hello = tokio::spawn(async move {
            theirs.shutdown().await.unwrap();
            let _ = tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await;
        });
        let error = tls.plain.connect(&origin("a.example"), ours, false).await.map(drop).unwrap_err();
        assert_eq!((error.status().as_u16(), error.proxy_status()), (502, "tls_protocol_error"));
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), said);
        hello.abort();
    }
}

#[tokio::test]
async fn alerts_are_named_as_the_specification_names_them() {
    let tls = believing(&Authority::new("Test CA"));
    for (code, name) in [(112, "unrecognized_name"), (120, "no_application_protocol"), (40, "handshake_failure")] {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        theirs.write_all(&[21, 3, 3, 0, 2, 2, code]).await.unwrap();
        let error = tls.plain.connect(&origin("a.example"), ours, false).await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("a.example:443 ended the TLS handshake with the alert \"{name}\""));
    }
}

#[test]
fn what_is_not_of_tls_is_left_alone() {
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    assert!(failure(&origin("a.example"), &reset).is_none());
    let wrapped = io::Error::other(io::Error::other(rustls::Error::DecryptError));
    assert!(failure(&origin("a.example"), &wrapped).is_some());
}
