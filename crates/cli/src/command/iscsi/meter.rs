//! Progress of a pass on standard error: a line that is overwritten on a terminal, and one at the end. A requested stop is checked after
//! each piece.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use verbena_storage::Stop;
use verbena_storage::sweep::Progress;

use super::size::shown;

/// Interval between updates.
const REFRESH: Duration = Duration::from_millis(200);

/// The progress of one pass.
pub(super) struct Meter<'s> {
    /// The past participle of the operation, such as `read`.
    what: &'static str,
    stop: &'s Stop,
    quiet: bool,
    begun: Instant,
    shown: Option<Instant>,
}

impl<'s> Meter<'s> {
    pub(super) fn new(what: &'static str, stop: &'s Stop, quiet: bool) -> Meter<'s> {
        Meter {
            what,
            stop,
            quiet,
            begun: Instant::now(),
            shown: None,
        }
    }

    /// Called after each piece.
    pub(super) fn watch(&mut self, progress: Progress) -> ControlFlow<()> {
        let now = Instant::now();
        let due = now.duration_since(self.shown.unwrap_or(self.begun)) >= REFRESH;
        if due && !self.quiet && io::stderr().is_terminal() {
            self.shown = Some(now);
            let Progress { done, total } = progress;
            let percent = u128::from(done) * 100 / u128::from(total.max(1));
            let rate = self.rate(done);
            eprint!("\r{percent:3} % of {}, {rate:.0} MB/s\x1b[K", shown(total));
            // A failed flush is ignored: the line is only for display.
            let _ = io::stderr().flush();
        }
        match self.stop.pulled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// The pass has ended, with a result or an error.
    pub(super) fn end<E>(self, done: Result<u64, E>) -> Result<u64, E> {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
        let bytes = done?;
        if !self.quiet {
            let (what, rate) = (self.what, self.rate(bytes));
            let time = self.begun.elapsed().as_secs_f64();
            eprintln!("{bytes} bytes {what} in {time:.2} s, {rate:.1} MB/s");
        }
        Ok(bytes)
    }

    fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.begun.elapsed().as_secs_f64().max(1e-9)
    }
}
