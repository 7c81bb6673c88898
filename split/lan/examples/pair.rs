//! Two TAP interfaces joined with one read and one write per frame, without batching on purpose. Its throughput is an upper bound for
//! any driver with a TAP on each side and a system call per frame.
//!
//! `pair TAP TAP [offloads]` creates both; `ip link set TAP netns NAME` then moves them to the namespaces of the programs. It runs until
//! it is killed, and prints every second what it forwarded.

use std::error::Error;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_lan::{MAX_FRAME_LEN, Offloads, Queue, ReadOutcome, Tap};

const USAGE: &str = "pair TAP TAP [offloads]";
const SECOND: Duration = Duration::from_secs(1);
/// Frames forwarded in one direction before the other is served.
const TURN: usize = 64;

type RunResult<T> = Result<T, Box<dyn Error>>;

fn main() -> RunResult<()> {
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
    let mut room = vec![0; MAX_FRAME_LEN + 1];
    let (mut start, mut frames, mut bytes) = (Instant::now(), 0u64, 0u64);
    loop {
        let mut turn = 0;
        for (from, to) in [(a, b), (b, a)] {
            for _ in 0..TURN {
                let Some(len) = forward(from, to, &mut room)? else {
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

/// One read, one write; returns the frame's length, or nothing if none had arrived.
fn forward(from: &Queue, to: &Queue, room: &mut [u8]) -> RunResult<Option<usize>> {
    let (vnet, len) = match from.read_frame(room)? {
        ReadOutcome::Frame(vnet, len) => (vnet, len),
        ReadOutcome::WouldBlock | ReadOutcome::Lost => return Ok(None),
    };
    // A frame that the other side rejects (it is down, say) or has no room for is lost.
    to.write_frame(&vnet, &room[..len])?;
    Ok(Some(len))
}

fn wait(a: &Queue, b: &Queue) -> RunResult<()> {
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
