//! The end of a request in the stream of bytes that a worker sends.
//!
//! hyper reads ahead, so a read need not start with a request. The end of the head is found here, and hyper has parsed
//! the length of the body. After a body of unstated length, or a pipelined request, the starts of later requests stay
//! unknown.

use crate::proxy::message::progress::Progress;

/// Position of the next byte in a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum MessageEnd {
    /// No byte of the request was read.
    #[default]
    Fresh,
    Head {
        /// True if an earlier line had text: empty lines before a request are skipped (RFC 9112 §2.2).
        begun: bool,
        /// True if the current line has no text yet.
        blank: bool,
    },
    /// Behind the head.
    Body { bytes: u64 },
}

// === impl MessageEnd ===

impl MessageEnd {
    /// Returns whether the read bytes end with the request, so that the next byte begins another.
    pub(crate) fn is_reached(self, progress: &Progress) -> bool {
        match self {
            Self::Fresh => true,
            Self::Head { .. } => false,
            Self::Body { bytes } => progress.ends_after(bytes),
        }
    }

    /// Bytes behind the head that were read.
    pub(crate) fn body_bytes(self) -> u64 {
        if let Self::Body { bytes } = self { bytes } else { 0 }
    }

    /// Continues with the `read` bytes.
    pub(crate) fn note(&mut self, read: &[u8]) {
        let (begun, blank) = match self {
            _ if read.is_empty() => return,
            Self::Fresh => (false, true),
            Self::Head { begun, blank } => (*begun, *blank),
            Self::Body { bytes } => {
                *bytes = bytes.saturating_add(read.len() as u64);
                return;
            }
        };
        *self = Self::after_lines(begun, blank, read);
    }

    fn after_lines(mut begun: bool, mut blank: bool, read: &[u8]) -> Self {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', read) {
            let is_empty = blank && is_without_text(&read[start..end]);
            (start, blank) = (end + 1, true);
            if is_empty && begun {
                return Self::Body { bytes: (read.len() - start) as u64 };
            }
            begun |= !is_empty;
        }
        Self::Head { begun, blank: blank && is_without_text(&read[start..]) }
    }
}

fn is_without_text(line: &[u8]) -> bool {
    matches!(line, b"" | b"\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_head(pieces: &[&[u8]]) -> Option<u64> {
        let mut end = MessageEnd::default();
        pieces.iter().for_each(|piece| end.note(piece));
        if let MessageEnd::Body { bytes } = end { Some(bytes) } else { None }
    }

    #[test]
    fn bytes_behind_the_head_are_counted_wherever_reads_end() {
        for (head, body) in [
            (&b"GET / HTTP/1.1\r\nA: b\r\n\r\n"[..], &b""[..]),
            (b"\r\n\r\nPOST / HTTP/1.1\r\n\r\n", b"\r\n\r\nbody"),
            (b"\nPOST / HTTP/1.1\nA: b\n\n", b"a\n\r\nb"),
        ] {
            let whole = [head, body].concat();
            for at in 0..=whole.len() {
                assert_eq!(after_head(&[&whole[..at], &whole[at..]]), Some(body.len() as u64), "{at}");
            }
            assert_eq!(after_head(&[&head[..head.len() - 1]]), None);
        }
    }
}
