//! The requesting side of a measurement on the adapter: round trips one by one, or many outstanding messages. The loops are the same for
//! `verbena bench` and `cargo xtask peers`, whether they end by number or by time, and poll or sleep in events.

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

/// Counters of many outstanding messages on the connections of one completion queue, shared by the threads that poll it.
#[derive(Debug)]
pub struct Streams {
    /// The measured time; without one, the case's number of messages.
    span: Option<Duration>,
    /// Requests posted by one call.
    batch: usize,
    /// Completed messages of each connection.
    completed: Vec<AtomicUsize>,
    /// Completed messages of all.
    done: AtomicUsize,
    /// Messages at the end of the measurement; by time, known only then.
    total: AtomicUsize,
}

impl Streams {
    /// Measures the case's number of messages.
    pub fn by_count(endpoint: &BenchEndpoint) -> Streams {
        Streams {
            span: None,
            batch: POST_BATCH,
            completed: endpoint.qps.iter().map(|_| AtomicUsize::new(0)).collect(),
            done: AtomicUsize::new(0),
            total: AtomicUsize::new(endpoint.case.count as usize),
        }
    }

    /// Measures for a time, in one thread, with this number of requests posted by one call.
    pub fn by_time(endpoint: &BenchEndpoint, span: Duration, batch: usize) -> Streams {
        Streams {
            span: Some(span),
            batch: batch.clamp(1, POST_BATCH),
            total: AtomicUsize::new(usize::MAX),
            ..Streams::by_count(endpoint)
        }
    }

    /// Thread `thread` of `threads`: posts to every `threads`-th connection, and polls completions of all.
    pub fn run(
        &self,
        endpoint: &BenchEndpoint,
        remote: &RemoteMemory,
        thread: usize,
        threads: usize,
    ) -> Result<Throughput, Error> {
        let depth = endpoint.case.depth as usize;
        let mut wcs = [Wc::default(); 64];
        let ours = (thread..endpoint.qps.len()).step_by(threads);
        let share = |at| match self.span {
            Some(_) => usize::MAX,
            None => endpoint.case.share(at),
        };
        // The connection, messages left to post, and messages posted.
        let mut lanes: Vec<_> = ours.map(|at| (at, share(at), 0)).collect();
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
            for (at, left, posted) in &mut lanes {
                let under = *posted - self.completed[*at].load(Ordering::Relaxed);
                let room = (depth - under).min(*left);
                // In batches, as throughput-oriented programs post; a smaller one at the end.
                if room >= depth.div_ceil(4) || (room > 0 && *left == room) {
                    // Counted first: another thread may poll the completions before this call returns.
                    *posted += room;
                    *left -= room;
                    for from in (0..room).step_by(self.batch) {
                        endpoint.post(*at, remote, self.batch.min(room - from))?;
                    }
                }
            }
            let mut some = 0;
            for one in endpoint.take(&mut wcs)? {
                self.completed[one.qp_index].fetch_add(1, Ordering::Relaxed);
                some += 1;
            }
            if some == 0 {
                endpoint.check_silence(&mut silence)?;
                continue;
            }
            self.done.fetch_add(some, Ordering::Relaxed);
            if !meter.record(some as u64) {
                lanes.iter_mut().for_each(|(_, left, _)| *left = 0);
                let posted = lanes.iter().map(|(_, _, posted)| posted).sum();
                self.total.store(posted, Ordering::Relaxed);
            }
        }
        Ok(meter.figures())
    }
}
