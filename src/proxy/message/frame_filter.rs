//! Filters the frames that an HTTP/2 peer sends before the library reads them.
//!
//! The library ends a connection after 100 empty DATA frames, counted over the connection's whole life. Servers and
//! clients that flush send one with each message. RFC 9113 allows that; only many of them in a row are a flood. So the
//! filter gives an empty frame an unknown type, which the library must ignore (RFC 9113 §4.1). It stops after too many
//! empty frames in a row. The library then ends the connection, as it does without the filter.
//!
//! The filter changes a single byte of a frame's head and moves no bytes. If a read ends inside that head, the frame
//! stays as it is.
//!
//! A peer that has closed may have answered before, such as a server that refuses an upload. The library stops at the
//! first write that fails, with the answer unread. So a failed write counts as done, and the next read reports the end.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::writes::is_reset;

/// Length of a client's connection preface (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;
/// Length of a frame's head (RFC 9113 §4.1).
const HEAD_BYTES: usize = 9;
/// Types of frames that carry a message (RFC 9113 §6.1, §6.2).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
/// A type that no RFC defines.
const UNKNOWN: u8 = 0xea;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// Number of empty DATA frames in a row that are hidden; with more, the peer sends nothing else. A server that flushes
/// in 100 streams at once sends as many.
const MAX_EMPTY_IN_A_ROW: u32 = 1000;

/// A stream of frames from a peer, and a callback after each read, which may fail the read.
pub(crate) struct FrameFilter<S, F> {
    stream: S,
    cursor: FrameCursor,
    on_read: F,
    /// A write has failed because the peer has closed.
    is_closed: bool,
}

/// Contents of one read from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The head of a frame that carries a part of a message.
    pub(crate) message: bool,
    /// The acknowledgement of SETTINGS, which a peer sends at once (RFC 9113 §6.5.3).
    pub(crate) acknowledgement: bool,
    /// Bytes of a header block that has not ended (RFC 9113 §4.3), which the library keeps.
    pub(crate) open_block: usize,
}

/// Place of the next byte in the peer's frames.
#[derive(Debug)]
struct FrameCursor {
    /// Bytes that are left of the preface or of a payload.
    skip: usize,
    /// The received bytes of the current frame's head.
    head: [u8; HEAD_BYTES],
    head_len: usize,
    empty_in_a_row: u32,
    /// Length of the frames of the current header block, and whether the current frame is its last.
    block: usize,
    is_block_end: bool,
}

// === impl FrameFilter ===

impl<S, F: FnMut(Received) -> io::Result<()>> FrameFilter<S, F> {
    /// Reads the frames of a server, and calls `on_read` after each read.
    pub(crate) fn of_server(stream: S, on_read: F) -> Self {
        Self { stream, cursor: FrameCursor::after(0), on_read, is_closed: false }
    }

    /// Reads the frames of a client, and calls `on_read` after each read.
    pub(crate) fn of_client(stream: S, on_read: F) -> Self {
        Self { stream, cursor: FrameCursor::after(PREFACE_BYTES), on_read, is_closed: false }
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(Received) -> io::Result<()> + Unpin> AsyncRead for FrameFilter<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let received = self.cursor.pass(&mut buf.filled_mut()[before..]);
        Poll::Ready((self.on_read)(received))
    }
}

impl<S: AsyncWrite + Unpin, F> FrameFilter<S, F> {
    /// Writes by `act`. Once the peer has closed, returns `unwritten` instead, as if all had been written.
    fn poll_writing<T>(
        &mut self,
        unwritten: T,
        act: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.is_closed {
            return Poll::Ready(Ok(unwritten));
        }
        let written = ready!(act(Pin::new(&mut self.stream)));
        self.is_closed = written.as_ref().is_err_and(is_reset);
        Poll::Ready(if self.is_closed { Ok(unwritten) } else { written })
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for FrameFilter<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(buf.len(), |stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_writing(bytes, |stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writing((), |stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writing((), |stream| stream.poll_shutdown(cx))
    }
}

// === impl FrameCursor ===

impl FrameCursor {
    fn after(skip: usize) -> Self {
        Self { skip, head: [0; HEAD_BYTES], head_len: 0, empty_in_a_row: 0, block: 0, is_block_end: false }
    }

    /// Passes over the next `bytes` from the peer, and hides empty DATA frames among them.
    fn pass(&mut self, bytes: &mut [u8]) -> Received {
        let mut received = Received::default();
        let mut at = 0;
        while at < bytes.len() {
            let skipped = self.skip.min(bytes.len() - at);
            (self.skip, at) = (self.skip - skipped, at + skipped);
            let piece = &mut bytes[at..];
            let taken = (HEAD_BYTES - self.head_len).min(piece.len());
            self.head[self.head_len..self.head_len + taken].copy_from_slice(&piece[..taken]);
            // Position of the type in `bytes`, if this read has brought it.
            let kind = 3_usize.checked_sub(self.head_len).map(|kind| at + kind);
            (self.head_len, at) = (self.head_len + taken, at + taken);
            if self.head_len < HEAD_BYTES {
                continue;
            }
            self.head_len = 0;
            self.on_head(&mut received);
            if let Some(kind) = kind.filter(|_| self.is_hidden()) {
                bytes[kind] = UNKNOWN;
            }
        }
        if self.is_block_end && self.skip == 0 {
            self.block = 0;
        }
        received.open_block = self.block.saturating_sub(self.skip);
        received
    }

    /// Records the head that is complete now.
    fn on_head(&mut self, received: &mut Received) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        let is_empty = kind == DATA && self.skip == 0 && flags & END_STREAM == 0;
        self.empty_in_a_row = if is_empty { self.empty_in_a_row.saturating_add(1) } else { 0 };
        let begun = if kind == CONTINUATION { self.block } else { 0 };
        self.block = if matches!(kind, HEADERS | CONTINUATION) { begun.saturating_add(self.skip) } else { 0 };
        self.is_block_end = flags & END_HEADERS != 0;
        received.message |= matches!(kind, DATA | HEADERS) && !is_empty;
        received.acknowledgement |= kind == SETTINGS && flags & ACK != 0;
    }

    /// Returns whether the frame whose head is complete now is empty, and is to be hidden.
    fn is_hidden(&self) -> bool {
        let names_stream = self.head[5..] != [0; 4];
        (1..=MAX_EMPTY_IN_A_ROW).contains(&self.empty_in_a_row) && names_stream
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// Types of the frames in `bytes`.
    fn kinds(mut bytes: &[u8]) -> Vec<u8> {
        let mut kinds = Vec::new();
        while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
            kinds.push(*kind);
            bytes = &rest[u32::from_be_bytes([0, *a, *b, *c]) as usize..];
        }
        kinds
    }

    #[test]
    fn empty_data_that_ends_no_stream_is_hidden_and_all_else_passes() {
        let all = [
            frame(HEADERS, 4, b"head"),
            frame(DATA, 0, b""),
            frame(DATA, 0, b"text"),
            frame(DATA, 0, b""),
            frame(DATA, END_STREAM, b""),
        ];
        let mut bytes = all.concat();
        let received = FrameCursor::after(0).pass(&mut bytes);
        assert_eq!(kinds(&bytes), [HEADERS, UNKNOWN, DATA, UNKNOWN, DATA]);
        assert_eq!(received, Received { message: true, acknowledgement: false, open_block: 0 });
    }

    #[tokio::test]
    async fn an_answer_is_read_although_its_peer_takes_no_more() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut filter = FrameFilter::of_server(near, |_| Ok(()));
        far.write_all(&frame(DATA, END_STREAM, b"no")).await.unwrap();
        drop(far);
        filter.write_all(b"upload").await.unwrap();
        filter.flush().await.unwrap();
        let mut read = Vec::new();
        filter.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, frame(DATA, END_STREAM, b"no"));
    }

    #[test]
    fn acknowledgements_of_settings_are_seen_and_settings_are_none() {
        let seen = |flags| FrameCursor::after(0).pass(&mut frame(SETTINGS, flags, b"")).acknowledgement;
        assert!(seen(ACK) && !seen(0));
    }

    #[test]
    fn a_header_block_is_open_until_the_last_byte_of_its_last_frame_has_come() {
        let mut cursor = FrameCursor::after(0);
        let mut open = |mut bytes: Vec<u8>| cursor.pass(&mut bytes).open_block;
        assert_eq!(open(frame(HEADERS, 0, &[0; 100])), 100);
        assert_eq!(open(frame(CONTINUATION, 0, &[0; 50])), 150);
        let last = frame(CONTINUATION, END_HEADERS, &[0; 50]);
        assert_eq!((open(last[..HEAD_BYTES + 20].to_vec()), open(last[HEAD_BYTES + 20..].to_vec())), (170, 0));
        assert_eq!(open(frame(HEADERS, END_HEADERS, &[0; 100])), 0);
        assert_eq!(open(frame(DATA, 0, &[0; 100])[..50].to_vec()), 0, "no header block");
    }

    #[test]
    fn frames_are_found_wherever_reads_end_and_behind_a_preface() {
        let frames = [frame(DATA, 0, b"0123456789"), frame(DATA, 0, b""), frame(6, 0, &[0; 8])].concat();
        let whole = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frames].concat();
        for cut in 1..whole.len() {
            let (mut cursor, mut bytes) = (FrameCursor::after(PREFACE_BYTES), whole.clone());
            let (first, second) = bytes.split_at_mut(cut);
            let received = [cursor.pass(first), cursor.pass(second)];
            assert_eq!(kinds(&bytes[PREFACE_BYTES..])[0], DATA, "{cut}");
            assert_eq!(kinds(&bytes[PREFACE_BYTES..])[2], 6, "{cut}");
            assert!(received.iter().any(|received| received.message), "{cut}");
        }
    }

    #[test]
    fn too_many_in_a_row_are_left_to_the_library_and_others_in_between_are_a_new_row() {
        let mut cursor = FrameCursor::after(0);
        for _ in 0..3 {
            for _ in 0..MAX_EMPTY_IN_A_ROW {
                let mut bytes = frame(DATA, 0, b"");
                cursor.pass(&mut bytes);
                assert_eq!(kinds(&bytes), [UNKNOWN]);
            }
            cursor.pass(&mut frame(DATA, 0, b"text"));
        }
        let mut row = frame(DATA, 0, b"").repeat(MAX_EMPTY_IN_A_ROW as usize + 1);
        cursor.pass(&mut row);
        assert_eq!(kinds(&row).pop(), Some(DATA));
    }
}
