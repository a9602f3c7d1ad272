//! Frames of a body that were read before their consumer asked for them.

use std::collections::VecDeque;

use bytes::Bytes;
use http_body::Frame;

/// Frames in the order in which they came. The first frame needs no allocation: usually there is no other.
#[derive(Default)]
pub(crate) struct FramesAhead {
    first: Option<Frame<Bytes>>,
    more: VecDeque<Frame<Bytes>>,
    /// Number of content bytes in the frames.
    length: u64,
}

// === impl FramesAhead ===

impl FramesAhead {
    pub(crate) fn push(&mut self, frame: Frame<Bytes>) {
        self.length += length(&frame);
        if self.is_empty() {
            self.first = Some(frame);
        } else {
            self.more.push_back(frame);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.first.take().or_else(|| self.more.pop_front());
        self.length -= frame.as_ref().map_or(0, length);
        frame
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Frame<Bytes>> {
        self.first.iter().chain(&self.more)
    }

    /// The content, piece by piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.iter().filter_map(Frame::data_ref)
    }

    /// The content, if it is in one piece.
    pub(crate) fn only_piece(&self) -> Option<&Bytes> {
        self.first.as_ref().filter(|_| self.more.is_empty())?.data_ref()
    }

    /// Number of content bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |piece| piece.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_in_the_order_in_which_they_came() {
        let mut frames = FramesAhead::default();
        let data = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        let mut taken = Vec::new();
        let mut take = |frames: &mut FramesAhead| taken.extend(frames.pop().and_then(|frame| frame.into_data().ok()));
        for text in ["a", "bc"] {
            frames.push(data(text));
        }
        take(&mut frames);
        frames.push(data("def"));
        assert_eq!((frames.length(), frames.is_empty()), (5, false));
        (0..3).for_each(|_| take(&mut frames));
        assert_eq!(taken, ["a", "bc", "def"]);
        assert_eq!((frames.length(), frames.is_empty()), (0, true));
    }
}
