//! Plain TCP as in a well-written C program: the baseline of the comparison. `TCP_NODELAY` is set and bytes are not copied needlessly.
//! The server ends at the end of the stream; neither side looks at the bytes.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::slice;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt;
use verbena_cli::bench::tcp::{echo, read_all, round_trips};
use verbena_cli::bench::{Extent, Meter};

use crate::job::{Figures, Job, Kind, SILENCE_LIMIT, figures_from_times};
use crate::usage;

/// Length of one read of a plain stream.
const CHUNK: usize = 64 << 10;
/// Length of a frame's header: its payload length, and room for what a protocol would add.
const HEAD: usize = 16;

pub(crate) fn accept(job: &Job) -> Result<TcpStream> {
    let listener = TcpListener::bind(job.at).with_context(|| format!("cannot bind {}", job.at))?;
    let (socket, _) = listener.accept()?;
    tune(&socket)?;
    Ok(socket)
}

pub(crate) fn connect(job: &Job) -> Result<TcpStream> {
    let socket =
        TcpStream::connect(job.at).with_context(|| format!("cannot connect to {}", job.at))?;
    tune(&socket)?;
    Ok(socket)
}

/// Socket options: no delay, and on loopback a congestion control without pacing, as with Verbena.
fn tune(socket: &TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    if socket.peer_addr()?.ip().is_loopback() {
        sockopt::set_tcp_congestion(socket, "reno")?;
    }
    Ok(())
}

/// Echoes messages until the end of the stream.
pub(crate) fn serve_pingpong(job: &Job) -> Result<Figures> {
    let mut socket = accept(job)?;
    socket.set_nonblocking(job.kind == Kind::Pingpong)?;
    serve_pingpong_on(job, &mut socket)
}

/// The same on any stream.
pub(crate) fn serve_pingpong_on(job: &Job, stream: &mut (impl Read + Write)) -> Result<Figures> {
    let (size, before) = (job.size.max(1) as usize, usage::cpu());
    echo(slice::from_mut(stream), size, SILENCE_LIMIT)?;
    Ok(cpu_figures(before))
}

/// Ping-pong.
pub(crate) fn run_pingpong(job: &Job) -> Result<Figures> {
    let mut socket = connect(job)?;
    socket.set_nonblocking(job.kind == Kind::Pingpong)?;
    run_pingpong_on(job, &mut socket)
}

/// The same on any stream.
pub(crate) fn run_pingpong_on(job: &Job, stream: &mut (impl Read + Write)) -> Result<Figures> {
    let (size, extent) = (job.size.max(1) as usize, Extent::Time(job.span()));
    let times = round_trips(slice::from_mut(stream), size, 2, extent, SILENCE_LIMIT)?;
    Ok(figures_from_times(times, job.size))
}

/// Reads a stream in large pieces, and confirms its end.
pub(crate) fn receive_plain(job: &Job) -> Result<Figures> {
    let mut socket = accept(job)?;
    let (mut bytes, before) = (vec![0; CHUNK], usage::cpu());
    while socket.read(&mut bytes)? > 0 {}
    socket.write_all(&[1])?;
    Ok(cpu_figures(before))
}

/// One write per message.
pub(crate) fn send_plain(job: &Job) -> Result<Figures> {
    let mut socket = connect(job)?;
    let (bytes, before) = (vec![7; job.size.max(1) as usize], usage::cpu());
    let mut meter = job.meter();
    while {
        socket.write_all(&bytes)?;
        meter.record(1)
    } {}
    finish(&mut socket, &meter, before)
}

/// Reads the header of the next frame together with the payload of this one, by one call.
pub(crate) fn receive_framed(job: &Job) -> Result<Figures> {
    let mut socket = accept(job)?;
    let (mut target, before) = (vec![0; job.size.max(1) as usize], usage::cpu());
    let mut head = [0; HEAD];
    let mut there = read_all(&mut socket, &mut head, SILENCE_LIMIT)?;
    while there {
        let len = length(&head, target.len())?;
        there = scatter(&mut socket, &mut target[..len], &mut head)?;
    }
    socket.write_all(&[1])?;
    Ok(cpu_figures(before))
}

/// Sends header and payload by one call.
pub(crate) fn send_framed(job: &Job) -> Result<Figures> {
    let mut socket = connect(job)?;
    let (bytes, before) = (vec![7; job.size.max(1) as usize], usage::cpu());
    let head = head(job.size.max(1));
    let mut meter = job.meter();
    while {
        gather(&mut socket, &head, &bytes)?;
        meter.record(1)
    } {}
    finish(&mut socket, &meter, before)
}

/// Waits until the server has received everything.
fn finish(socket: &mut TcpStream, meter: &Meter, before: f64) -> Result<Figures> {
    socket.shutdown(Shutdown::Write)?;
    socket.read_exact(&mut [0])?;
    Ok(Figures {
        cpu: usage::cpu() - before,
        ..meter.figures().into()
    })
}

pub(crate) fn cpu_figures(before: f64) -> Figures {
    Figures {
        cpu: usage::cpu() - before,
        ..Figures::default()
    }
}

fn head(len: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&len.to_be_bytes());
    head
}

/// The payload length in a header.
fn length(head: &[u8; HEAD], most: usize) -> Result<usize> {
    let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if len > most {
        bail!("received a frame of {len} bytes; at most {most} were agreed");
    }
    Ok(len)
}

fn gather(socket: &mut impl Write, head: &[u8], bytes: &[u8]) -> Result<()> {
    let mut parts = [IoSlice::new(head), IoSlice::new(bytes)];
    let mut rest = &mut parts[..];
    while !rest.is_empty() {
        let n = socket.write_vectored(rest)?;
        IoSlice::advance_slices(&mut rest, n);
    }
    Ok(())
}

/// Fills both; false if the stream ends between them.
fn scatter(socket: &mut impl Read, target: &mut [u8], head: &mut [u8]) -> Result<bool> {
    let first = target.len();
    let mut parts = [IoSliceMut::new(target), IoSliceMut::new(head)];
    let (mut rest, mut done) = (&mut parts[..], 0);
    while !rest.is_empty() {
        let n = socket.read_vectored(rest)?;
        done += n;
        if n == 0 {
            if done == first {
                return Ok(false);
            }
            bail!("the stream ended within a frame");
        }
        IoSliceMut::advance_slices(&mut rest, n);
    }
    Ok(true)
}
