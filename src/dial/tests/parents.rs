use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::policy::ParentProtocol;

fn via(protocol: ParentProtocol, port: u16, login: bool) -> Egress {
    let credentials = login.then(|| ("user".to_owned(), "s3cret".to_owned()));
    Egress { via: Some(Parent { protocol, host: "127.0.0.1".into(), port, credentials }), ..Egress::default() }
}

fn dialer() -> Dialer {
    // The parent proxy resolves names, so no name server is needed.
    Dialer::new(SECOND, true, Vec::new(), Dns::Servers(Vec::new()))
}

/// Returns all texts of `error`, its cause and its debug form. Fails if they contain the password.
fn words(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let text = format!("{error}: {cause} {error:?}");
    assert!(!text.contains("s3cret") && !text.contains("dXNlcjpz"), "{text}");
    text
}

/// Reads a head up to its empty line.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Connects to `target` through a parent that answers CONNECT with `answer`. Returns the outcome and the request.
async fn through_http(target: &Origin, login: bool, answer: &'static [u8]) -> (Result<TcpStream, Error>, String) {
    let (listener, port) = upstream().await;
    let serve = async {
        let mut stream = listener.accept().await.unwrap().0;
        let asked = head(&mut stream).await;
        stream.write_all(answer).await.unwrap();
        (asked, stream)
    };
    let (dialer, egress) = (dialer(), via(ParentProtocol::Http, port, login));
    let (outcome, (asked, _)) = tokio::join!(dialer.connect(target, &egress, false), serve);
    (outcome, asked)
}

#[tokio::test]
async fn https_goes_by_connect_and_not_a_byte_of_the_upstream_is_lost() {
    let target = origin(Scheme::Https, "api.example.com", 443);
    let answer = b"HTTP/1.1 200 Connection established\r\nProxy-Agent: x\r\n\r\n220 hello\r\n\r\n";
    let (outcome, asked) = through_http(&target, true, answer).await;
    let expected = "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\
                    Proxy-Authorization: Basic dXNlcjpzM2NyZXQ=\r\n\r\n";
    assert_eq!(asked, expected);
    let mut greeting = [0; 13];
    outcome.unwrap().read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 hello\r\n\r\n");
}

#[tokio::test]
async fn interim_answers_to_connect_are_passed_over() {
    let target = origin(Scheme::Https, "2001:db8::1", 443);
    let answer = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200 OK\r\n\r\n";
    let (outcome, asked) = through_http(&target, false, answer).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(asked.starts_with("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n") && !asked.contains("Authorization"), "{asked}");
}

#[tokio::test]
async fn a_parent_that_refuses_is_named_with_its_status_and_without_its_password() {
    let target = origin(Scheme::Https, "api.example.com", 443);
    for (answer, login, said) in [
        (&b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"[..], true, "it answered 403 Forbidden"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", true, "it did not accept the user name and password"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", false, "it wants a user name and a password"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", false, "it does not answer as an HTTP proxy does"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", false, "it does not answer as an HTTP proxy does"),
    ] {
        let error = through_http(&target, login, answer).await.0.unwrap_err();
        let text = words(&error);
        assert_eq!(error.status().as_u16(), 502);
        assert!(
            text.contains(said) && text.contains("http://127.0.0.1:") && text.contains("api.example.com:443"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn plain_requests_are_for_the_parent_itself() {
    let (listener, port) = upstream().await;
    let egress = via(ParentProtocol::Http, port, true);
    let mut stream = dialer().connect(&origin(Scheme::Http, "api.example.com", 80), &egress, false).await.unwrap();
    stream.write_all(b"GET ").await.unwrap();
    let mut first = [0; 4];
    listener.accept().await.unwrap().0.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"GET ");
}

#[tokio::test]
async fn socks_is_asked_for_the_name_after_logging_in() {
    let (listener, port) = upstream().await;
    let serve = async {
        let mut stream = listener.accept().await.unwrap().0;
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(greeting, [5, 2, 0, 2]);
        stream.write_all(&[5, 2]).await.unwrap();
        let mut login = [0; 13];
        stream.read_exact(&mut login).await.unwrap();
        assert_eq!(&login, b"\x01\x04user\x06s3cret");
        stream.write_all(&[1, 0]).await.unwrap();
        let mut request = [0; 22];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"\x05\x01\x00\x03\x0fapi.example.com\x01\xbb");
        // The bound address is a name, as some proxies send it. The upstream's first bytes follow in the same write.
        stream.write_all(b"\x05\x00\x00\x03\x03abc\x12\x34220 hello").await.unwrap();
        stream
    };
    let (dialer, egress) = (dialer(), via(ParentProtocol::Socks5, port, true));
    let target = origin(Scheme::Https, "api.example.com", 443);
    let (outcome, _parent) = tokio::join!(dialer.connect(&target, &egress, false), serve);
    let mut greeting = [0; 9];
    outcome.unwrap().read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 hello");
}

#[tokio::test]
async fn socks_refusals_are_told_in_words() {
    for (answers, login, said) in [
        (&b"\x05\x00\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"[..], false, "connection refused"),
        (b"\x05\xff", false, "it wants a user name and a password"),
        (b"\x05\x02\x01\x01", true, "it did not accept the user name and password"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", true, "it does not answer as a SOCKS5 proxy does"),
        (b"\x05", false, "the connection to it broke"),
    ] {
        let (listener, port) = upstream().await;
        let serve = async {
            let mut stream = listener.accept().await.unwrap().0;
            stream.write_all(answers).await.unwrap();
            stream.shutdown().await.unwrap();
            stream
        };
        let (dialer, egress) = (dialer(), via(ParentProtocol::Socks5, port, login));
        let target = origin(Scheme::Http, "192.0.2.1", 80);
        let (outcome, _parent) = tokio::join!(dialer.connect(&target, &egress, false), serve);
        let text = words(&outcome.unwrap_err());
        assert!(text.contains(said) && text.contains("socks5://127.0.0.1:"), "{text}");
    }
}

#[tokio::test]
async fn r52_a_parent_does_not_reach_private_addresses_for_others_either() {
    let egress = via(ParentProtocol::Http, 9, false);
    for host in ["169.254.169.254", "10.0.0.1", "localhost"] {
        let outcome = dialer().connect(&origin(Scheme::Https, host, 443), &egress, false).await;
        assert!(matches!(outcome, Err(Error::Forbidden { .. })), "{host}: {outcome:?}");
    }
}

#[tokio::test]
async fn r53_we_are_not_our_own_parent() {
    let (own, port) = upstream().await;
    let dialer = Dialer::new(SECOND, false, vec![own.local_addr().unwrap()], Dns::Cached);
    let egress = via(ParentProtocol::Http, port, false);
    let outcome = dialer.connect(&origin(Scheme::Http, "api.example.com", 80), &egress, false).await;
    assert!(matches!(outcome, Err(Error::SelfTarget { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_parent_that_is_silent_or_gone_is_blamed_by_its_name() {
    let target = origin(Scheme::Https, "api.example.com", 443);
    let (listener, port) = upstream().await;
    let egress = via(ParentProtocol::Socks5, port, true);
    let patient = Dialer::new(Duration::from_millis(200), false, Vec::new(), Dns::Cached);
    let error = patient.connect(&target, &egress, false).await.unwrap_err();
    assert_eq!(error.status().as_u16(), 504);
    assert!(words(&error).contains("api.example.com:443 through socks5://127.0.0.1:"), "{error}");
    drop(listener);
    let error = patient.connect(&target, &egress, false).await.unwrap_err();
    assert_eq!((error.status().as_u16(), error.proxy_status()), (502, "connection_refused"));
    assert!(words(&error).contains("the parent proxy socks5://127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn a_parent_is_asked_for_the_pin_in_the_place_of_the_name() {
    let (listener, port) = upstream().await;
    let egress = Egress { resolve: vec![[10, 0, 0, 5].into()], ..via(ParentProtocol::Http, port, false) };
    let serve = async {
        let mut stream = listener.accept().await.unwrap().0;
        let asked = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        asked
    };
    let (dialer, target) = (dialer(), origin(Scheme::Https, "api.example.com", 443));
    let (outcome, asked) = tokio::join!(dialer.connect(&target, &egress, false), serve);
    assert!(outcome.is_ok() && asked.starts_with("CONNECT 10.0.0.5:443 "), "{asked}");
}
