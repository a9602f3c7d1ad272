//! Decodes the content codings (RFC 9110 §8.4.1) gzip and deflate, up to a bound. The decoded body is only read: the
//! worker gets the bytes that the API sent.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderValue;

/// Longest body that is read. A longer one is data, not a complaint.
pub(super) const MAX_BODY_BYTES: usize = 16 * 1024;

/// Content coding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    Identity,
    Gzip,
    Deflate,
    /// Brotli, zstd, several codings, or an unknown one.
    Unreadable,
}

/// Decodes a body piece by piece, up to [`MAX_BODY_BYTES`] of content.
pub(super) struct Decoder {
    format: Format,
    /// Set if the coding is broken, or the content is longer than the bound.
    is_over: bool,
}

/// Decoder with the content that it has written.
enum Format {
    Plain(Content),
    Gzip(Box<MultiGzDecoder<Content>>),
    Zlib(Box<ZlibDecoder<Content>>),
    Deflate(Box<DeflateDecoder<Content>>),
    /// "deflate" before its first byte, which distinguishes zlib from bare deflate.
    EitherDeflate(Content),
}

/// Decoded bytes up to the bound.
#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    is_too_long: bool,
}

// === impl Coding ===

impl Coding {
    /// Coding of a body with one more `Content-Encoding` than the fields that make up this coding.
    pub(super) fn and(self, value: &HeaderValue) -> Self {
        let is = |name: &str| value.as_bytes().trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        match self {
            before if is("identity") || is("") => before,
            Self::Identity if is("gzip") || is("x-gzip") => Self::Gzip,
            Self::Identity if is("deflate") => Self::Deflate,
            _ => Self::Unreadable,
        }
    }

    pub(super) fn is_readable(self) -> bool {
        self != Self::Unreadable
    }

    /// Content of a `body`; `None` if the content is longer than the bound, or the coding is unknown. A broken body is
    /// read up to the break.
    pub(super) fn decode(self, body: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Identity => Some(body),
            Self::Unreadable => None,
            Self::Gzip | Self::Deflate => {
                let mut decoder = Decoder::new(self);
                decoder.push(&body);
                (!decoder.content().is_too_long).then(|| Cow::Owned(decoder.into_bytes()))
            }
        }
    }
}

// === impl Decoder ===

impl Decoder {
    pub(super) fn new(coding: Coding) -> Self {
        let content = Content::default();
        let format = match coding {
            Coding::Identity | Coding::Unreadable => Format::Plain(content),
            Coding::Gzip => Format::Gzip(Box::new(MultiGzDecoder::new(content))),
            Coding::Deflate => Format::EitherDeflate(content),
        };
        Self { format, is_over: !coding.is_readable() }
    }

    /// Decodes a further piece of the body, unless decoding is over.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let Some(first) = piece.first().filter(|_| !self.is_over) else { return };
        if let Format::EitherDeflate(content) = &mut self.format {
            // zlib has method 8 in the low bits (RFC 1950 §2.2). Bare deflate could have them only in a block of type 0
            // (RFC 1951 §3.2.3), whose padding encoders leave 0.
            let (is_zlib, content) = (first & 0x0f == 8, std::mem::take(content));
            self.format = match is_zlib {
                true => Format::Zlib(Box::new(ZlibDecoder::new(content))),
                false => Format::Deflate(Box::new(DeflateDecoder::new(content))),
            };
        }
        let writer: &mut dyn Write = match &mut self.format {
            Format::Plain(content) | Format::EitherDeflate(content) => content,
            Format::Gzip(decoder) => decoder,
            Format::Zlib(decoder) => decoder,
            Format::Deflate(decoder) => decoder,
        };
        // An encoder flushes after each event of a stream.
        self.is_over = writer.write_all(piece).and_then(|()| writer.flush()).is_err();
    }

    /// The content so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.content().bytes
    }

    /// Returns whether no more of the body can be read: its coding is broken, or its content longer than the bound.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn content(&self) -> &Content {
        match &self.format {
            Format::Plain(content) | Format::EitherDeflate(content) => content,
            Format::Gzip(decoder) => decoder.get_ref(),
            Format::Zlib(decoder) => decoder.get_ref(),
            Format::Deflate(decoder) => decoder.get_ref(),
        }
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        let content = match &mut self.format {
            Format::Plain(content) | Format::EitherDeflate(content) => content,
            Format::Gzip(decoder) => decoder.get_mut(),
            Format::Zlib(decoder) => decoder.get_mut(),
            Format::Deflate(decoder) => decoder.get_mut(),
        };
        std::mem::take(&mut content.bytes)
    }
}

// === impl Content ===

impl Write for Content {
    /// Fails beyond the bound: a few KiB may decode to many MiB.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_BODY_BYTES - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_too_long |= bytes.len() > room;
        if self.is_too_long { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(text: &[u8], level: Compression) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn coding(values: &[&'static str]) -> Coding {
        values.iter().fold(Coding::Identity, |coding, value| coding.and(&HeaderValue::from_static(value)))
    }

    #[test]
    fn codings_are_known_by_their_registered_names() {
        assert_eq!([coding(&["gzip"]), coding(&["X-GZip"]), coding(&[" GZIP"])], [Coding::Gzip; 3]);
        assert_eq!(coding(&["Deflate"]), Coding::Deflate);
        assert_eq!([coding(&[]), coding(&["identity"]), coding(&[""])], [Coding::Identity; 3]);
        assert_eq!(coding(&["identity", "gzip"]), Coding::Gzip);
        for several in [&["br"][..], &["zstd"], &["gzip, gzip"], &["gzip", "gzip"], &["deflate", "gzip"], &["compress"]]
        {
            assert_eq!(coding(several), Coding::Unreadable, "{several:?}");
        }
    }

    #[test]
    fn content_is_the_same_however_its_coding_is_cut() {
        let text = b"{\"error\":{\"code\":\"insufficient_quota\"}}".repeat(20);
        let two = [gzip(&text[..100]), gzip(&text[100..])].concat();
        for (coding, body) in [
            (Coding::Gzip, gzip(&text)),
            (Coding::Gzip, two),
            (Coding::Deflate, zlib(&text)),
            (Coding::Deflate, deflate(&text, Compression::default())),
            (Coding::Deflate, deflate(&text, Compression::none())),
            (Coding::Identity, text.clone()),
        ] {
            assert_eq!(coding.decode(Cow::Borrowed(&body)).as_deref(), Some(&text[..]), "{coding:?}");
            for piece in [1, 2, 7, body.len()] {
                let mut decoder = Decoder::new(coding);
                body.chunks(piece).for_each(|piece| decoder.push(piece));
                assert!(!decoder.is_over() && decoder.bytes() == text, "{coding:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_an_encoder_has_flushed_can_be_read() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"data: 1\n\n").unwrap();
        encoder.flush().unwrap();
        let mut decoder = Decoder::new(Coding::Gzip);
        decoder.push(encoder.get_ref());
        assert_eq!(decoder.bytes(), b"data: 1\n\n");
    }

    #[test]
    fn content_longer_than_the_bound_is_none_and_takes_no_more_memory() {
        let bomb = gzip(&vec![b' '; 64 * 1024 * 1024]);
        assert_eq!(Coding::Gzip.decode(Cow::Borrowed(&bomb)), None);
        let mut decoder = Decoder::new(Coding::Gzip);
        bomb.chunks(1000).for_each(|piece| decoder.push(piece));
        assert!(decoder.is_over() && decoder.into_bytes().capacity() <= 2 * MAX_BODY_BYTES);
        assert!(Coding::Gzip.decode(Cow::Borrowed(&gzip(&vec![b' '; MAX_BODY_BYTES]))).is_some(), "at the bound");
        assert_eq!(Coding::Gzip.decode(Cow::Borrowed(&gzip(&vec![b' '; MAX_BODY_BYTES + 1]))), None);
    }

    #[test]
    fn a_broken_coding_is_read_up_to_where_it_breaks() {
        let whole = gzip(b"slow down");
        for body in [&whole[..0], &whole[..whole.len() - 8], b"slow down", &[whole.as_slice(), b"\0\0"].concat()] {
            let content = Coding::Gzip.decode(Cow::Borrowed(body)).unwrap();
            assert!(b"slow down".starts_with(&content), "{content:?}");
        }
        assert_eq!(Coding::Unreadable.decode(Cow::Borrowed(b"x")), None);
    }
}
