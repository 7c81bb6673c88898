//! The terminal of `verbena top`: lines drawn by a few ANSI sequences, and keys without Enter.
//! What was there before comes back when the screen is dropped, after an error and a termination signal too. A library for this would take
//! longer to compile than the rest of the command.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The alternate screen without a cursor, and back.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";
/// Used if the terminal does not tell its size.
const USUAL_SIZE: (usize, usize) = (80, 24);
/// How often it is checked whether a signal has asked for the end.
const CHECK: Duration = Duration::from_millis(250);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// A character.
    Char(char),
    Enter,
    Backspace,
    /// Ctrl-C, the end of input, or a signal.
    Quit,
    /// Any other key.
    Other,
}

/// The terminal, as long as it is used.
pub(super) struct Screen {
    before: Termios,
    ended: Arc<AtomicBool>,
    /// Keys that were read and not returned.
    keys: VecDeque<Key>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        ctrlc::set_handler(move || told.store(true, Ordering::Relaxed))
            .map_err(io::Error::other)?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let screen = Screen {
            before,
            ended,
            keys: VecDeque::new(),
        };
        put(BEGIN)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => USUAL_SIZE,
        }
    }

    /// Shows a status line and the table.
    pub(super) fn draw(&mut self, status: &str, lines: &[String]) -> io::Result<()> {
        let (width, _) = self.size();
        let status: String = status.chars().take(width).collect();
        // Each line is cleared behind its text, then what is below: nothing flickers.
        let mut text = format!("\x1b[H{status}\x1b[K");
        for line in lines {
            text += "\r\n";
            text += line;
            text += "\x1b[K";
        }
        put(&(text + "\x1b[J"))
    }

    /// The next key within the time that is left, from which it is subtracted; `None` if there is none.
    pub(super) fn key(&mut self, left: &mut Duration) -> io::Result<Option<Key>> {
        let deadline = Instant::now() + *left;
        loop {
            if let Some(key) = self.keys.pop_front() {
                return Ok(Some(key));
            }
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Some(Key::Quit));
            }
            *left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = Timespec::try_from((*left).min(CHECK)).map_err(io::Error::other)?;
            let stdin = io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut fds, Some(&wait)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let mut bytes = [0; 64];
                    let count = rustix::io::read(&stdin, &mut bytes)?;
                    self.keys.extend(keys_of(&bytes[..count]));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = put(END);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The keys in what a read returned. An escape sequence is one key.
fn keys_of(bytes: &[u8]) -> Vec<Key> {
    if bytes.is_empty() {
        return vec![Key::Quit];
    }
    if bytes[0] == 0x1b {
        return vec![Key::Other];
    }
    let key = |c| match c {
        // Ctrl-C and Ctrl-D.
        '\u{3}' | '\u{4}' => Key::Quit,
        '\r' | '\n' => Key::Enter,
        '\u{8}' | '\u{7f}' => Key::Backspace,
        c if c.is_control() => Key::Other,
        c => Key::Char(c),
    };
    String::from_utf8_lossy(bytes).chars().map(key).collect()
}
