//! The clear-text bytes between a worker and hyper. The wrapper notices when a request begins, and replaces hyper's
//! terse errors by better ones.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{message_end::MessageEnd, request_line::RequestLine};
use crate::proxy::{
    exchange::Exchange,
    message::progress::Phase,
    protocol::{MAX_FIELDS, MAX_HEAD},
    request_memory::USUAL_HEAD_BYTES,
    steps::respond,
};

/// An HTTP/1 connection as hyper sees it, in the clear or inside TLS.
pub(crate) struct RewriteErrorsIo<S> {
    stream: S,
    exchange: Arc<Exchange>,
    /// The first byte that was read since the last request ended.
    first: u8,
    /// Progress through the request. Boxed: each connection that waits would carry its size.
    request: Box<RequestReading>,
    /// Unwritten bytes of interim answers, or of andante's answer to a request that hyper could not read. Boxed: each
    /// connection that waits would carry its size.
    unwritten: Option<Box<Bytes>>,
    /// True between answers: everything before the current request is written, and nothing yet of its answer.
    between: bool,
    /// True if andante's answer replaces hyper's output from now on.
    instead: bool,
}

/// Progress of reading a request, for escapes in its target.
#[derive(Default)]
struct RequestReading {
    /// Bytes and lines that were read since the last request ended.
    heard: HeadProgress,
    line: RequestLine,
    end: MessageEnd,
    /// Escaped bytes that did not fit into hyper's buffer.
    unread: Option<Bytes>,
}

/// Amount that was read, as far as needed to tell why hyper refused a head.
#[derive(Default)]
struct HeadProgress {
    bytes: u32,
    lines: u32,
}

/// Too few bytes for more than the maximum number of fields: the lines of a complete short head are not counted.
const LITTLE: usize = 3 * MAX_FIELDS;

// === impl RewriteErrorsIo ===

impl<S: AsyncRead + AsyncWrite + Unpin> RewriteErrorsIo<S> {
    pub(super) fn new(stream: S, exchange: Arc<Exchange>) -> Self {
        exchange.progress.awaits_head();
        Self { stream, exchange, first: 0, request: Box::default(), unwritten: None, between: false, instead: false }
    }

    /// Returns the connection, and bytes read from it that hyper has not taken.
    pub(crate) fn into_inner(self) -> (S, Bytes) {
        (self.stream, self.request.unread.unwrap_or_default())
    }

    /// Writes the upstream's interim answers.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.between {
            if self.unwritten.is_none() {
                self.write_own(self.exchange.interim.take());
            }
            if self.unwritten.is_none() {
                break;
            }
            ready!(self.poll_write_own(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sets andante's own `bytes` to be written.
    fn write_own(&mut self, bytes: Bytes) {
        self.unwritten = (!bytes.is_empty()).then(|| Box::new(bytes));
    }

    /// Writes some of andante's own bytes.
    fn poll_write_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(unwritten) = &mut self.unwritten {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, unwritten))?;
            unwritten.advance(written);
        }
        self.unwritten.take_if(|unwritten| unwritten.is_empty());
        Poll::Ready(Ok(()))
    }

    /// Replaces the empty 4xx with which hyper answers a request that it could not read.
    ///
    /// Ready with `true` once the whole replacement is written; `false` if nothing is to be replaced.
    fn poll_say_better(&mut self, cx: &mut Context<'_>, head: &[u8]) -> Poll<io::Result<bool>> {
        if !self.instead {
            if self.exchange.is_answering() || !head.starts_with(b"HTTP/1.1 4") {
                return Poll::Ready(Ok(false));
            }
            let status = match &head[9..12] {
                _ if self.exchange.is_out_of_memory() => b"503",
                // hyper treats an invalid length like one that is too large: 2⁶⁴-1 (RFC 9110 §8.6).
                b"431" if self.request.heard.is_small() => b"400",
                status => status,
            };
            self.write_own(respond::to_unreadable(&self.exchange, status, self.first));
            self.instead = true;
        }
        while self.unwritten.is_some() {
            ready!(self.poll_write_own(cx))?;
        }
        self.exchange.set_answering(true);
        Poll::Ready(Ok(true))
    }
}

impl<S> RewriteErrorsIo<S> {
    /// Continues with the `read` part of a request. A request is known to begin only at the beginning of a read. A
    /// body, or the rest of a pipelined head, must not be taken for one, because escapes change its bytes and its
    /// length.
    fn find_line(&mut self, read: &[u8]) {
        if !read.is_empty() && self.request.end.is_reached(&self.exchange.progress) {
            (self.request.line, self.request.end) = Default::default();
            self.exchange.progress.awaits_head();
        }
        self.request.end.note(read);
        self.exchange.progress.on_body_read(self.request.end.body_bytes());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RewriteErrorsIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(mut unread) = self.request.unread.take() {
            buf.put_slice(&unread.split_to(unread.len().min(buf.remaining())));
            self.request.unread = (!unread.is_empty()).then_some(unread);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        let progress = &self.exchange.progress;
        if !read.is_empty() && matches!(progress.phase(), Phase::Idle | Phase::Head) {
            if progress.phase() == Phase::Idle {
                self.request.heard = HeadProgress::default();
                self.first = read[0];
            }
            self.exchange.progress.reads_head();
            let so_far = self.request.heard.bytes as usize + read.len();
            if so_far > USUAL_HEAD_BYTES && !self.exchange.memory(|memory| memory.reads_head(so_far)) {
                // The rest of the head is dropped: a NUL makes hyper refuse the head, and andante replaces the answer.
                buf.set_filled(before);
                buf.put_slice(&[0]);
                return Poll::Ready(Ok(()));
            }
        }
        self.request.heard.note(read);
        self.find_line(read);
        if let Some(escaped) = self.request.line.escaped(&buf.filled()[before..]) {
            let mut escaped = Bytes::from(escaped);
            buf.set_filled(before);
            buf.put_slice(&escaped.split_to(escaped.len().min(buf.remaining())));
            self.request.unread = (!escaped.is_empty()).then_some(escaped);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for RewriteErrorsIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        self.between = false;
        if ready!(self.poll_say_better(cx, buf))? {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        self.between = false;
        if ready!(self.poll_say_better(cx, bufs.first().map_or(&[], |buf| buf)))? {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes once it has written everything.
        self.between |= self.exchange.interim.is_open();
        ready!(self.poll_interim(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.exchange.taken();
        // The answer to a request has been written completely.
        if self.exchange.progress.phase() == Phase::Idle {
            self.exchange.set_answering(false);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

// === impl HeadProgress ===

impl HeadProgress {
    fn note(&mut self, read: &[u8]) {
        if self.has_room() {
            let is_whole = self.bytes == 0 && read.len() <= LITTLE && read.ends_with(b"\r\n\r\n");
            let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
            self.bytes = self.bytes.saturating_add(count(read.len()));
            if !is_whole {
                self.lines = self.lines.saturating_add(count(memchr::memchr_iter(b'\n', read).count()));
            }
        }
    }

    /// Returns whether the head has neither too many bytes nor too many fields.
    fn is_small(&self) -> bool {
        self.has_room() && self.lines as usize <= MAX_FIELDS
    }

    fn has_room(&self) -> bool {
        (self.bytes as usize) < MAX_HEAD
    }
}
