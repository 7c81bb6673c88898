//! The side that measures.
//! It promises that the clock starts when both sides are ready on every connection and stops when the last message has
//! completed. It refuses to favour a connection: messages take turns, or are shared out evenly.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbena::low::BLANK;
use verbena::{Device, RemoteMemory};

use super::Error;
use super::case::{Case, Metric, Op};
use super::report::Sample;
use super::station::Station;

/// One measurement, and where the server's plain TCP listens.
pub(super) fn measure(
    device: &Device,
    server: SocketAddr,
    case: &Case,
) -> Result<(Sample, SocketAddr), Error> {
    let station = Station::new(device, *case)?;
    let half = station.len() as u64;
    let ours = station.memory.remote().slice(half, half)?;
    let mut reply = Vec::new();
    for (at, qp) in station.qps.iter().enumerate() {
        if case.op == Op::Send && case.metric == Metric::Latency {
            station.post_receives(at, 128)?;
        }
        let mut words = case.to_bytes().to_vec();
        words.extend((at as u32).to_be_bytes());
        words.extend(ours.to_bytes());
        reply = qp.connect(server, &words)?.wait()?;
    }
    let remote = RemoteMemory::from_bytes(&reply)?;
    let port = reply.get(RemoteMemory::BYTES..RemoteMemory::BYTES + 2);
    let port = port.map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
    let tcp = SocketAddr::new(server.ip(), port);
    let sample = match (case.metric, case.op) {
        (Metric::Latency, Op::Send) => ping_pong_send(&station, &remote)?,
        (Metric::Latency, Op::Write) => ping_pong_write(&station, &remote)?,
        (Metric::Latency, _) => round_trips(&station, &remote)?,
        _ => stream(&station, &remote)?,
    };
    Ok((sample, tcp))
}

/// The first tenth warms up and does not count.
fn warm(count: u32) -> usize {
    count as usize / 10
}

fn ping_pong_send(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [BLANK; 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warm(station.case.count) {
        let at = turn % station.qps.len();
        let start = Instant::now();
        station.post(at, remote, 1)?;
        while !station.poll(&mut wcs)?.any(|done| !done.sent) {}
        if turn >= warm(station.case.count) {
            times.push(start.elapsed() / 2);
        }
        station.post_receives(at, 1)?;
    }
    Ok(Sample::Times(times))
}

/// Both sides watch the last byte of their memory.
fn ping_pong_write(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [BLANK; 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warm(station.case.count) {
        let start = Instant::now();
        station.mark(turn)?;
        station.post(turn % station.qps.len(), remote, 1)?;
        station.await_mark(turn, &mut wcs)?;
        if turn >= warm(station.case.count) {
            times.push(start.elapsed() / 2);
        }
    }
    Ok(Sample::Times(times))
}

fn round_trips(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [BLANK; 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warm(station.case.count) {
        let start = Instant::now();
        station.post(turn % station.qps.len(), remote, 1)?;
        while station.poll(&mut wcs)?.count() == 0 {}
        if turn >= warm(station.case.count) {
            times.push(start.elapsed());
        }
    }
    Ok(Sample::Times(times))
}

/// What a connection has to do, and has under way.
struct Lane {
    left: usize,
    under: usize,
}

fn stream(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, depth) = (station.case.count as usize, station.case.depth as usize);
    let mut wcs = [BLANK; 64];
    let lane = |at| Lane {
        left: station.case.share(at),
        under: 0,
    };
    let mut lanes: Vec<Lane> = (0..station.qps.len()).map(lane).collect();
    let mut done = 0;
    let start = Instant::now();
    while done < count {
        for (at, lane) in lanes.iter_mut().enumerate() {
            let room = (depth - lane.under).min(lane.left);
            // In batches, as a program that wants throughput does; the rest when little is left.
            if room >= depth.div_ceil(4) || (room > 0 && lane.left == room) {
                station.post(at, remote, room)?;
                lane.left -= room;
                lane.under += room;
            }
        }
        for one in station.poll(&mut wcs)? {
            lanes[one.at].under -= 1;
            done += 1;
        }
    }
    let took = start.elapsed().max(Duration::from_nanos(1));
    Ok(Sample::Throughput {
        messages: count as u64,
        bytes: count as u64 * u64::from(station.case.size),
        took,
    })
}
