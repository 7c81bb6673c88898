//! Waiting for a completion queue as sessions do: polling for a moment, then asleep.
//! It promises to come back when something may have completed, when one of the caller's descriptors is readable, or in time.
//! It refuses to take completions.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena::Cq;
use verbena::low::{Arm, Beside};

use crate::error::Error;

/// How long a sleeper polls before it sleeps: about what waking it would take.
const SPIN: Duration = Duration::from_micros(50);
/// Who waits for more than so many requests waits for the target, not for a wake-up: polling would take the processor that it needs.
const FEW: usize = 4;

/// Waits for completions of so many requests.
pub(super) fn doze(
    cq: &Cq,
    requests: usize,
    beside: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<(), Error> {
    let end = Instant::now() + SPIN.min(timeout);
    while requests <= FEW && Instant::now() < end {
        if cq.peek() {
            return Ok(());
        }
        core::hint::spin_loop();
    }
    cq.arm(Arm::Next);
    if cq.peek() {
        return Ok(());
    }
    let mut others: Vec<Beside<'_>> = beside.iter().map(|fd| Beside::read(*fd)).collect();
    cq.sleep(&mut others, Some(timeout))?;
    Ok(())
}
