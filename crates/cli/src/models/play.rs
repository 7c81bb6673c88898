//! One side of a measurement: sends and receives packets in turn. Every packet that arrived is checked. It polls and never sleeps, so that
//! wakeups are not part of the measured time.

use std::time::Duration;

use verbena::low::Counters;

use super::end::{End, Place};
use super::stage::Stage;
use super::{Error, Way};

/// Empty polls before the thread yields, for machines with few processors: longer than any packet takes otherwise.
const PATIENCE: u32 = 1000;

/// The results of one side.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// The times of the packets that it received.
    pub(super) took: Vec<Duration>,
    /// What its adapter sent.
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// Runs all turns; those of this parity are sent.
pub(super) fn play(end: &mut End, parity: u64, stage: &Stage) -> Result<Played, Error> {
    end.begin()?;
    let mut played = Played {
        took: Vec::with_capacity(stage.all as usize / 2),
        ..Played::default()
    };
    let mut before = Sent::default();
    for turn in 0..stage.all {
        if turn == stage.warm {
            before = Sent::of(end);
        }
        if turn % 2 == parity {
            give(end, turn, stage)?;
        } else {
            let took = take(end, turn, stage)?;
            if turn >= stage.warm {
                played.took.push(took);
            }
        }
    }
    stage.end();
    // The other side may still need a response of our adapter.
    until(end, stage, |_| stage.is_over())?;
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
fn until(end: &mut End, stage: &Stage, is: impl Fn(&mut End) -> bool) -> Result<(), Error> {
    let mut polls = 0_u32;
    while !is(end) {
        stage.check()?;
        end.poll()?;
        polls += 1;
        if polls.is_multiple_of(PATIENCE) {
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn give(end: &mut End, turn: u64, stage: &Stage) -> Result<(), Error> {
    until(end, stage, |end| stage.is_turn(turn) && end.may_give())?;
    end.fill(turn)?;
    stage.begin(turn);
    match end.outward {
        Way::Push => {
            while !end.push()? {
                stage.check()?;
                end.poll()?;
            }
            Ok(())
        }
        Way::Pull => {
            until(end, stage, |end| end.asked.is_some())?;
            end.answer()
        }
        Way::Read => end.announce(),
    }
}

fn take(end: &mut End, turn: u64, stage: &Stage) -> Result<Duration, Error> {
    match end.inward {
        Way::Push => {}
        Way::Pull => {
            // The best case: no request is early or late.
            until(end, stage, |_| stage.is_there(turn))?;
            end.ask()?;
        }
        Way::Read => {
            until(end, stage, |end| end.announced.is_some())?;
            end.read()?;
        }
    }
    until(end, stage, |end| end.arrived.is_some())?;
    let took = stage.took();
    let place = end.arrived.take().unwrap_or(Place::Sink);
    end.look(place, turn)?;
    end.done(place)?;
    stage.pass(turn);
    Ok(took)
}
