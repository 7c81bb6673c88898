//! The side that measures.
//! It promises that the clock starts when both sides are ready and stops when the last message has completed.
//! It refuses to count what failed: any bad completion ends the measurement with its sentence.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbena::low::{BLANK, Data, Flags, Limits, QpState, RecvWr, SendOp, SendWr, Sge, Wc};
use verbena::{Access, Cq, Device, Memory, Qp, QpOptions, RemoteMemory, Status};

use super::Error;
use super::case::{Case, Metric, Op};
use super::report::Sample;

/// Room for every message under way, and for completions of both kinds.
pub(super) const ENTRIES: usize = 16 << 10;

/// A queue pair with memory, ready to be joined.
pub(super) struct Station {
    pub(super) qp: Qp,
    pub(super) cq: Cq,
    pub(super) memory: Memory,
    case: Case,
}

impl Station {
    pub(super) fn new(device: &Device, case: Case) -> Result<Station, Error> {
        let (pd, cq) = (device.pd()?, device.cq(ENTRIES)?);
        // What is sent lies in front, what is received behind it.
        let len = case.size.max(64) as usize;
        let memory = pd.memory(2 * len, Access::ALL)?;
        let depth = case.depth as usize;
        let limits = Limits {
            sends: (2 * depth).max(64),
            receives: (4 * depth).max(256),
            ..Limits::default()
        };
        let options = QpOptions {
            limits,
            ..QpOptions::default()
        };
        let qp = Qp::new(&pd, &cq, &cq, options)?;
        // Receives are posted before the connection is there.
        qp.modify(QpState::Init);
        Ok(Station {
            qp,
            cq,
            memory,
            case,
        })
    }

    fn len(&self) -> usize {
        self.case.size.max(64) as usize
    }

    /// What is sent.
    fn source(&self) -> Result<Sge, Error> {
        Ok(self.memory.sge(0, self.case.size as usize)?)
    }

    /// Where answers go.
    pub(super) fn sink(&self) -> Result<Sge, Error> {
        Ok(self.memory.sge(self.len(), self.case.size as usize)?)
    }

    pub(super) fn post_receives(&self, count: usize) -> Result<(), Error> {
        let scatter = [self.sink()?];
        let wr = RecvWr {
            id: 0,
            scatter: &scatter,
        };
        for _ in 0..count {
            self.qp.post_recv(&[wr]).map_err(refused)?;
        }
        Ok(())
    }

    /// Posts `count` requests of the case's kind, the last one signalled.
    pub(super) fn post(&self, remote: &RemoteMemory, count: usize) -> Result<(), Error> {
        let (source, sink) = ([self.source()?], [self.sink()?]);
        let word = [self.memory.sge(self.len(), 8)?];
        let place = remote.place();
        let (op, data) = match self.case.op {
            Op::Send => (
                SendOp::Send {
                    invalidate: None,
                    immediate: None,
                },
                Data::Gather(&source),
            ),
            Op::Write => (
                SendOp::Write {
                    remote: place,
                    immediate: None,
                },
                Data::Gather(&source),
            ),
            Op::Read => (
                SendOp::Read {
                    remote: place,
                    local_invalidate: None,
                },
                Data::Gather(&sink),
            ),
            Op::Atomic => (
                SendOp::FetchAdd {
                    remote: place,
                    add: 1,
                    mask: 0,
                },
                Data::Gather(&word),
            ),
        };
        const AT_ONCE: usize = 16;
        let mut left = count;
        while left > 0 {
            let now = left.min(AT_ONCE);
            let wr = SendWr {
                id: 1,
                op,
                flags: Flags::SIGNALED,
                data,
            };
            self.qp.post_send(&[wr; AT_ONCE][..now]).map_err(refused)?;
            left -= now;
        }
        Ok(())
    }

    /// Polls until something completes; returns how many sends and receives did.
    pub(super) fn poll(&self, wcs: &mut [Wc]) -> Result<(usize, usize), Error> {
        let n = self.cq.poll(wcs);
        let (mut sends, mut receives) = (0, 0);
        for wc in &wcs[..n] {
            if wc.status != Status::Success {
                let why = self.qp.view().cause.unwrap_or_default();
                return Err(Error::Failed(format!("{:?}: {why}", wc.status)));
            }
            if wc.id == 1 {
                sends += 1;
            } else {
                receives += 1;
            }
        }
        Ok((sends, receives))
    }
}

fn refused(refused: (usize, verbena::low::PostError)) -> Error {
    Error::Failed(refused.1.to_string())
}

/// One measurement, and where the server's plain TCP listens.
pub(super) fn measure(
    device: &Device,
    server: SocketAddr,
    case: &Case,
) -> Result<(Sample, SocketAddr), Error> {
    let station = Station::new(device, *case)?;
    let ours = station
        .memory
        .remote()
        .slice(station.len() as u64, station.len() as u64)?;
    let mut words = case.to_bytes().to_vec();
    words.extend(ours.to_bytes());
    if case.op == Op::Send && case.metric == Metric::Latency {
        station.post_receives(128)?;
    }
    let reply = station.qp.connect(server, &words)?.wait()?;
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
        let start = Instant::now();
        station.post(remote, 1)?;
        let mut back = 0;
        while back == 0 {
            back = station.poll(&mut wcs)?.1;
        }
        if turn >= warm(station.case.count) {
            times.push(start.elapsed() / 2);
        }
        station.post_receives(1)?;
    }
    Ok(Sample::Times(times))
}

/// Both sides watch the last byte of their memory.
fn ping_pong_write(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [BLANK; 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warm(station.case.count) {
        let start = Instant::now();
        mark(station, turn)?;
        station.post(remote, 1)?;
        await_mark(station, turn, &mut wcs)?;
        if turn >= warm(station.case.count) {
            times.push(start.elapsed() / 2);
        }
    }
    Ok(Sample::Times(times))
}

/// Marks what is sent with the number of its turn.
pub(super) fn mark(station: &Station, turn: usize) -> Result<(), Error> {
    let last = (station.case.size.max(1) - 1) as usize;
    Ok(station.memory.write_at(last, &[turn as u8 | 1 << 7])?)
}

/// Waits until the peer's write of this turn is there; others of its turns are not.
pub(super) fn await_mark(station: &Station, turn: usize, wcs: &mut [Wc]) -> Result<(), Error> {
    let last = station.len() + (station.case.size.max(1) - 1) as usize;
    let mut byte = [0];
    loop {
        station.memory.read_at(last, &mut byte)?;
        if byte[0] == turn as u8 | 1 << 7 {
            break;
        }
        station.poll(wcs)?;
    }
    // The next turn is told apart by being another.
    station.memory.write_at(last, &[0])?;
    Ok(())
}

fn round_trips(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, mut wcs) = (station.case.count as usize, [BLANK; 16]);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + warm(station.case.count) {
        let start = Instant::now();
        station.post(remote, 1)?;
        while station.poll(&mut wcs)?.0 == 0 {}
        if turn >= warm(station.case.count) {
            times.push(start.elapsed());
        }
    }
    Ok(Sample::Times(times))
}

fn stream(station: &Station, remote: &RemoteMemory) -> Result<Sample, Error> {
    let (count, depth) = (station.case.count as usize, station.case.depth as usize);
    let mut wcs = [BLANK; 64];
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < count {
        let room = (depth - (posted - done)).min(count - posted);
        // In batches, as a program that wants throughput does; the rest when little is left.
        if room >= depth.div_ceil(4) || (room > 0 && count - posted == room) {
            station.post(remote, room)?;
            posted += room;
        }
        done += station.poll(&mut wcs)?.0;
    }
    let took = start.elapsed().max(Duration::from_nanos(1));
    Ok(Sample::Throughput {
        messages: count as u64,
        bytes: count as u64 * u64::from(station.case.size),
        took,
    })
}
