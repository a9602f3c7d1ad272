//! Prepares the terminal for a live table, and restores it in every case.

use std::{
    io::{self, Read as _, Write as _, stdin, stdout},
    thread,
};

use rustix::termios::{self, OptionalActions, Termios};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    keys::{self, TopKey},
    view::TopView,
};
use crate::cli::Failure;

/// The terminal while andante uses it. Dropping the screen restores the terminal.
pub(super) struct TopScreen {
    before: Termios,
    keys: UnboundedReceiver<Vec<TopKey>>,
    /// Keys that arrived together with the last one.
    typed: std::vec::IntoIter<TopKey>,
}

/// Switches to the alternate screen without a cursor, and back.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";
/// Size to assume if it is unknown.
const USUAL: (usize, usize) = (24, 80);

// === impl TopScreen ===

impl TopScreen {
    /// Takes the terminal over.
    pub(super) fn open() -> Result<Self, Failure> {
        if !termios::isatty(stdin()) || !termios::isatty(stdout()) {
            let hint = "`andante top --once` prints the table, --json the data";
            return Err(Failure::new("cannot show a live table: this is no terminal").hinting(hint));
        }
        let failed = |error: io::Error| Failure::new("could not set the terminal up").because(error);
        let before = termios::tcgetattr(stdin()).map_err(|error| failed(error.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|error| failed(error.into()))?;
        let (sender, keys) = unbounded_channel();
        let screen = Self { before, keys, typed: Vec::new().into_iter() };
        // The thread is never joined: it blocks in a read that may never end.
        let reader = thread::Builder::new().name("andante-keys".into()).spawn(move || {
            let mut bytes = [0; 256];
            while let Ok(length @ 1..) = stdin().lock().read(&mut bytes) {
                if sender.send(keys::read(&bytes[..length])).is_err() {
                    return;
                }
            }
        });
        reader.map_err(failed)?;
        stdout().write_all(BEGIN.as_bytes()).map_err(failed)?;
        Ok(screen)
    }

    /// The next key; `None` if the terminal is gone. Loses none when dropped and called again.
    pub(super) async fn key(&mut self) -> Option<TopKey> {
        loop {
            match self.typed.next() {
                Some(key) => return Some(key),
                None => self.typed = self.keys.recv().await?.into_iter(),
            }
        }
    }

    /// Draws `view` in the terminal's present size.
    pub(super) fn draw(&mut self, view: &TopView) -> io::Result<()> {
        let size = termios::tcgetwinsize(stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        let (rows, columns) = size.map_or(USUAL, |size| (size.ws_row.into(), size.ws_col.into()));
        let mut frame = String::from("\x1b[H");
        for (at, line) in view.lines(rows).iter().take(rows).enumerate() {
            let text: String = line.text.chars().take(columns).collect();
            let newline = if at > 0 { "\r\n" } else { "" };
            let (on, off) = if line.marked { ("\x1b[7m", "\x1b[0m") } else { ("", "") };
            frame += &format!("{newline}{on}{text}{off}\x1b[K");
        }
        frame += "\x1b[J";
        let mut terminal = stdout().lock();
        terminal.write_all(frame.as_bytes())?;
        terminal.flush()
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _ = stdout().write_all(END.as_bytes()).and_then(|()| stdout().flush());
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
