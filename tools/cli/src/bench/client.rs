//! The measuring side. The clock starts when both sides are ready on every connection and stops when the last message has completed.
//! Latency messages use the connections in turn; throughput messages are divided evenly.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use verbena::low::Wc;
use verbena::{Device, RemoteMemory};

use super::Error;
use super::case::{Case, Metric, Op};
use super::endpoint::{BenchEndpoint, run_in_threads};
use super::report::Sample;

/// One measurement, and the address of the server's plain TCP listener.
pub(super) fn measure(
    device: &Device,
    server: SocketAddr,
    case: &Case,
) -> Result<(Sample, SocketAddr), Error> {
    let (mut sides, mut tcp, mut number) = (Vec::new(), server, 0_u32);
    for part in case.per_cq() {
        let station = BenchEndpoint::new(device, part)?;
        let half = station.len() as u64;
        let ours = station.memory.remote().slice(half, half)?;
        let mut reply = Vec::new();
        for (at, qp) in station.qps.iter().enumerate() {
            if case.op == Op::Send && case.metric == Metric::Latency {
                station.post_receives(at, 128)?;
            }
            let mut words = case.to_bytes().to_vec();
            words.extend(number.to_be_bytes());
            words.extend(ours.to_bytes());
            reply = qp.connect(server, &words)?.wait()?;
            number += 1;
        }
        let remote = RemoteMemory::from_bytes(&reply)?;
        let port = reply.get(RemoteMemory::BYTES..RemoteMemory::BYTES + 2);
        let port = port.map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
        tcp = SocketAddr::new(server.ip(), port);
        sides.push((station, remote));
    }
    let streams: Vec<Streams> = sides.iter().map(|(s, _)| Streams::new(s)).collect();
    let alone = case.threads == 1;
    let start = Instant::now();
    let mut samples = run_in_threads(case.threads as usize, |thread| {
        let at = if case.one_cq { 0 } else { thread };
        let (station, remote) = &sides[at];
        match (case.metric, case.op) {
            (Metric::Latency, Op::Send) => ping_pong_send(station, remote),
            (Metric::Latency, Op::Write) => ping_pong_write(station, remote),
            (Metric::Latency, _) => round_trips(station, remote),
            _ if case.one_cq => streams[at].run(station, remote, thread, case.threads as usize),
            _ => streams[at].run(station, remote, 0, 1),
        }
    })?;
    let whole = start.elapsed();
    let sample = match samples.pop() {
        Some(only) if alone => only,
        last => Sample::merge(samples.into_iter().chain(last).collect(), whole),
    };
    Ok((sample, tcp))
}

/// The first tenth is a warm-up and does not count.
fn warmup_count(count: u32) -> usize {
    count as usize / 10
}

fn ping_pong_send(station: &BenchEndpoint, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [Wc::default(); 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warmup_count(station.case.count) {
        let at = turn % station.qps.len();
        let start = Instant::now();
        station.post(at, remote, 1)?;
        while !station.poll(&mut wcs)?.any(|done| !done.is_send) {}
        if turn >= warmup_count(station.case.count) {
            times.push(start.elapsed() / 2);
        }
        station.post_receives(at, 1)?;
    }
    Ok(Sample::Times(times))
}

/// Both sides watch the last byte of their memory.
fn ping_pong_write(station: &BenchEndpoint, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [Wc::default(); 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warmup_count(station.case.count) {
        let start = Instant::now();
        station.mark(turn)?;
        station.post(turn % station.qps.len(), remote, 1)?;
        station.await_mark(turn, &mut wcs)?;
        if turn >= warmup_count(station.case.count) {
            times.push(start.elapsed() / 2);
        }
        station.poll_batch(turn, &mut wcs)?;
    }
    Ok(Sample::Times(times))
}

fn round_trips(station: &BenchEndpoint, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [Wc::default(); 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warmup_count(station.case.count) {
        let start = Instant::now();
        station.post(turn % station.qps.len(), remote, 1)?;
        while station.poll(&mut wcs)?.count() == 0 {}
        if turn >= warmup_count(station.case.count) {
            times.push(start.elapsed());
        }
    }
    Ok(Sample::Times(times))
}

/// Counts messages of the connections that complete in one queue, for several threads.
struct Streams {
    /// Completed messages of each connection.
    completed: Vec<AtomicUsize>,
    /// Completed messages of all.
    done: AtomicUsize,
}

impl Streams {
    fn new(station: &BenchEndpoint) -> Streams {
        Streams {
            completed: station.qps.iter().map(|_| AtomicUsize::new(0)).collect(),
            done: AtomicUsize::new(0),
        }
    }

    /// Thread `thread` of `threads`: posts to every `threads`-th connection, and polls completions of all.
    fn run(
        &self,
        station: &BenchEndpoint,
        remote: &RemoteMemory,
        thread: usize,
        threads: usize,
    ) -> Result<Sample, Error> {
        let (count, depth) = (station.case.count as usize, station.case.depth as usize);
        let mut wcs = [Wc::default(); 64];
        let ours = (thread..station.qps.len()).step_by(threads);
        // The connection, messages left to post, and messages posted.
        let mut lanes: Vec<_> = ours.map(|at| (at, station.case.share(at), 0)).collect();
        let mut taken = 0;
        let start = Instant::now();
        while self.done.load(Ordering::Relaxed) < count {
            for (at, left, posted) in &mut lanes {
                let under = *posted - self.completed[*at].load(Ordering::Relaxed);
                let room = (depth - under).min(*left);
                // In batches, as throughput-oriented programs post; a smaller one at the end.
                if room >= depth.div_ceil(4) || (room > 0 && *left == room) {
                    // Counted first: another thread may poll the completions before this call returns.
                    *posted += room;
                    *left -= room;
                    station.post(*at, remote, room)?;
                }
            }
            let mut some = 0;
            for one in station.poll(&mut wcs)? {
                self.completed[one.qp_index].fetch_add(1, Ordering::Relaxed);
                some += 1;
            }
            if some > 0 {
                self.done.fetch_add(some, Ordering::Relaxed);
                taken += some as u64;
            }
        }
        let took = start.elapsed().max(Duration::from_nanos(1));
        Ok(Sample::Throughput {
            messages: taken,
            bytes: taken * u64::from(station.case.size),
            elapsed: took,
        })
    }
}
