//! The unencrypted first message of a TLS client: the server's name and the protocols that it offers.
//!
//! Reads bytes that a relay has peeked at, in any division of the message into records and pieces. Extensions are the
//! same in every version from TLS 1.0 to 1.3 (RFC 6066, RFC 8446 §4.1.2), so a name counts in each. A message that
//! servers may read differently is an error.

use std::io;

use rustls::pki_types::ServerName;

/// The protocol of HTTP/2 in TLS (RFC 9113 §3.2).
const HTTP2: &[u8] = b"h2";
/// Type of a record with part of a handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// First byte of the version of a record: 3 from SSL 3.0 to TLS 1.3.
const MAJOR_VERSION: u8 = 3;
/// Bytes of a record's header: type, version, length.
const RECORD_HEADER_BYTES: usize = 5;
/// Longest content of a record that is not encrypted.
const LONGEST_RECORD_BYTES: usize = 1 << 14;
/// Type of the message (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;
/// Bytes of a message's header: type and length.
const MESSAGE_HEADER_BYTES: usize = 4;
/// Longest message that is read, as with rustls.
const LONGEST_MESSAGE_BYTES: usize = 0xffff;
/// Bytes of version and random.
const FIXED_BYTES: usize = 2 + 32;
/// Number of the extension with the server's name (RFC 6066 §3).
const SERVER_NAME: u16 = 0;
/// Number of the extension with the protocols that the client offers (RFC 7301 §3.1).
const ALPN: u16 = 16;

/// Parts of a ClientHello that andante uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientHello {
    /// The name of the server (RFC 6066 §3), in lower case.
    pub(crate) server_name: Option<String>,
    /// True if the client offers HTTP/2.
    pub(crate) offers_http2: bool,
}

/// Reader of a ClientHello that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct HelloReader {
    /// The part of the current record that has come.
    record: Vec<u8>,
    /// The part of the message that has come in complete records.
    message: Vec<u8>,
}

/// A cursor over a part of a message.
struct Part<'a>(&'a [u8]);

// === impl HelloReader ===

impl HelloReader {
    /// Reads on in `bytes`, which follow those of the last call. `None` if more has to come.
    ///
    /// # Errors
    /// If the message is not a ClientHello.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> io::Result<Option<ClientHello>> {
        self.record.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(content) = content(&self.record[at..])? {
            self.message.extend_from_slice(content);
            at += RECORD_HEADER_BYTES + content.len();
        }
        self.record.drain(..at);
        let Some((header, body)) = self.message.split_first_chunk::<MESSAGE_HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *header;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if kind != CLIENT_HELLO || length > LONGEST_MESSAGE_BYTES {
            return Err(unreadable("the first message of a TLS handshake is no ClientHello"));
        }
        match body.get(..length) {
            Some(body) => parse(body).map(Some).ok_or_else(|| unreadable("a ClientHello is malformed")),
            None => Ok(None),
        }
    }
}

/// The content of the record that `bytes` begin with, if all of it has come.
fn content(bytes: &[u8]) -> io::Result<Option<&[u8]>> {
    let is_record = bytes.iter().zip([HANDSHAKE, MAJOR_VERSION]).all(|(byte, expected)| *byte == expected);
    let Some(&[.., high, low]) = bytes.first_chunk::<RECORD_HEADER_BYTES>().filter(|_| is_record) else {
        return if is_record { Ok(None) } else { Err(unreadable("a TLS handshake begins with another record")) };
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    // OpenSSL skips an empty record.
    if length == 0 || length > LONGEST_RECORD_BYTES {
        return Err(unreadable("a record of a TLS handshake is empty or too long"));
    }
    Ok(bytes[RECORD_HEADER_BYTES..].get(..length))
}

/// Reads the body of a ClientHello (RFC 8446 §4.1.2); `None` if it is malformed.
fn parse(body: &[u8]) -> Option<ClientHello> {
    let mut body = Part(body);
    body.take(FIXED_BYTES)?;
    // Session id, cipher suites, compression methods.
    for length_bytes in [1, 2, 1] {
        body.prefixed(length_bytes)?;
    }
    // SSL 3.0 has no extensions, TLS before 1.3 may have none.
    let mut extensions = if body.is_empty() { Part(&[]) } else { body.last_prefixed()? };
    let (mut name, mut protocols) = (None, None);
    while !extensions.is_empty() {
        let kind = extensions.number(2)?;
        let content = Part(extensions.prefixed(2)?);
        // If an extension is repeated, servers may use either one.
        let is_repeated = match u16::try_from(kind) {
            Ok(SERVER_NAME) => name.replace(server_name(content)?).is_some(),
            Ok(ALPN) => protocols.replace(offers_http2(content)?).is_some(),
            _ => false,
        };
        if is_repeated {
            return None;
        }
    }
    Some(ClientHello { server_name: name.flatten(), offers_http2: protocols.unwrap_or_default() })
}

/// The only host in a list of server names, in lower case. An address counts as no name, as servers treat it (RFC 6066
/// §3 forbids it). The outer `None` is a malformed list.
fn server_name(mut extension: Part<'_>) -> Option<Option<String>> {
    let mut list = extension.last_prefixed()?;
    let is_host = list.number(1)? == 0;
    let name = list.last_prefixed().filter(|_| is_host)?;
    match ServerName::try_from(name.0) {
        Ok(ServerName::DnsName(name)) => Some(Some(name.as_ref().to_ascii_lowercase())),
        Ok(ServerName::IpAddress(_)) => Some(None),
        _ => None,
    }
}

/// Returns whether a list of protocols contains HTTP/2.
fn offers_http2(mut extension: Part<'_>) -> Option<bool> {
    let (mut list, mut offered) = (extension.last_prefixed()?, false);
    while !list.is_empty() {
        offered |= list.prefixed(1)? == HTTP2;
    }
    Some(offered)
}

fn unreadable(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

// === impl Part ===

impl<'a> Part<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes behind their length, which takes `length_bytes` bytes.
    fn prefixed(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(length_bytes)?;
        self.take(length)
    }

    /// Bytes behind a length of two bytes, if nothing follows them.
    fn last_prefixed(&mut self) -> Option<Part<'a>> {
        let bytes = self.prefixed(2)?;
        self.is_empty().then_some(Part(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs};

    use super::*;
    use crate::clock::assert_linear;

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

    /// Cuts the message into records that hold `each` bytes of it.
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

    fn with_length(length_bytes: usize, content: &[u8]) -> Vec<u8> {
        [&content.len().to_be_bytes()[8 - length_bytes..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &with_length(2, content)].concat()
    }

    fn naming(name: &[u8]) -> Vec<u8> {
        extension(SERVER_NAME, &with_length(2, &[&[0][..], &with_length(2, name)].concat()))
    }

    /// A message of this version without any other extension, in one record.
    fn old_hello(minor: u8, extensions: &[u8]) -> Vec<u8> {
        let extensions = if extensions.is_empty() { Vec::new() } else { with_length(2, extensions) };
        let body = [&[3, minor][..], &[7; 32], &[0, 0, 2, 0, 47, 1, 0], &extensions].concat();
        let message = [&[CLIENT_HELLO][..], &with_length(3, &body)].concat();
        [&[HANDSHAKE, 3, minor][..], &with_length(2, &message)].concat()
    }

    #[test]
    fn name_is_read_in_every_version_and_without_signature_algorithms() {
        let expected = ClientHello { server_name: Some("api.example.com".to_owned()), offers_http2: false };
        for minor in 0..=3 {
            let bytes = old_hello(minor, &[extension(0xff01, &[0]), naming(b"API.example.com")].concat());
            assert_eq!(read(&bytes, 1 << 20).unwrap(), Some(expected.clone()), "version 3.{minor}");
            let unnamed = [old_hello(minor, &[]), old_hello(minor, &naming(b"10.0.0.1"))];
            for bytes in unnamed {
                assert_eq!(read(&bytes, 1 << 20).unwrap(), Some(ClientHello::default()), "version 3.{minor}");
            }
        }
    }

    /// Servers may read one of two names, skip unknown entries, or cut a name at a zero.
    #[test]
    fn name_that_servers_may_read_differently_is_an_error() {
        let two_in_list = [&[0, 0, 1, b'a'][..], &[0, 0, 1, b'b']].concat();
        for extensions in [
            [naming(b"a.test"), naming(b"b.test")].concat(),
            extension(SERVER_NAME, &with_length(2, &two_in_list)),
            extension(SERVER_NAME, &with_length(2, &[1, 0, 1, b'a'])),
            extension(SERVER_NAME, &[]),
            extension(SERVER_NAME, &[0, 0]),
            naming(b"a.test\0.b.test"),
            naming("ä.test".as_bytes()),
            naming(b""),
            [&naming(b"a.test")[..], &[0]].concat(),
        ] {
            assert!(read(&old_hello(3, &extensions), 1 << 20).is_err(), "{extensions:?}");
        }
    }

    #[test]
    fn longest_message_in_the_shortest_records_and_pieces_is_read_in_linear_time() {
        let message = |bytes: usize| {
            let padding = vec![0; bytes / 8 - 100];
            in_records(&old_hello(1, &[naming(b"a.test"), extension(21, &padding)].concat())[..], 1)
        };
        assert_linear("records of one byte", 60 * 1024, message, |bytes| {
            assert!(read(bytes, 1).unwrap().is_some());
        });
        let many = |bytes: usize| old_hello(1, &vec![[0xff, 0xfe, 0, 0]; bytes / 8 / 4].concat());
        assert_linear("extensions", 60 * 1024, many, |bytes| assert!(read(bytes, 1 << 20).unwrap().is_some()));
    }

    #[test]
    fn no_client_hello_is_an_error() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
            b"\x16\x03\x01\x00\x00",
            b"\x15\x03\x01\x00\x02\x01\x5a",
            b"\x16\x04",
            b"\x16\x03\x01\x40\x01",
            // A body that ends in its random bytes.
            b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",
        ] {
            assert!(read(bytes, 1 << 20).is_err());
        }
    }
}
