//! Two threads that wake each other by futexes, and do nothing else: the baseline of sleeping peers on one host. The server only holds the
//! connection, by which `xtask` knows that it runs.

use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::job::{Figures, Job, figures_from_times};
use crate::tcp::{accept, connect};

pub(crate) fn serve(job: &Job) -> Result<Figures> {
    accept(job)?.read_to_end(&mut Vec::new())?;
    Ok(Figures::default())
}

/// What one thread waits for: the number of the last turn.
#[derive(Default)]
struct Turn(AtomicU32);

/// No thread takes another turn.
const LAST: u32 = u32::MAX;

impl Turn {
    fn announce(&self, turn: u32) -> Result<()> {
        self.0.store(turn, Ordering::Release);
        futex::wake(&self.0, futex::Flags::PRIVATE, 1)?;
        Ok(())
    }

    /// Sleeps until the turn is another than `before`.
    fn wait(&self, before: u32) -> Result<u32> {
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now != before {
                return Ok(now);
            }
            match futex::wait(&self.0, futex::Flags::PRIVATE, before, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

pub(crate) fn call(job: &Job) -> Result<Figures> {
    let _connection = connect(job)?;
    let (there, back) = (Turn::default(), Turn::default());
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<()> {
            let mut turn = 0;
            while turn != LAST {
                turn = there.wait(turn)?;
                back.announce(turn)?;
            }
            Ok(())
        });
        let times = round_trips(job.span(), &there, &back);
        there.announce(LAST)?;
        echo.join()
            .map_err(|_| anyhow::anyhow!("the other thread panicked"))??;
        Ok(figures_from_times(times?, job.size))
    })
}

/// Halves of round trips, after a warm-up of a quarter of the time.
fn round_trips(span: Duration, there: &Turn, back: &Turn) -> Result<Vec<Duration>> {
    let (start, mut times) = (Instant::now(), Vec::new());
    for turn in 1..LAST {
        let sent = Instant::now();
        there.announce(turn)?;
        back.wait(turn - 1)?;
        let now = Instant::now();
        if now - start > span / 4 {
            times.push((now - sent) / 2);
        }
        if now - start > span + span / 4 {
            break;
        }
    }
    Ok(times)
}
