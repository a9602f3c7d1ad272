//! Typed keys, in the encoding of terminals of the kind of xterm.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopKey {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    Letter(char),
}

/// The keys in `bytes`, which arrived together: an escape without a following byte is the Escape key.
pub(super) fn read(bytes: &[u8]) -> Vec<TopKey> {
    let (mut keys, mut rest) = (Vec::new(), bytes);
    while let [first, after @ ..] = rest {
        rest = after;
        keys.extend(match first {
            0x1b => match sequence(after) {
                Some((key, length)) => {
                    rest = &after[length..];
                    key
                }
                None => Some(TopKey::Escape),
            },
            0x03 => Some(TopKey::Interrupt),
            b'\r' | b'\n' => Some(TopKey::Enter),
            0x08 | 0x7f => Some(TopKey::Backspace),
            b' '..=b'~' => Some(TopKey::Letter(char::from(*first))),
            _ => None,
        });
    }
    keys
}

/// A control sequence without its escape: the key, if the table uses it, and the length (ECMA-48
/// §5.4).
fn sequence(after: &[u8]) -> Option<(Option<TopKey>, usize)> {
    let (b'[' | b'O', body) = after.split_first()? else { return None };
    let end = body.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
    let key = match &body[..=end] {
        b"A" => Some(TopKey::Up),
        b"B" => Some(TopKey::Down),
        b"5~" => Some(TopKey::PageUp),
        b"6~" => Some(TopKey::PageDown),
        _ => None,
    };
    Some((key, end + 2))
}

#[cfg(test)]
mod tests {
    use super::{TopKey::*, *};

    #[test]
    fn keys_are_told_from_each_other() {
        assert_eq!(read(b"\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~"), [Up, Down, Up, PageUp, PageDown]);
        assert_eq!(
            read(b"/a b\r\x7f\x03"),
            [Letter('/'), Letter('a'), Letter(' '), Letter('b'), Enter, Backspace, Interrupt]
        );
        assert_eq!(read(b"\x1b"), [Escape]);
        // Unused keys, a truncated one, and letters beyond ASCII.
        assert_eq!(read(b"\x1b[1;5Cq"), [Letter('q')]);
        assert_eq!(read(b"\x1b[5"), [Escape, Letter('['), Letter('5')]);
        assert_eq!(read("ü\x01".as_bytes()), []);
    }
}
