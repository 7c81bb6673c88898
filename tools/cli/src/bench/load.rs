//! The requesting side of a measurement on the adapter: round trips one by one, or many outstanding messages. The loops are the same for
//! `verbena bench` and `cargo xtask peers`, whether they end by number or by time, and poll or sleep in events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use verbena::RemoteMemory;
use verbena::low::Wc;

use super::Error;
use super::case::Op;
use super::endpoint::{BenchEndpoint, POST_BATCH};
use super::meter::{Extent, Meter, Throughput, Timer};
use super::silence::Silence;

/// One message after the other on the connections in turn, each answered by the peer: the time of each, half a round trip for Send and Write,
/// a whole one otherwise.
pub fn round_trips(
    endpoint: &BenchEndpoint,
    remote: &RemoteMemory,
    extent: Extent,
) -> Result<Vec<Duration>, Error> {
    let op = endpoint.case.op;
    let ways = match op {
        Op::Send | Op::Write => 2,
        Op::Read | Op::Atomic => 1,
    };
    let (mut wcs, mut timer) = ([Wc::default(); 16], Timer::start(extent));
    for turn in 0.. {
        let at = turn % endpoint.qps.len();
        let start = Instant::now();
        if timer.is_over(turn, start) {
            break;
        }
        if op == Op::Write {
            endpoint.mark(turn)?;
        }
        endpoint.post(at, remote, 1)?;
        match op {
            Op::Write => endpoint.await_mark(turn, &mut wcs)?,
            _ => await_answer(endpoint, &mut wcs)?,
        }
        timer.record(turn, start, ways);
        match op {
            Op::Send => endpoint.post_receives(at, 1)?,
            Op::Write => endpoint.poll_batch(turn, &mut wcs)?,
            Op::Read | Op::Atomic => {}
        }
    }
    Ok(timer.into_times())
}

/// Waits for a message of the peer (Send), or for the completion of the request.
fn await_answer(endpoint: &BenchEndpoint, wcs: &mut [Wc]) -> Result<(), Error> {
    let is_send = endpoint.case.op == Op::Send;
    let mut silence = Silence::new(endpoint.limit);
    while !endpoint.take(wcs)?.any(|done| !is_send || !done.is_send) {
        endpoint.check_silence(&mut silence)?;
    }
    Ok(())
}

/// Many outstanding messages on the connections of one completion queue, shared by the threads that poll it: a thread that takes
/// completions of a connection posts the next messages to it.
#[derive(Debug)]
pub struct Streams {
    /// The measured time; without one, the case's number of messages.
    span: Option<Duration>,
    /// Requests posted by one call.
    batch: usize,
    /// One for each connection.
    lanes: Vec<Lane>,
    /// Completed messages of all.
    done: AtomicUsize,
    /// Messages at the end of the measurement; by time, known only then.
    total: AtomicUsize,
}

/// The messages of one connection.
#[derive(Debug, Default)]
struct Lane {
    /// Held while a thread posts.
    posting: Mutex<()>,
    /// Messages left to post, and messages posted; changed only by the thread that posts.
    left: AtomicUsize,
    posted: AtomicUsize,
    completed: AtomicUsize,
}

impl Lane {
    /// Messages to post now: in batches, as throughput-oriented programs post; a smaller one at the end.
    fn room(&self, depth: usize) -> usize {
        // Read first, so that it is not above the number of posted ones.
        let completed = self.completed.load(Ordering::Acquire);
        let under = self.posted.load(Ordering::Relaxed) - completed;
        let left = self.left.load(Ordering::Relaxed);
        let room = depth.saturating_sub(under).min(left);
        match room >= depth.div_ceil(4) || room == left {
            true => room,
            false => 0,
        }
    }
}

impl Streams {
    /// Measures the case's number of messages.
    pub fn by_count(endpoint: &BenchEndpoint) -> Streams {
        let share = |at| endpoint.case.share(at);
        let total = endpoint.case.count as usize;
        Streams::new(endpoint, None, POST_BATCH, share, total)
    }

    /// Measures for a time, in one thread, with this number of requests posted by one call.
    pub fn by_time(endpoint: &BenchEndpoint, span: Duration, batch: usize) -> Streams {
        let batch = batch.clamp(1, POST_BATCH);
        Streams::new(endpoint, Some(span), batch, |_| usize::MAX, usize::MAX)
    }

    fn new(
        endpoint: &BenchEndpoint,
        span: Option<Duration>,
        batch: usize,
        share: impl Fn(usize) -> usize,
        total: usize,
    ) -> Streams {
        let lane = |at| Lane {
            left: AtomicUsize::new(share(at)),
            ..Lane::default()
        };
        Streams {
            span,
            batch,
            lanes: (0..endpoint.qps.len()).map(lane).collect(),
            done: AtomicUsize::new(0),
            total: AtomicUsize::new(total),
        }
    }

    /// Thread `thread` of `threads`: begins every `threads`-th connection, and polls completions of all.
    pub fn run(
        &self,
        endpoint: &BenchEndpoint,
        remote: &RemoteMemory,
        thread: usize,
        threads: usize,
    ) -> Result<Throughput, Error> {
        let mut wcs = [Wc::default(); 64];
        for at in (thread..self.lanes.len()).step_by(threads) {
            self.post(endpoint, remote, at)?;
        }
        let (mut silence, mut seen) = (Silence::new(endpoint.limit), 0);
        let mut meter = Meter::start(self.span, endpoint.case.size);
        loop {
            let done = self.done.load(Ordering::Relaxed);
            if done >= self.total.load(Ordering::Relaxed) {
                break;
            }
            if done != seen {
                // Perhaps by another thread.
                seen = done;
                silence.end();
            }
            let mut some = 0;
            for one in endpoint.take(&mut wcs)? {
                self.lanes[one.qp_index]
                    .completed
                    .fetch_add(1, Ordering::Release);
                self.post(endpoint, remote, one.qp_index)?;
                some += 1;
            }
            if some == 0 {
                endpoint.check_silence(&mut silence)?;
                continue;
            }
            self.done.fetch_add(some, Ordering::Relaxed);
            if !meter.record(some as u64) {
                self.stop();
            }
        }
        Ok(meter.figures())
    }

    /// Posts what there is room for on a connection.
    fn post(
        &self,
        endpoint: &BenchEndpoint,
        remote: &RemoteMemory,
        at: usize,
    ) -> Result<(), Error> {
        let (lane, depth) = (&self.lanes[at], endpoint.case.depth as usize);
        if lane.room(depth) == 0 {
            return Ok(());
        }
        let posting = lane.posting.lock();
        // Another thread may have posted meanwhile.
        let room = lane.room(depth);
        // Counted first: another thread may poll the completions before this call returns.
        lane.posted.fetch_add(room, Ordering::Relaxed);
        lane.left.fetch_sub(room, Ordering::Relaxed);
        for from in (0..room).step_by(self.batch) {
            endpoint.post(at, remote, self.batch.min(room - from))?;
        }
        drop(posting);
        Ok(())
    }

    /// Ends a measurement by time.
    fn stop(&self) {
        let end = |lane: &Lane| {
            lane.left.store(0, Ordering::Relaxed);
            lane.posted.load(Ordering::Relaxed)
        };
        self.total
            .store(self.lanes.iter().map(end).sum(), Ordering::Relaxed);
    }
}
