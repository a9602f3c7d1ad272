//! Interim answers (RFC 9110 §15.2) from an HTTP/1 upstream, read on their way to hyper.
//!
//! hyper reports interim answers to a callback of each request, which takes four allocations. Nearly all answers begin
//! with another status, which ends this reader's work after twelve bytes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use parking_lot::Mutex;

use crate::proxy::protocol::MAX_FIELDS;

/// An interim answer.
#[derive(Debug)]
pub(crate) struct InterimAnswer {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) fields: HeaderMap,
}

/// Passes interim answers on.
pub(crate) trait InterimSink: Send + Sync {
    fn pass_on(&self, answer: InterimAnswer);
}

/// The receiver of the interim answers on one connection.
#[derive(Default)]
pub(crate) struct InterimListener {
    listens: AtomicBool,
    sink: Mutex<Option<Arc<dyn InterimSink>>>,
}

/// Reads the bytes of one connection, as long as they may be interim answers.
#[derive(Default)]
pub(crate) struct InterimReader {
    /// The beginning of an incomplete head.
    head: Vec<u8>,
    /// Start of the last line that was searched.
    looked_at: usize,
}

/// Kind of answer that the first bytes show.
#[derive(Debug, PartialEq, Eq)]
enum Beginning {
    Interim,
    Final,
    /// There are too few bytes.
    Unclear,
}

/// End of the status within a status line: `HTTP/1.1 103`.
const STATUS_END: usize = 12;
/// Maximum length of a head. A longer head is not passed on, and nothing after it.
const LONGEST: usize = 16 << 10;

// === impl InterimListener ===

impl InterimListener {
    /// Passes the interim answers of the next request to `sink`.
    pub(crate) fn listen(&self, sink: Arc<dyn InterimSink>) {
        *self.sink.lock() = Some(sink);
        self.listens.store(true, Ordering::Relaxed);
    }

    /// Returns whether there is a receiver.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.listens.store(false, Ordering::Relaxed);
        *self.sink.lock() = None;
    }

    fn pass_on(&self, answer: InterimAnswer) {
        let sink = self.sink.lock().clone();
        if let Some(sink) = sink {
            sink.pass_on(answer);
        }
    }
}

// === impl InterimReader ===

impl InterimReader {
    /// Reads bytes from the connection, while `listener` listens.
    pub(crate) fn note(&mut self, read: &[u8], listener: &InterimListener) {
        if self.head.is_empty() && beginning(read) == Beginning::Final {
            return listener.end();
        }
        self.head.extend_from_slice(read);
        let mut passed = 0;
        loop {
            let head = &self.head[passed..];
            match beginning(head) {
                Beginning::Unclear => break,
                Beginning::Final => return self.end(listener),
                Beginning::Interim => match end_of_head(head, self.looked_at) {
                    Ok(end) => {
                        if let Some(answer) = parse(&head[..end]) {
                            listener.pass_on(answer);
                        }
                        (passed, self.looked_at) = (passed + end, 0);
                    }
                    Err(line) => {
                        self.looked_at = line;
                        break;
                    }
                },
            }
        }
        self.head.drain(..passed);
        if self.head.len() > LONGEST {
            self.end(listener);
        }
    }

    fn end(&mut self, listener: &InterimListener) {
        *self = Self::default();
        listener.end();
    }
}

fn beginning(bytes: &[u8]) -> Beginning {
    // hyper skips empty lines in front of an answer.
    let line = match bytes.first() {
        Some(b'\r' | b'\n') => &bytes[blank(bytes)..],
        _ => bytes,
    };
    match line.get(..STATUS_END) {
        // After 101 another protocol takes over: the following bytes are not an answer.
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'1', tens, ones])
            if (*tens, *ones) != (b'0', b'1') =>
        {
            Beginning::Interim
        }
        Some(_) => Beginning::Final,
        None => Beginning::Unclear,
    }
}

/// Number of bytes of empty lines at the start.
fn blank(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// Length of the first head in `bytes`; no line before `looked_at` ends it. An error is the start of its last line, if
/// the head is incomplete. Lines may end with LF alone (RFC 9112 §2.2).
fn end_of_head(bytes: &[u8], looked_at: usize) -> Result<usize, usize> {
    let mut line = blank(bytes).max(looked_at);
    loop {
        let end = line + memchr::memchr(b'\n', &bytes[line..]).ok_or(line)? + 1;
        if matches!(&bytes[line..end], b"\n" | b"\r\n") {
            return Ok(end);
        }
        line = end;
    }
}

/// Parses a whole head. hyper parses it, too, and ends the connection if it is invalid.
fn parse(head: &[u8]) -> Option<InterimAnswer> {
    let mut lines = head[blank(head)..].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let line = lines.next()?;
    let version = if line.get(7) == Some(&b'0') { Version::HTTP_10 } else { Version::HTTP_11 };
    let status = StatusCode::from_bytes(line.get(9..STATUS_END)?).ok()?;
    let mut fields = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        if fields.len() >= MAX_FIELDS {
            return None;
        }
        let colon = memchr::memchr(b':', line)?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        fields.append(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?);
    }
    Some(InterimAnswer { status, version, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<InterimAnswer>>);

    impl InterimSink for Heard {
        fn pass_on(&self, answer: InterimAnswer) {
            self.0.lock().push(answer);
        }
    }

    /// The interim answers on a connection that delivers these pieces, and whether more may come.
    fn heard(pieces: &[&[u8]]) -> (Vec<InterimAnswer>, bool) {
        let (listener, heard, mut reader) =
            (InterimListener::default(), Arc::new(Heard::default()), InterimReader::default());
        listener.listen(heard.clone());
        for piece in pieces {
            if listener.listens() {
                reader.note(piece, &listener);
            }
        }
        assert!(listener.listens() || reader.head.is_empty(), "it keeps nothing of the answer");
        assert_eq!(
            Arc::strong_count(&heard),
            1 + usize::from(listener.listens()),
            "the sink is let go with the answer"
        );
        let answers = std::mem::take(&mut *heard.0.lock());
        (answers, listener.listens())
    }

    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink:</b> \r\n\r\n";

    #[test]
    fn an_answer_that_comes_at_once_is_none_of_them() {
        for answer in
            ["HTTP/1.1 200 OK\r\n\r\n103", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "SSH-2.0-server_1.0\r\n"]
        {
            let (answers, listens) = heard(&[answer.as_bytes()]);
            assert!(answers.is_empty() && !listens, "{answer}");
        }
    }

    #[test]
    fn all_before_the_answer_are_heard_however_they_come_in_pieces() {
        let early = [b"HTTP/1.0 102 Processing\n\n".as_slice(), HINTS, b"\r\nHTTP/1.1 100 Continue\r\n\r\n"].concat();
        let whole = [&early[..], b"HTTP/1.1 200 OK\r\n\r\n"].concat();
        for size in [1, 2, 7, 13, 64, whole.len()] {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            let (answers, listens) = heard(&pieces);
            let seen: Vec<_> = answers.iter().map(|answer| (answer.status.as_u16(), answer.version)).collect();
            let expected = [(102, Version::HTTP_10), (103, Version::HTTP_11), (100, Version::HTTP_11)];
            assert_eq!((seen.as_slice(), listens), (&expected[..], false), "in pieces of {size}");
            let links: Vec<_> = answers[1].fields.get_all("link").iter().collect();
            assert_eq!(links, ["</a>", "</b>"]);
        }
    }

    #[test]
    fn more_is_waited_for_as_long_as_no_answer_has_begun() {
        for early in [&b""[..], b"\r\n", b"HTTP/1.1 10", b"HTTP/1.1 103 Early", HINTS] {
            assert!(heard(&[early]).1, "{}", String::from_utf8_lossy(early));
        }
    }

    /// More distinct names than a map of fields can hold: it would panic.
    #[test]
    fn a_head_of_many_fields_or_of_many_bytes_is_passed_on_to_nobody() {
        let names = (0..30_000).map(|number| format!("n{number}:\n"));
        let long = ["HTTP/1.1 103 Early Hints\n".to_owned()].into_iter().chain(names).chain(["\n".to_owned()]);
        let long: Vec<String> = long.collect();
        let pieces: Vec<&[u8]> = long.iter().map(String::as_bytes).collect();
        assert_eq!(heard(&pieces).0.len(), 0);
        assert_eq!(heard(&[long.concat().as_bytes()]).0.len(), 0);
        let many = format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", "a: b\r\n".repeat(MAX_FIELDS + 1));
        let (answers, listens) = heard(&[many.as_bytes(), HINTS]);
        assert_eq!((answers.len(), listens), (1, true), "the next one is");
    }

    #[test]
    fn what_is_no_head_is_not_passed_on() {
        let (answers, listens) = heard(&[b"HTTP/1.1 103 Early Hints\r\nno field\r\n\r\n", HINTS]);
        assert_eq!((answers.len(), listens), (1, true));
    }
}
