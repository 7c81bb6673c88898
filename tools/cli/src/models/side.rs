//! One side of a measurement: sends and receives packets in turn. Every packet that arrived is checked. It polls and never sleeps, so that
//! wakeups are not part of the measured time.

use std::time::Duration;

use verbena::low::Counters;

use super::end::{End, PacketLocation};
use super::turns::Turns;
use super::{Error, TransferMode};

/// Empty polls before the thread yields, for machines with few processors: longer than any packet takes otherwise.
const SPIN_POLLS: u32 = 1000;

/// The results of one side.
#[derive(Debug, Default)]
pub(super) struct SideResults {
    /// The times of the packets that it received.
    pub(super) latencies: Vec<Duration>,
    /// What its adapter sent.
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// Runs all turns; those of this parity are sent.
pub(super) fn run_side(end: &mut End, parity: u64, stage: &Turns) -> Result<SideResults, Error> {
    end.begin()?;
    let mut played = SideResults {
        latencies: Vec::with_capacity(stage.total as usize / 2),
        ..SideResults::default()
    };
    let mut before = Sent::default();
    for turn in 0..stage.total {
        if turn == stage.warmup {
            before = Sent::of(end);
        }
        if turn % 2 == parity {
            send_packet(end, turn, stage)?;
        } else {
            let took = receive_packet(end, turn, stage)?;
            if turn >= stage.warmup {
                played.latencies.push(took);
            }
        }
    }
    stage.finish();
    // The other side may still need a response of our adapter.
    poll_until(end, stage, |_| stage.is_over())?;
    let after = Sent::of(end);
    played.messages = after.messages - before.messages;
    played.bytes = after.bytes - before.bytes;
    Ok(played)
}

/// What an adapter has sent so far.
#[derive(Default)]
struct Sent {
    messages: u64,
    bytes: u64,
}

impl Sent {
    fn of(end: &End) -> Sent {
        let both: [Counters; 2] = [&end.control, &end.data].map(|qp| qp.view().counters);
        let requests: u64 = both.iter().map(|c| c.messages_out).sum();
        Sent {
            // The counters are of requests; each completed read was also answered by a message (RFC 5040 §4.5).
            messages: requests + end.reads,
            bytes: both.iter().map(|c| c.bytes_out).sum(),
        }
    }
}

/// Polls until `is` returns true.
fn poll_until(end: &mut End, stage: &Turns, is: impl Fn(&mut End) -> bool) -> Result<(), Error> {
    let mut polls = 0_u32;
    while !is(end) {
        stage.check()?;
        end.poll()?;
        polls += 1;
        if polls.is_multiple_of(SPIN_POLLS) {
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn send_packet(end: &mut End, turn: u64, stage: &Turns) -> Result<(), Error> {
    poll_until(end, stage, |end| stage.is_turn(turn) && end.can_send())?;
    end.fill(turn)?;
    stage.set_ready(turn);
    match end.outward {
        TransferMode::Push => {
            while !end.push()? {
                stage.check()?;
                end.poll()?;
            }
            Ok(())
        }
        TransferMode::Pull => {
            poll_until(end, stage, |end| end.requested.is_some())?;
            end.answer()
        }
        TransferMode::Read => end.announce(),
    }
}

fn receive_packet(end: &mut End, turn: u64, stage: &Turns) -> Result<Duration, Error> {
    match end.inward {
        TransferMode::Push => {}
        TransferMode::Pull => {
            // The best case: no request is early or late.
            poll_until(end, stage, |_| stage.is_ready(turn))?;
            end.request()?;
        }
        TransferMode::Read => {
            poll_until(end, stage, |end| end.announced.is_some())?;
            end.read()?;
        }
    }
    poll_until(end, stage, |end| end.arrived.is_some())?;
    let took = stage.elapsed();
    let place = end.arrived.take().unwrap_or(PacketLocation::Sink);
    end.check_packet(place, turn)?;
    end.release(place)?;
    stage.advance(turn);
    Ok(took)
}
