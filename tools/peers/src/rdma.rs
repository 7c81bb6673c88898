//! Verbena through its Rust API: ping-pong, reads, or many messages in flight, polling or sleeping in events. Every message must complete
//! successfully, and the server ends when the caller has disconnected. The loops are those of `verbena bench` (`verbena_cli::bench`); only
//! the connection is made here, and the measurements end by time.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use verbena::low::Wc;
use verbena::{Config, Device, RemoteMemory};
use verbena_cli::bench::{
    BenchEndpoint, Case, Extent, LAST_TURN, Metric, Op, Streams, answer_writes, await_disconnect,
    receive, round_trips,
};

use crate::job::{Figures, Job, Kind, SILENCE_LIMIT, figures_from_times};
use crate::tcp::cpu_figures;
use crate::usage;

/// Posted receives of a ping-pong.
const RECEIVES: usize = 128;

/// The pre-shared key of encrypted measurements.
const KEY: &str = "a key that only measurements use";

pub(crate) fn device(job: &Job) -> Result<Device> {
    let mut config = Config::load()?;
    let same_host = if job.same_host { "auto" } else { "off" };
    config.set("same_host", same_host)?;
    config.set("crc", &job.crc)?;
    config.set("fpdu", &job.fpdu)?;
    config.set("wire", &job.wire)?;
    config.set("roce_loss", &job.loss.to_string())?;
    if job.wire == "roce" && job.at.ip().is_loopback() {
        // No device has this address unless it is asked for.
        config.set("device", &job.at.ip().to_string())?;
    }
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

fn endpoint(job: &Job, device: &Device) -> Result<BenchEndpoint> {
    let mut endpoint = BenchEndpoint::new(device, case(job), SILENCE_LIMIT)?;
    endpoint.events = job.events;
    Ok(endpoint)
}

pub(crate) fn serve(job: &Job) -> Result<Figures> {
    let device = device(job)?;
    let listener = device.listen(job.at)?;
    let endpoint = endpoint(job, &device)?;
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
        (Op::Send, _) => receive(&endpoint, &remote, &AtomicU32::new(0), u32::MAX)?,
        (Op::Write, Kind::Latency) => answer_writes(&endpoint, &remote, u32::MAX)?,
        _ if job.polled => poll_until_disconnect(&endpoint)?,
        // The adapter needs no help from the program.
        _ => await_disconnect(&[&endpoint], SILENCE_LIMIT)?,
    }
    Ok(cpu_figures(before))
}

/// Polls of a target between two checks of its connection.
const POLLS_PER_CHECK: u32 = 1024;

/// The target of reads and atomics: nothing arrives in its completion queue, but its polls serve the peer's requests.
fn poll_until_disconnect(endpoint: &BenchEndpoint) -> Result<()> {
    let mut wcs = [Wc::default(); 16];
    while endpoint.is_connected() {
        for _ in 0..POLLS_PER_CHECK {
            endpoint.poll(&mut wcs)?.for_each(drop);
        }
    }
    Ok(())
}

/// Wakes a server that sleeps in events by the last message, and waits until the server has disconnected or a second is over.
fn send_last(endpoint: &BenchEndpoint, remote: &RemoteMemory) -> Result<()> {
    let (mut wcs, start) = ([Wc::default(); 64], Instant::now());
    endpoint.mark(LAST_TURN)?;
    endpoint.post(0, remote, 1)?;
    while endpoint.is_connected() && start.elapsed() < Duration::from_secs(1) {
        endpoint.poll(&mut wcs)?.for_each(drop);
    }
    Ok(())
}

pub(crate) fn call(job: &Job) -> Result<Figures> {
    if job.kind == Kind::Latency && job.op == Op::Write && job.events {
        bail!(
            "a plain RDMA Write raises no event at the receiver; measure writes without --events"
        );
    }
    let device = device(job)?;
    let endpoint = endpoint(job, &device)?;
    let half = endpoint.len() as u64;
    let ours = endpoint.memory.remote().slice(half, half)?;
    let before = usage::cpu();
    if job.op == Op::Send && job.kind == Kind::Latency {
        endpoint.post_receives(0, RECEIVES)?;
    }
    let reply = endpoint.qps[0].connect(job.at, &ours.to_bytes())?.wait()?;
    let remote = RemoteMemory::from_bytes(&reply)
        .context("the server's private data has no memory handle")?;
    let figures = match job.kind {
        Kind::Latency => {
            let times = round_trips(&endpoint, &remote, Extent::Time(job.span()))?;
            figures_from_times(times, job.size)
        }
        _ => {
            let streams = Streams::by_time(&endpoint, job.span(), job.list as usize);
            streams.run(&endpoint, &remote, 0, 1)?.into()
        }
    };
    let cpu = usage::cpu() - before;
    if job.op == Op::Send && job.events {
        send_last(&endpoint, &remote)?;
    }
    Ok(Figures { cpu, ..figures })
}
