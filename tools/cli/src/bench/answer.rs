//! The answering side of a measurement on the adapter: consumes messages, and answers each in a ping-pong. It ends when the peer
//! disconnects or has sent its messages, and fails if the peer is silent for longer than the endpoint's limit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use verbena::RemoteMemory;
use verbena::low::Wc;

use super::Error;
use super::case::Metric;
use super::endpoint::BenchEndpoint;
use super::silence::Silence;

/// The turn whose mark identifies the last message of a peer that asks for the end by one.
pub const LAST_TURN: usize = 1;

/// Receives messages until the peer disconnects or `most` were received, and answers each if latency is measured. All threads that poll the
/// same completion queue count in `taken`.
pub fn receive(
    endpoint: &BenchEndpoint,
    remote: &RemoteMemory,
    taken: &AtomicU32,
    most: u32,
) -> Result<(), Error> {
    let (mut wcs, mut silence) = ([Wc::default(); 64], Silence::new(endpoint.limit));
    let mut seen = 0;
    loop {
        let arrived = match take_arrived(endpoint, remote, &mut wcs) {
            // Receives were flushed because the peer disconnected.
            Err(_) if !endpoint.is_connected() => return Ok(()),
            other => other?,
        };
        let all = match arrived.count {
            0 => taken.load(Ordering::Relaxed),
            count => taken.fetch_add(count, Ordering::Relaxed) + count,
        };
        if arrived.last || all >= most {
            return Ok(());
        }
        if all != seen {
            // Perhaps by another thread.
            seen = all;
            silence.end();
            continue;
        }
        match endpoint.check_silence(&mut silence) {
            Err(Error::Disconnected) => return Ok(()),
            other => other?,
        }
    }
}

#[derive(Default)]
struct Arrived {
    count: u32,
    /// The last message was among them.
    last: bool,
}

fn take_arrived(
    endpoint: &BenchEndpoint,
    remote: &RemoteMemory,
    wcs: &mut [Wc],
) -> Result<Arrived, Error> {
    let mut arrived = Arrived::default();
    for done in endpoint.take(wcs)? {
        if done.is_send {
            continue;
        }
        arrived.count += 1;
        // A thread that sleeps in events is not woken by a disconnect; the last message ends it.
        arrived.last |= endpoint.events && endpoint.take_mark(LAST_TURN)?;
        endpoint.post_receives(done.qp_index, 1)?;
        if endpoint.case.metric == Metric::Latency {
            endpoint.post(done.qp_index, remote, 1)?;
        }
    }
    Ok(arrived)
}

/// Answers each write by a write, on the connections in turn, until the peer disconnects or `most` were answered.
pub fn answer_writes(
    endpoint: &BenchEndpoint,
    remote: &RemoteMemory,
    most: u32,
) -> Result<(), Error> {
    let mut wcs = [Wc::default(); 16];
    for turn in 0..most as usize {
        match endpoint.await_mark(turn, &mut wcs) {
            Err(_) if !endpoint.is_connected() => return Ok(()),
            other => other?,
        }
        endpoint.mark(turn)?;
        endpoint.post(turn % endpoint.qps.len(), remote, 1)?;
        endpoint.poll_batch(turn, &mut wcs)?;
    }
    Ok(())
}

/// Sleeps until a peer disconnects whose operations need no thread here, or need none any more.
pub fn await_disconnect(endpoints: &[&BenchEndpoint], limit: Duration) -> Result<(), Error> {
    let bytes = || -> u64 { endpoints.iter().map(|endpoint| endpoint.bytes_in()).sum() };
    let (mut before, mut since) = (bytes(), Instant::now());
    while endpoints.iter().any(|endpoint| endpoint.is_connected()) {
        std::thread::sleep(Duration::from_millis(1));
        let now = bytes();
        if now != before {
            (before, since) = (now, Instant::now());
        } else if since.elapsed() >= limit {
            return Err(Error::Silent(limit));
        }
    }
    Ok(())
}
