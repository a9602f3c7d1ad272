//! A client that sends given bytes unchanged.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::{Message, RawConnection};

/// A client on one connection.
pub(crate) struct Client {
    wire: RawConnection,
    /// Certificate of the other side, in DER.
    pub(crate) certificate: Vec<u8>,
    /// Protocol that ALPN has agreed on.
    pub(crate) alpn: Option<String>,
}

impl Client {
    /// Connects to `address`.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::secure(RawConnection::new(TcpStream::connect(address).unwrap()), Vec::new(), None)
    }

    /// Connects from 127.0.0.`source` to `address`.
    pub(crate) fn connect_from(source: u8, address: SocketAddr) -> Self {
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&stream, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, source), 0))).unwrap();
        connect(&stream, &address).unwrap();
        Self::over(TcpStream::from(stream))
    }

    /// A client on a connection that is there.
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self::secure(RawConnection::new(stream), Vec::new(), None)
    }

    /// Speaks over `wire`.
    pub(super) fn secure(wire: RawConnection, certificate: Vec<u8>, alpn: Option<String>) -> Self {
        Self { wire, certificate, alpn }
    }

    /// The socket, to speak TLS over it.
    pub(super) fn into_socket(self) -> TcpStream {
        self.wire.socket()
    }

    /// Sends `request` on a connection of its own, and returns the answer.
    pub(crate) fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> Message {
        let mut client = Self::connect(address);
        client.send(request);
        client.answer()
    }

    /// `GET url` as a well-behaved worker sends it to a proxy.
    pub(crate) fn get(proxy: SocketAddr, url: &str) -> Message {
        let host = url.strip_prefix("http://").unwrap().split(['/', '?', '#']).next().unwrap();
        Self::ask(proxy, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// Sends `bytes`. The other side may have closed already, and say why: that is no failure.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.wire.send(bytes);
    }

    /// Reads one answer.
    pub(crate) fn answer(&mut self) -> Message {
        self.wire.answer(false).expect("an answer")
    }

    /// Reads one answer to a HEAD.
    pub(crate) fn answer_to_head(&mut self) -> Message {
        self.wire.answer(true).expect("an answer")
    }

    /// Reads the answer that opens a tunnel.
    pub(crate) fn opened(&mut self) -> Message {
        let head = self.answer_to_head();
        assert_eq!(head.status(), 200, "{head:?}");
        head
    }

    /// Reads `count` bytes, for instance out of a tunnel.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.wire.bytes(count).expect("as many bytes")
    }

    /// Reads until the received text ends in `text`.
    pub(crate) fn until(&mut self, text: &str) {
        let mut read = self.bytes(text.len());
        while !read.ends_with(text.as_bytes()) {
            read.extend(self.bytes(1));
        }
    }

    /// Reads until the other side closes, and returns the bytes. Panics if it does not close. A reset is an end, too.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        match self.wire.rest() {
            Ok(rest) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Vec::new(),
            Err(error) => panic!("the connection does not end: {error}"),
        }
    }

    /// Reads until the other side closes, in whatever way; panics if it does not.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        match self.wire.rest() {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Vec::new(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Vec::new(),
            rest => rest.expect("the connection does not end"),
        }
    }

    /// Panics unless TLS ends as it must not end after an answer that is complete: without a word, or by a reset.
    pub(crate) fn cut_off(&mut self) {
        let kind = self.wire.rest().expect_err("it ended as if all were there").kind();
        let cut = [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset];
        assert!(cut.contains(&kind), "the connection does not end: {kind}");
    }

    /// Panics unless the other side closes without saying anything more.
    pub(crate) fn closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "", "expected the connection to end");
    }

    /// Panics if anything has come that was not read.
    pub(crate) fn silent(&mut self) {
        let unread = self.wire.unread();
        assert_eq!(String::from_utf8_lossy(&unread), "", "expected silence");
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        self.wire.finish();
    }

    /// Leaves by a reset.
    pub(crate) fn reset(self) {
        self.wire.reset();
    }
}
