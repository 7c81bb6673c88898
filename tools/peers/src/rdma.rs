//! Verbena through its Rust API: ping-pong, reads, or many messages in flight, polling or sleeping in events. Every message must complete
//! successfully, and the server ends when the caller has disconnected. The adapter's objects are those of `verbena_cli::bench`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use verbena::low::Wc;
use verbena::{Config, Device, RemoteMemory};
use verbena_cli::bench::{BenchEndpoint, Case, Metric, Op};

use crate::job::{Figures, Job, Kind, Meter, Timer, figures_from_times};
use crate::tcp::cpu_figures;
use crate::usage;

/// Posted receives of a ping-pong.
const RECEIVES: usize = 128;
/// The turn whose mark identifies the last message.
const LAST_TURN: usize = 1;
/// Empty polls between checks whether the peer is connected, which cost more than a poll.
const IDLE_POLLS: u32 = 4096;

/// The pre-shared key of encrypted measurements.
const KEY: &str = "a key that only measurements use";

pub(crate) fn device(job: &Job) -> Result<Device> {
    let mut config = Config::load()?;
    config.set("crc", &job.crc)?;
    config.set("fpdu", &job.fpdu)?;
    if job.tls {
        config.set("key", KEY)?;
        config.set("tls", "psk")?;
    }
    Ok(Device::with(config)?)
}

fn case(job: &Job) -> Case {
    let metric = match job.kind {
        Kind::Latency => Metric::Latency,
        _ => Metric::Bandwidth,
    };
    Case {
        op: job.op,
        metric,
        size: job.size,
        count: 1,
        depth: if job.kind == Kind::Latency {
            1
        } else {
            job.depth
        },
        qps: 1,
        threads: 1,
        one_cq: false,
        poll_memory: false,
    }
}

pub(crate) fn serve(job: &Job) -> Result<Figures> {
    let device = device(job)?;
    let listener = device.listen(job.at)?;
    let endpoint = BenchEndpoint::new(&device, case(job))?;
    let mut ours = endpoint.memory.remote();
    if job.op == Op::Write && job.kind == Kind::Latency {
        let half = endpoint.len() as u64;
        ours = ours.slice(half, half)?;
    }
    let request = listener.next().wait()?;
    let remote = RemoteMemory::from_bytes(request.private_data())?;
    let before = usage::cpu();
    if job.op == Op::Send {
        let streams = (4 * job.depth as usize).max(256);
        let receives = if job.kind == Kind::Latency {
            RECEIVES
        } else {
            streams
        };
        endpoint.post_receives(0, receives)?;
    }
    request
        .accept_on(&endpoint.qps[0], &ours.to_bytes())?
        .wait()?;
    match (job.op, job.kind) {
        (Op::Send, Kind::Latency) => {
            receive(job, &endpoint, |endpoint| Ok(endpoint.post(0, &remote, 1)?))?;
        }
        (Op::Send, _) => receive(job, &endpoint, |_| Ok(()))?,
        (Op::Write, Kind::Latency) => answer_writes(&endpoint, &remote)?,
        // The adapter needs no help from the program.
        _ => {
            while endpoint.is_connected() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    Ok(cpu_figures(before))
}

/// Sends the last message, and waits until the server has disconnected or a second is over.
fn send_last(endpoint: &BenchEndpoint, remote: &RemoteMemory) -> Result<()> {
    let (mut wcs, start) = ([Wc::default(); 64], Instant::now());
    endpoint.mark(LAST_TURN)?;
    endpoint.post(0, remote, 1)?;
    while endpoint.is_connected() && start.elapsed() < Duration::from_secs(1) {
        endpoint.poll(&mut wcs)?.for_each(drop);
    }
    Ok(())
}

/// Receives messages until the peer disconnects, and calls `answer` for each.
fn receive(
    job: &Job,
    endpoint: &BenchEndpoint,
    mut answer: impl FnMut(&BenchEndpoint) -> Result<()>,
) -> Result<()> {
    let (mut wcs, mut idle) = ([Wc::default(); 64], 0_u32);
    while !idle.is_multiple_of(IDLE_POLLS) || idle == 0 || endpoint.is_connected() {
        idle = idle.wrapping_add(1);
        let mut last = false;
        let taken = take_completions(job.events, endpoint, &mut wcs, |sent| {
            if !sent {
                last |= endpoint.take_mark(LAST_TURN)?;
                endpoint.post_receives(0, 1)?;
                answer(endpoint)?;
            }
            Ok(())
        });
        match taken {
            // A thread that sleeps in events is not woken by a disconnect; the last message ends it.
            Ok(_) if last => return Ok(()),
            Ok(0) => {}
            Ok(_) => idle = 0,
            // Receives that were flushed when the peer disconnected.
            Err(_) if !endpoint.is_connected() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes completions and calls `each` with whether it is of a send; returns their number.
fn take_completions(
    events: bool,
    endpoint: &BenchEndpoint,
    wcs: &mut [verbena::low::Wc],
    mut each: impl FnMut(bool) -> Result<()>,
) -> Result<u64> {
    let mut taken = 0;
    if events {
        for done in endpoint.wait(wcs)? {
            each(done.is_send)?;
            taken += 1;
        }
    } else {
        for done in endpoint.poll(wcs)? {
            each(done.is_send)?;
            taken += 1;
        }
    }
    Ok(taken)
}

fn answer_writes(endpoint: &BenchEndpoint, remote: &RemoteMemory) -> Result<()> {
    let mut wcs = [Wc::default(); 16];
    for turn in 0.. {
        let mut idle = 0_u32;
        while !endpoint.take_mark(turn)? {
            idle = idle.wrapping_add(1);
            if idle.is_multiple_of(IDLE_POLLS) && !endpoint.is_connected() {
                return Ok(());
            }
            endpoint.poll(&mut wcs)?.for_each(drop);
        }
        endpoint.mark(turn)?;
        endpoint.post(0, remote, 1)?;
    }
    Ok(())
}

pub(crate) fn call(job: &Job) -> Result<Figures> {
    let device = device(job)?;
    let endpoint = BenchEndpoint::new(&device, case(job))?;
    let half = endpoint.len() as u64;
    let ours = endpoint.memory.remote().slice(half, half)?;
    let before = usage::cpu();
    if job.op == Op::Send && job.kind == Kind::Latency {
        endpoint.post_receives(0, RECEIVES)?;
    }
    let reply = endpoint.qps[0].connect(job.at, &ours.to_bytes())?.wait()?;
    let remote = RemoteMemory::from_bytes(&reply)
        .context("the server's private data has no memory handle")?;
    let figures = match (job.kind, job.op) {
        (Kind::Latency, op) => {
            figures_from_times(round_trips(job, &endpoint, &remote, op)?, job.size)
        }
        _ => stream(job, &endpoint, &remote)?,
    };
    let cpu = usage::cpu() - before;
    if job.op == Op::Send {
        send_last(&endpoint, &remote)?;
    }
    Ok(Figures { cpu, ..figures })
}

fn round_trips(
    job: &Job,
    endpoint: &BenchEndpoint,
    remote: &RemoteMemory,
    op: Op,
) -> Result<Vec<Duration>> {
    if op == Op::Write && job.events {
        bail!(
            "a plain RDMA Write raises no event at the receiver; measure writes without --events"
        );
    }
    let (mut wcs, mut times, timer) = ([Wc::default(); 16], Vec::new(), Timer::start(job));
    for turn in 0.. {
        let start = Instant::now();
        // On a busy machine one round trip can take longer than the whole measurement.
        if timer.is_expired(start) && !times.is_empty() {
            break;
        }
        if op == Op::Write {
            endpoint.mark(turn)?;
        }
        endpoint.post(0, remote, 1)?;
        match op {
            Op::Write => endpoint.await_mark(turn, &mut wcs)?,
            _ => {
                let mut back = false;
                while !back {
                    take_completions(job.events, endpoint, &mut wcs, |sent| {
                        back |= op != Op::Send || !sent;
                        Ok(())
                    })?;
                }
            }
        }
        // A read is timed as a whole round trip.
        let ways = if op == Op::Read { 1 } else { 2 };
        if timer.is_measured(start) {
            times.push(start.elapsed() / ways);
        }
        if op == Op::Send {
            endpoint.post_receives(0, 1)?;
        }
    }
    Ok(times)
}

fn stream(job: &Job, endpoint: &BenchEndpoint, remote: &RemoteMemory) -> Result<Figures> {
    let (depth, mut under) = (job.depth as usize, 0_usize);
    let list = (job.list as usize).max(1);
    let (mut wcs, mut meter) = ([Wc::default(); 64], Meter::start(job));
    let mut going = true;
    while going || under > 0 {
        let room = if going { depth - under } else { 0 };
        // In batches, as programs do for throughput.
        if room > 0 && room >= depth.div_ceil(4) {
            for from in (0..room).step_by(list) {
                endpoint.post(0, remote, list.min(room - from))?;
            }
            under += room;
        }
        let done = take_completions(job.events, endpoint, &mut wcs, |_| Ok(()))?;
        under -= done as usize;
        if done > 0 {
            going &= meter.record(done);
        }
    }
    Ok(meter.figures())
}
