//! Frames one by one (RFC 9113 §4), for messages that no library sends.

use std::io::{self, Read, Write};

use h2::Reason;

/// Kinds of frames (RFC 9113 §6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// An HTTP/2 connection as one side sees it, frame by frame.
pub(crate) struct Frames<S>(S);

/// A frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

// === impl Frames ===

impl<S: Read + Write> Frames<S> {
    /// The client's side: says the preface.
    pub(crate) fn client(mut stream: S, settings: &[(u16, u32)]) -> Self {
        stream.write_all(PREFACE).unwrap();
        let mut frames = Self(stream);
        frames.settings(settings);
        frames
    }

    /// The server's side: hears the preface.
    pub(crate) fn server(mut stream: S, settings: &[(u16, u32)]) -> io::Result<Self> {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface)?;
        assert_eq!(preface, PREFACE);
        let mut frames = Self(stream);
        frames.settings(settings);
        Ok(frames)
    }

    /// A connection that has begun.
    pub(crate) fn over(stream: S) -> Self {
        Self(stream)
    }

    /// Sends a frame, and ignores a closed connection.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let _ = self.try_send(kind, flags, stream, payload);
    }

    pub(crate) fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame)?;
        self.0.flush()
    }

    pub(crate) fn settings(&mut self, settings: &[(u16, u32)]) {
        let pair = |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat();
        self.send(kind::SETTINGS, 0, 0, &settings.iter().flat_map(pair).collect::<Vec<_>>());
    }

    /// Sends a head of these fields, as they are written.
    pub(crate) fn headers(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        let flags = END_HEADERS | if end { END_STREAM } else { 0 };
        self.send(kind::HEADERS, flags, stream, &block(fields));
    }

    pub(crate) fn data(&mut self, stream: u32, data: &[u8], end: bool) {
        self.send(kind::DATA, u8::from(end), stream, data);
    }

    pub(crate) fn go_away(&mut self, last: u32, reason: Reason) {
        self.send(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), u32::from(reason).to_be_bytes()].concat());
    }

    /// The next frame; `None` where the connection ends, whatever ends it. Settings and pings are acknowledged.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let frame = self.read().ok()?;
        if matches!(frame.kind, kind::SETTINGS | kind::PING) && frame.flags & ACK == 0 {
            let payload = if frame.kind == kind::PING { &frame.payload[..] } else { &[] };
            self.send(frame.kind, ACK, 0, payload);
        }
        Some(frame)
    }

    /// The next frame, without any reply to it.
    pub(crate) fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, payload })
    }

    /// The next frame of this `kind`; `None` where the connection ends before.
    pub(crate) fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The next frame on `stream`; `None` where the connection ends before.
    pub(crate) fn next_on(&mut self, stream: u32) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.stream == stream && frame.kind != kind::WINDOW_UPDATE {
                return Some(frame);
            }
        }
    }
}

// === impl Frame ===

impl Frame {
    /// Whether the frame ends its stream.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & END_STREAM != 0
    }

    /// Why a stream was reset, or the connection ended.
    pub(crate) fn reason(&self) -> Reason {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap()).into()
    }

    /// Which settings it makes.
    pub(crate) fn setting(&self, name: u16) -> Option<u32> {
        let mut pairs = self.payload.chunks_exact(6);
        let pair = pairs.find(|pair| pair[..2] == name.to_be_bytes())?;
        Some(u32::from_be_bytes(pair[2..].try_into().unwrap()))
    }

    /// The status that an answer's head begins with, in the one or two spellings that `h2` has for it.
    pub(crate) fn status(&self) -> u16 {
        const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        let block = &self.payload;
        let after_sizes = block.iter().position(|byte| byte >> 5 != 1).unwrap_or_default();
        match block[after_sizes] {
            indexed @ 0x88..=0x8e => INDEXED[usize::from(indexed - 0x88)],
            other => panic!("a status that is none of HPACK's own: {other:#x} in {block:x?}"),
        }
    }
}

/// Fields as HPACK has them where nothing is compressed (RFC 7541 §6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend(text.bytes());
        }
    }
    block
}

/// A length in seven bits, or as many more as it takes (RFC 7541 §5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else { return block.push(length as u8) };
    block.push(127);
    while rest >= 128 {
        block.push(rest as u8 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}
