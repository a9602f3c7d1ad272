//! The unencrypted first message of a TLS client: the server's name and the protocols that it offers.
//!
//! Reads bytes that a relay has peeked at. rustls parses the message, however it is cut into records and pieces, up to
//! 64 KiB.

use std::io;

use rustls::{Error, server::Acceptor};

/// The protocol of HTTP/2 in TLS (RFC 9113 §3.2).
const HTTP2: &[u8] = b"h2";

/// What is read of a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientHello {
    /// The name of the server (RFC 6066 §3), in small letters.
    pub(crate) server_name: Option<String>,
    /// Whether HTTP/2 may be spoken.
    pub(crate) offers_http2: bool,
}

/// A ClientHello of which not all has come yet.
#[derive(Default)]
pub(crate) struct HelloReader(Acceptor);

// === impl HelloReader ===

impl HelloReader {
    /// Reads on in `bytes`, which follow those of the last call. `None` if more has to come.
    ///
    /// # Errors
    /// If that is no ClientHello.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> io::Result<Option<ClientHello>> {
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes)?;
            let accepted = match self.0.accept() {
                Ok(accepted) => accepted,
                // Too old for rustls: clients of TLS 1.1 say nothing of signatures. The name of such a one is not looked at.
                Err((Error::PeerIncompatible(_), _)) => return Ok(Some(ClientHello::default())),
                Err((error, _)) => return Err(io::Error::other(error)),
            };
            if let Some(accepted) = accepted {
                let hello = accepted.client_hello();
                let offers_http2 = hello.alpn().is_some_and(|mut offered| offered.any(|name| name == HTTP2));
                let server_name = hello.server_name().map(str::to_ascii_lowercase);
                return Ok(Some(ClientHello { server_name, offers_http2 }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs};

    use super::*;

    fn hello(name: &'static str, alpn: &[&str]) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut bytes = Vec::new();
        let mut client = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same message in records that hold `each` bytes of it.
    fn in_records(hello: &[u8], each: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        hello[5..].chunks(each).flat_map(record).collect()
    }

    fn read(bytes: &[u8], piece: usize) -> io::Result<Option<ClientHello>> {
        let mut reader = HelloReader::default();
        for bytes in bytes.chunks(piece) {
            if let Some(hello) = reader.read(bytes)? {
                return Ok(Some(hello));
            }
        }
        Ok(None)
    }

    #[test]
    fn name_and_protocols_are_read_however_the_message_is_cut() {
        for (name, alpn, server_name, offers_http2) in [
            ("API.Example.com", &["h2", "http/1.1"][..], Some("api.example.com"), true),
            ("a.test", &["http/1.1"], Some("a.test"), false),
            ("127.0.0.1", &[], None, false),
        ] {
            let expected = ClientHello { server_name: server_name.map(str::to_owned), offers_http2 };
            let bytes = hello(name, alpn);
            for each in [1, 7, 100, 16_384] {
                for piece in [1, 6, 1000, 1 << 20] {
                    let found = read(&in_records(&bytes, each), piece).unwrap();
                    assert_eq!(found.as_ref(), Some(&expected), "records of {each}, pieces of {piece}");
                }
            }
            assert_eq!(read(&bytes[..bytes.len() - 1], 100).unwrap(), None, "half of it");
        }
    }

    #[test]
    fn no_client_hello_is_an_error() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"] {
            assert!(read(bytes, 1 << 20).is_err());
        }
    }
}
