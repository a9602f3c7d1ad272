//! A line that stays at the bottom of the terminal while other output scrolls above it.
//!
//! The command writes to the same terminal whenever it likes, so a line under its cursor would end up in the middle of
//! its output. Instead the last row is excluded from the scrolling part of the screen (DECSTBM). The cursor always
//! returns to the place where the command left it. A thread of its own draws: a terminal that was stopped with Ctrl-S
//! must not stop the proxy.

use std::{
    io::{Write, stderr},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use rustix::termios;

use super::signals;

/// The line, and the thread that draws it.
pub(in crate::cli) struct Footer {
    lines: SyncSender<String>,
    thread: JoinHandle<()>,
}

/// The terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    rows: u16,
    columns: u16,
}

/// Fewest rows of a terminal that gets a footer.
const FEWEST_ROWS: u16 = 5;

// === impl Footer ===

impl Footer {
    /// `None` unless standard error is a terminal that supports this.
    pub(in crate::cli) fn open() -> Option<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if dumb || !termios::isatty(stderr()) {
            return None;
        }
        // At most one line waits; the next one is skipped while the terminal is busy.
        let (lines, received) = sync_channel(1);
        let thread = std::thread::Builder::new().name("andante-footer".into()).spawn(move || draw_all(&received));
        Some(Self { lines, thread: thread.ok()? })
    }

    /// Replaces the line.
    pub(in crate::cli) fn show(&self, line: String) {
        let _ = self.lines.try_send(line);
    }

    /// Ends the thread, which frees the row.
    pub(in crate::cli) fn close(self) {
        drop(self.lines);
        let _ = self.thread.join();
    }
}

/// Draws each line until there are no more. Write errors are ignored, because the line is only progress.
fn draw_all(lines: &Receiver<String>) {
    let mut taken: Option<Size> = None;
    for line in lines {
        // In the background the terminal belongs to another process, and so does its last row.
        if !signals::in_foreground() {
            continue;
        }
        let size = Size::now();
        let mut text = String::new();
        if taken != size {
            text.extend(taken.map(release));
            text.extend(size.map(take));
            taken = size;
        }
        text.extend(size.map(|size| draw(size, &line)));
        let _ = stderr().write_all(text.as_bytes());
    }
    if let Some(size) = taken {
        let _ = stderr().write_all(release(size).as_bytes());
    }
}

impl Size {
    /// `None` if there is too little room.
    fn now() -> Option<Self> {
        let size = termios::tcgetwinsize(stderr()).ok()?;
        (size.ws_row >= FEWEST_ROWS && size.ws_col > 1).then_some(Self { rows: size.ws_row, columns: size.ws_col })
    }
}

/// Excludes the last row from scrolling: first moves one down and up again, so that the cursor is not on it.
fn take(size: Size) -> String {
    format!("\x1bD\x1bM\x1b7\x1b[1;{}r\x1b8", size.rows - 1)
}

/// Writes `line`, cut to the row, to the last row.
fn draw(size: Size, line: &str) -> String {
    // The terminal would wrap after its last column, so that column stays empty.
    let line: String = line.chars().filter(|c| !c.is_control()).take(usize::from(size.columns) - 1).collect();
    format!("\x1b7\x1b[0m\x1b[{};1H\x1b[2K{line}\x1b8", size.rows)
}

/// Lets all rows scroll again, without the line.
fn release(size: Size) -> String {
    format!("\x1b7\x1b[0m\x1b[r\x1b[{};1H\x1b[2K\x1b8", size.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { rows: 24, columns: 10 };

    #[test]
    fn a_line_never_wraps_and_never_carries_escapes() {
        assert_eq!(draw(SIZE, "0123456789ab"), "\x1b7\x1b[0m\x1b[24;1H\x1b[2K012345678\x1b8");
        assert_eq!(draw(SIZE, "a\x1b[31m\r\nb"), "\x1b7\x1b[0m\x1b[24;1H\x1b[2Ka[31mb\x1b8");
    }

    #[test]
    fn the_cursor_is_always_put_back() {
        for text in [take(SIZE), draw(SIZE, "x"), release(SIZE)] {
            assert_eq!(text.matches("\x1b7").count(), 1, "{text:?}");
            assert!(text.ends_with("\x1b8"), "{text:?}");
        }
        assert!(take(SIZE).contains("\x1b[1;23r"));
        assert!(release(SIZE).contains("\x1b[r"));
    }
}
