//! Two TAP interfaces joined by the least there can be: one read and one write per frame.
//! What passes between them is the most that any driver with a TAP on each side and a call per frame can have.
//! It batches nothing, on purpose.
//!
//! `pair TAP TAP [offloads]` creates both; `ip link set TAP netns NAME` then moves them where the programs are. It runs until
//! it is ended, and tells every second what passed.

use std::error::Error;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_lan::{LONGEST, Offloads, Queue, Tap, Took};

const USAGE: &str = "pair TAP TAP [offloads]";
const SECOND: Duration = Duration::from_secs(1);
/// Frames in one direction before the other has its turn.
const TURN: usize = 64;

type Answer<T> = Result<T, Box<dyn Error>>;

fn main() -> Answer<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (names, offloads) = match words[..] {
        [a, b] => ([a, b], Offloads::NONE),
        [a, b, "offloads"] => ([a, b], Offloads::ALL),
        _ => return Err(USAGE.into()),
    };
    let [a, b] = [Tap::create(names[0], 1)?, Tap::create(names[1], 1)?];
    for tap in [&a, &b] {
        tap.set_offloads(offloads)?;
        tap.interface().set_up(true)?;
        println!("{}", tap.interface().name()?);
    }
    let [Some(a), Some(b)] = [&a, &b].map(|tap| tap.queues().first()) else {
        return Err("a TAP without a queue".into());
    };
    let mut room = vec![0; LONGEST + 1];
    let (mut start, mut frames, mut bytes) = (Instant::now(), 0u64, 0u64);
    loop {
        let mut turn = 0;
        for (from, to) in [(a, b), (b, a)] {
            for _ in 0..TURN {
                let Some(len) = carry(from, to, &mut room)? else {
                    break;
                };
                (turn, frames, bytes) = (turn + 1, frames + 1, bytes + len as u64);
            }
        }
        if turn == 0 {
            wait(a, b)?;
        }
        if start.elapsed() >= SECOND {
            println!("{frames} frames, {bytes} bytes");
            (start, frames, bytes) = (Instant::now(), 0, 0);
        }
    }
}

/// One read, one write; the frame's length, or nothing if there was none.
fn carry(from: &Queue, to: &Queue, room: &mut [u8]) -> Answer<Option<usize>> {
    let (vnet, len) = match from.take(room)? {
        Took::Frame(vnet, len) => (vnet, len),
        Took::Nothing | Took::Lost => return Ok(None),
    };
    // One that the other side refuses (it is down, say) or has no room for is lost, as on any cable.
    to.put(&vnet, &room[..len])?;
    Ok(Some(len))
}

fn wait(a: &Queue, b: &Queue) -> Answer<()> {
    let (a, b) = (a.as_fd(), b.as_fd());
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let mut fds = [
        PollFd::new(&a, PollFlags::IN),
        PollFd::new(&b, PollFlags::IN),
    ];
    poll(&mut fds, Some(&second))?;
    Ok(())
}
