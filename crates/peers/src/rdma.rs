//! Verbena through its Rust API: a message to and fro, a read, or many under way, polling or asleep in events.
//! It promises that every message completed well, and that the server ends when the caller has gone.
//! It refuses to know more of the adapter than its queue pairs, memory and completion queue (`verbena_cli::bench`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use verbena::low::BLANK;
use verbena::{Config, Device, RemoteMemory};
use verbena_cli::bench::{Case, Metric, Op, Station};

use crate::job::{Figures, Job, Kind, Meter, Timer, of_times};
use crate::tcp::spent;
use crate::usage;

/// Receives that wait in a ping-pong.
const RECEIVES: usize = 128;
/// The turn by whose mark the last message is known.
const LAST: usize = 1;
/// Empty polls after which it is asked whether the peer is there, which costs more than a poll.
const IDLE: u32 = 4096;

/// What both sides know where Verbena encrypts.
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
        memory: false,
    }
}

pub(crate) fn serve(job: &Job) -> Result<Figures> {
    let device = device(job)?;
    let listener = device.listen(job.at)?;
    let station = Station::new(&device, case(job))?;
    let mut ours = station.memory.remote();
    if job.op == Op::Write && job.kind == Kind::Latency {
        let half = station.len() as u64;
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
        station.post_receives(0, receives)?;
    }
    request
        .accept_on(&station.qps[0], &ours.to_bytes())?
        .wait()?;
    match (job.op, job.kind) {
        (Op::Send, Kind::Latency) => {
            receive(job, &station, |station| Ok(station.post(0, &remote, 1)?))?;
        }
        (Op::Send, _) => receive(job, &station, |_| Ok(()))?,
        (Op::Write, Kind::Latency) => answer_writes(&station, &remote)?,
        // The adapter does what there is to do.
        _ => {
            while station.is_joined() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    Ok(spent(before))
}

/// Tells the server that this was all, and waits until it goes or a second is over.
fn say_last(station: &Station, remote: &RemoteMemory) -> Result<()> {
    let (mut wcs, start) = ([BLANK; 64], Instant::now());
    station.mark(LAST)?;
    station.post(0, remote, 1)?;
    while station.is_joined() && start.elapsed() < Duration::from_secs(1) {
        station.poll(&mut wcs)?.for_each(drop);
    }
    Ok(())
}

/// Takes messages until the peer goes, each with an answer of the caller's.
fn receive(
    job: &Job,
    station: &Station,
    mut answer: impl FnMut(&Station) -> Result<()>,
) -> Result<()> {
    let (mut wcs, mut idle) = ([BLANK; 64], 0_u32);
    while !idle.is_multiple_of(IDLE) || idle == 0 || station.is_joined() {
        idle = idle.wrapping_add(1);
        let mut last = false;
        let taken = take(job.events, station, &mut wcs, |sent| {
            if !sent {
                last |= station.marked(LAST)?;
                station.post_receives(0, 1)?;
                answer(station)?;
            }
            Ok(())
        });
        match taken {
            // Who sleeps is not told that the peer has gone, as on any adapter: the last message says so.
            Ok(_) if last => return Ok(()),
            Ok(0) => {}
            Ok(_) => idle = 0,
            // The receives that were left when the peer went.
            Err(_) if !station.is_joined() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes completions, and says of each whether it is of something sent; returns how many.
fn take(
    events: bool,
    station: &Station,
    wcs: &mut [verbena::low::Wc],
    mut each: impl FnMut(bool) -> Result<()>,
) -> Result<u64> {
    let mut taken = 0;
    if events {
        for done in station.sleep(wcs)? {
            each(done.sent)?;
            taken += 1;
        }
    } else {
        for done in station.poll(wcs)? {
            each(done.sent)?;
            taken += 1;
        }
    }
    Ok(taken)
}

fn answer_writes(station: &Station, remote: &RemoteMemory) -> Result<()> {
    let mut wcs = [BLANK; 16];
    for turn in 0.. {
        let mut idle = 0_u32;
        while !station.marked(turn)? {
            idle = idle.wrapping_add(1);
            if idle.is_multiple_of(IDLE) && !station.is_joined() {
                return Ok(());
            }
            station.poll(&mut wcs)?.for_each(drop);
        }
        station.mark(turn)?;
        station.post(0, remote, 1)?;
    }
    Ok(())
}

pub(crate) fn call(job: &Job) -> Result<Figures> {
    let device = device(job)?;
    let station = Station::new(&device, case(job))?;
    let half = station.len() as u64;
    let ours = station.memory.remote().slice(half, half)?;
    let before = usage::cpu();
    if job.op == Op::Send && job.kind == Kind::Latency {
        station.post_receives(0, RECEIVES)?;
    }
    let reply = station.qps[0].connect(job.at, &ours.to_bytes())?.wait()?;
    let remote = RemoteMemory::from_bytes(&reply).context("the server said no memory")?;
    let figures = match (job.kind, job.op) {
        (Kind::Latency, op) => of_times(round_trips(job, &station, &remote, op)?, job.size),
        _ => stream(job, &station, &remote)?,
    };
    let cpu = usage::cpu() - before;
    if job.op == Op::Send {
        say_last(&station, &remote)?;
    }
    Ok(Figures { cpu, ..figures })
}

fn round_trips(
    job: &Job,
    station: &Station,
    remote: &RemoteMemory,
    op: Op,
) -> Result<Vec<Duration>> {
    if op == Op::Write && job.events {
        bail!("nobody is told of a plain Write, so that nobody can sleep until one comes");
    }
    let (mut wcs, mut times, timer) = ([BLANK; 16], Vec::new(), Timer::start(job));
    for turn in 0.. {
        let start = Instant::now();
        // On a busy machine one round trip can take longer than all the time.
        if timer.is_over(start) && !times.is_empty() {
            break;
        }
        if op == Op::Write {
            station.mark(turn)?;
        }
        station.post(0, remote, 1)?;
        match op {
            Op::Write => station.await_mark(turn, &mut wcs)?,
            _ => {
                let mut back = false;
                while !back {
                    take(job.events, station, &mut wcs, |sent| {
                        back |= op != Op::Send || !sent;
                        Ok(())
                    })?;
                }
            }
        }
        // A read is a whole round trip.
        let ways = if op == Op::Read { 1 } else { 2 };
        if timer.counts(start) {
            times.push(start.elapsed() / ways);
        }
        if op == Op::Send {
            station.post_receives(0, 1)?;
        }
    }
    Ok(times)
}

fn stream(job: &Job, station: &Station, remote: &RemoteMemory) -> Result<Figures> {
    let (depth, mut under) = (job.depth as usize, 0_usize);
    let list = (job.list as usize).max(1);
    let (mut wcs, mut meter) = ([BLANK; 64], Meter::start(job));
    let mut going = true;
    while going || under > 0 {
        let room = if going { depth - under } else { 0 };
        // In batches, as a program that wants throughput does.
        if room > 0 && room >= depth.div_ceil(4) {
            for from in (0..room).step_by(list) {
                station.post(0, remote, list.min(room - from))?;
            }
            under += room;
        }
        let done = take(job.events, station, &mut wcs, |_| Ok(()))?;
        under -= done as usize;
        if done > 0 {
            going &= meter.more(done);
        }
    }
    Ok(meter.figures())
}
