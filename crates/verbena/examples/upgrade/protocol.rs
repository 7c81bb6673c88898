//! The messages between client and server, 64 bytes each, and the layout of the server's memory.
//! Client and server both use this file. All words are little-endian.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::low::{Arm, Cq, Wc};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A message, and a slot of the table.
pub(crate) const CELL: usize = 64;
/// Slots of the table.
pub(crate) const SLOTS: u64 = 1024;
/// Offset of the words that clients add to, one for each.
pub(crate) const WORDS: usize = SLOTS as usize * CELL;
/// Clients at once.
pub(crate) const CLIENTS: u64 = 32;
/// Keys per client: the first is its index times this.
pub(crate) const KEYS: u64 = 2;
/// Receives that the server keeps posted for each client; a client with fewer outstanding requests never waits for one.
pub(crate) const DEPTH: u64 = 16;

/// Kinds of requests.
pub(crate) const PUT: u64 = 1;
pub(crate) const GET: u64 = 2;
pub(crate) const ADD: u64 = 3;

/// Eight little-endian words.
pub(crate) type Cell = [u64; 8];

pub(crate) fn to_bytes(cell: &Cell) -> [u8; CELL] {
    let mut bytes = [0; CELL];
    for (word, place) in cell.iter().zip(bytes.chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

pub(crate) fn from_bytes(bytes: &[u8; CELL]) -> Cell {
    let mut cell = [0; 8];
    for (word, place) in cell.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = place
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    }
    cell
}

/// A slot of the table: the last words depend on the others, so that a torn read is detected.
pub(crate) fn slot(key: u64, version: u64, value: u64) -> Cell {
    let echo = |n: u64| value.rotate_left(n as u32 * 8) ^ version.wrapping_mul(n);
    [
        key,
        version,
        value,
        echo(1),
        echo(2),
        echo(3),
        echo(4),
        echo(5),
    ]
}

/// Polls completions, and sleeps at most `patience` if there are none.
pub(crate) fn poll_or_sleep(cq: &Cq, out: &mut [Wc], patience: Duration) -> Result<usize> {
    // Polls for a short while first: under load the next completion is near.
    for _ in 0..200 {
        let n = cq.poll(out);
        if n > 0 {
            return Ok(n);
        }
        std::hint::spin_loop();
    }
    cq.arm(Arm::Next);
    let n = cq.poll(out);
    if n > 0 || patience.is_zero() {
        return Ok(n);
    }
    let patience = Timespec::try_from(patience)?;
    match poll(&mut [PollFd::new(cq, PollFlags::IN)], Some(&patience)) {
        Ok(0) => return Ok(0),
        Ok(_) => cq.take_notification()?,
        Err(errno) if errno == rustix::io::Errno::INTR => return Ok(0),
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    Ok(cq.poll(out))
}
