//! HTTP/1.1 messages as they are on the wire, read by code that is independent of andante's.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use super::PATIENCE;

/// Bytes of head and body that a failed test prints.
const SHOWN: usize = 2000;

/// A request or an answer.
#[derive(Clone, Default)]
pub(crate) struct Message {
    /// First line and fields, byte for byte.
    pub(crate) head: Vec<u8>,
    /// The body, byte for byte: with its chunks and trailers, if it came in chunks.
    pub(crate) framed: Vec<u8>,
    /// The body, out of its chunks.
    pub(crate) body: Vec<u8>,
    /// Trailers, behind the last chunk.
    pub(crate) trailers: Vec<(String, String)>,
}

/// A connection, and the bytes that were read from it but not consumed yet.
pub(crate) struct RawConnection {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

/// Transport of a connection: a socket, or TLS over a socket.
pub(crate) trait Stream: Read + Write + Send {
    /// The socket below.
    fn socket(&self) -> &TcpStream;

    /// Says that nothing more will be sent.
    fn finish(&mut self);

    /// Whether both sides have agreed on HTTP/2.
    fn is_http2(&self) -> bool {
        false
    }
}

// === impl Message ===

impl Message {
    /// The first line.
    pub(crate) fn line(&self) -> String {
        lines(&self.head).next().unwrap_or_default()
    }

    /// An answer's status.
    pub(crate) fn status(&self) -> u16 {
        let line = self.line();
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {line}"))
    }

    /// A request's target.
    pub(crate) fn target(&self) -> String {
        self.line().split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// All fields in their order; names in lower case.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        lines(&self.head).skip(1).filter_map(|line| field(&line)).collect()
    }

    /// The values of all fields called `name`, in their order.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let named = |(found, value): (String, String)| found.eq_ignore_ascii_case(name).then_some(value);
        self.fields().into_iter().filter_map(named).collect()
    }

    /// The value of the only field called `name`.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let mut all = self.all(name);
        assert!(all.len() < 2, "{name} more than once: {all:?}");
        all.pop()
    }

    /// Whether the message has a field called `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.head, &self.framed] {
            let shown = &part[..part.len().min(SHOWN)];
            write!(f, "{}{}", String::from_utf8_lossy(shown), if shown.len() < part.len() { "…" } else { "" })?;
        }
        Ok(())
    }
}

// === impl RawConnection ===

impl RawConnection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self::over(Box::new(stream))
    }

    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        let socket = stream.socket();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Another handle of the socket below. Buffered bytes would be lost, so there must be none.
    pub(super) fn socket(&self) -> TcpStream {
        assert!(self.buffer.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.buffer));
        self.stream.socket().try_clone().unwrap()
    }

    /// Whether both sides have agreed on HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.stream.is_http2()
    }

    pub(super) fn into_stream(self) -> Box<dyn Stream> {
        assert!(self.buffer.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.buffer));
        self.stream
    }

    /// Writes all of `bytes`.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        self.stream.finish();
    }

    /// Ends the connection by a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(self.stream.socket(), Some(Duration::ZERO)).unwrap();
    }

    /// A request, or `None` where the connection ends first.
    pub(crate) fn request(&mut self) -> io::Result<Option<Message>> {
        let Some(head) = self.head()? else { return Ok(None) };
        let mut request = Message { head, ..Message::default() };
        if request.has("transfer-encoding") {
            self.chunks(&mut request)?;
        } else if let Some(length) = request.field("content-length") {
            self.length(&mut request, length.parse().expect("a length"))?;
        }
        Ok(Some(request))
    }

    /// The head of a request or an answer, or `None` where the connection ends first.
    pub(crate) fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(Some(self.buffer.drain(..end + 4).collect()));
            }
            if !self.more()? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// An answer; `to_head`: to a request whose answers have no body.
    pub(crate) fn answer(&mut self, to_head: bool) -> io::Result<Message> {
        let head = self.head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut answer = Message { head, ..Message::default() };
        let status = answer.status();
        if to_head || status < 200 || status == 204 || status == 304 {
        } else if answer.has("transfer-encoding") {
            self.chunks(&mut answer)?;
        } else if let Some(length) = answer.field("content-length") {
            self.length(&mut answer, length.parse().expect("a length"))?;
        } else {
            answer.body = self.rest()?;
            answer.framed.clone_from(&answer.body);
        }
        Ok(answer)
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.more()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..count).collect())
    }

    /// Everything until the other side has closed.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.more()? {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Bytes that have arrived so far.
    pub(crate) fn unread(&mut self) -> Vec<u8> {
        self.stream.socket().set_nonblocking(true).unwrap();
        while self.more().is_ok_and(|more| more) {}
        self.stream.socket().set_nonblocking(false).unwrap();
        self.buffer.clone()
    }

    fn more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 * 1024];
        let n = self.stream.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..n]);
        Ok(n > 0)
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                return Ok(self.buffer.drain(..end + 2).collect());
            }
            if !self.more()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn length(&mut self, message: &mut Message, length: usize) -> io::Result<()> {
        message.body = self.bytes(length)?;
        message.framed.clone_from(&message.body);
        Ok(())
    }

    fn chunks(&mut self, message: &mut Message) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let size = String::from_utf8_lossy(&line).trim().split(';').next().unwrap_or_default().to_owned();
            let size = usize::from_str_radix(&size, 16).expect("a chunk's size");
            message.framed.extend_from_slice(&line);
            if size == 0 {
                break;
            }
            let piece = self.bytes(size + 2)?;
            assert!(piece.ends_with(b"\r\n"), "a chunk that does not end where it said");
            message.body.extend_from_slice(&piece[..size]);
            message.framed.extend_from_slice(&piece);
        }
        loop {
            let line = self.line()?;
            message.framed.extend_from_slice(&line);
            match field(String::from_utf8_lossy(&line).trim_end()) {
                Some(trailer) => message.trailers.push(trailer),
                None => return Ok(()),
            }
        }
    }
}

// === impl Stream ===

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn finish(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

fn lines(head: &[u8]) -> impl Iterator<Item = String> {
    head.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).trim_end_matches('\r').to_owned())
}

fn field(line: &str) -> Option<(String, String)> {
    line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
}
