//! Progress of a pass on standard error: a line that is overwritten on a terminal, and one at the end. A requested stop is checked after
//! each piece.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use verbena_storage::Stop;
use verbena_storage::sweep::Progress;

use super::size::format_bytes;

/// Interval between updates.
const REFRESH: Duration = Duration::from_millis(200);

/// The progress of one pass.
pub(super) struct Meter<'s> {
    /// The past participle of the operation, such as `read`.
    what: &'static str,
    stop: &'s Stop,
    quiet: bool,
    started: Instant,
    last_shown: Option<Instant>,
}

impl<'s> Meter<'s> {
    pub(super) fn new(what: &'static str, stop: &'s Stop, quiet: bool) -> Meter<'s> {
        Meter {
            what,
            stop,
            quiet,
            started: Instant::now(),
            last_shown: None,
        }
    }

    /// Called after each piece.
    pub(super) fn update(&mut self, progress: Progress) -> ControlFlow<()> {
        let now = Instant::now();
        let due = now.duration_since(self.last_shown.unwrap_or(self.started)) >= REFRESH;
        if due && !self.quiet && io::stderr().is_terminal() {
            self.last_shown = Some(now);
            let Progress { done, total } = progress;
            let percent = u128::from(done) * 100 / u128::from(total.max(1));
            let rate = self.rate(done);
            eprint!(
                "\r{percent:3} % of {}, {rate:.0} MB/s\x1b[K",
                format_bytes(total)
            );
            // A failed flush is ignored: the line is only for display.
            let _ = io::stderr().flush();
        }
        match self.stop.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// The pass has ended, with a result or an error.
    pub(super) fn finish<E>(self, done: Result<u64, E>) -> Result<u64, E> {
        if self.last_shown.is_some() {
            eprint!("\r\x1b[K");
        }
        let bytes = done?;
        if !self.quiet {
            let (what, rate) = (self.what, self.rate(bytes));
            let time = self.started.elapsed().as_secs_f64();
            eprintln!("{bytes} bytes {what} in {time:.2} s, {rate:.1} MB/s");
        }
        Ok(bytes)
    }

    fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.started.elapsed().as_secs_f64().max(1e-9)
    }
}
