//! The measuring side. The clock starts when both sides are ready on every connection and stops when the last message has completed.
//! Latency messages use the connections in turn; throughput messages are divided evenly.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbena::{Device, RemoteMemory};

use super::Error;
use super::case::{Case, Metric, Op};
use super::endpoint::{BenchEndpoint, run_in_threads};
use super::load::{Streams, round_trips};
use super::meter::Extent;
use super::report::Sample;

/// One measurement, and the address of the server's plain TCP listener.
pub(super) fn measure(
    device: &Device,
    server: SocketAddr,
    case: &Case,
    limit: Duration,
) -> Result<(Sample, SocketAddr), Error> {
    let (mut sides, mut tcp, mut number) = (Vec::new(), server, 0_u32);
    for part in case.per_cq() {
        let endpoint = BenchEndpoint::new(device, part, limit)?;
        let half = endpoint.len() as u64;
        let ours = endpoint.memory.remote().slice(half, half)?;
        let mut reply = Vec::new();
        for (at, qp) in endpoint.qps.iter().enumerate() {
            if case.op == Op::Send && case.metric == Metric::Latency {
                endpoint.post_receives(at, 128)?;
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
        sides.push((endpoint, remote));
    }
    let streams: Vec<Streams> = sides.iter().map(|(s, _)| Streams::by_count(s)).collect();
    let alone = case.threads == 1;
    let start = Instant::now();
    let mut samples = run_in_threads(case.threads as usize, |thread| {
        let at = if case.one_cq { 0 } else { thread };
        let (endpoint, remote) = &sides[at];
        if case.metric == Metric::Latency {
            let count = endpoint.case.count as usize;
            let extent = Extent::Messages {
                warmup: count / 10,
                count,
            };
            return round_trips(endpoint, remote, extent).map(Sample::Times);
        }
        let (first, step) = match case.one_cq {
            true => (thread, case.threads as usize),
            false => (0, 1),
        };
        let streams = streams[at].run(endpoint, remote, first, step)?;
        Ok(Sample::Throughput(streams))
    })?;
    let whole = start.elapsed();
    let sample = match samples.pop() {
        Some(only) if alone => only,
        last => Sample::merge(samples.into_iter().chain(last).collect(), whole),
    };
    Ok((sample, tcp))
}
