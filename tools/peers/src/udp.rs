//! Plain UDP as in a well-written C program: the baseline for RoCEv2. A ping-pong of single datagrams over connected sockets, and a stream of
//! bursts that the kernel cuts into datagrams (UDP_SEGMENT) and joins again (UDP_GRO). Nothing is repeated: what the receiver had no
//! room for is lost and does not count.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::slice;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use verbena_cli::bench::tcp::{echo, round_trips};
use verbena_cli::bench::{Extent, Meter};
use verbena_engine::sys::segments::{MAX_SEGMENTS, MAX_SEGMENTS_LEN};
use verbena_engine::sys::{DatagramSocket, ReceiveBatch, SegmentsOutcome, route_to};

use crate::job::{Figures, Job, SILENCE_LIMIT, figures_from_times};
use crate::tcp::cpu_figures;
use crate::usage;

/// Room for datagrams that were joined.
const JOINED: usize = 65_535;
/// The receive buffer, as that of RoCEv2.
const RECV_BUFFER: usize = 4 << 20;
/// Bursts between two looks for the end.
const BURSTS: usize = 16;

/// A connected socket. An empty datagram is the end of the stream.
struct Datagrams(UdpSocket);

impl Read for Datagrams {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes)
    }
}

impl Write for Datagrams {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Echoes datagrams until an empty one.
pub(crate) fn serve_pingpong(job: &Job) -> Result<Figures> {
    let socket = UdpSocket::bind(job.at).with_context(|| format!("cannot bind {}", job.at))?;
    // For `xtask`, which waits until a server listens.
    let listener = TcpListener::bind(job.at)?;
    let (_, peer) = socket.peek_from(&mut [0])?;
    socket.connect(peer)?;
    socket.set_nonblocking(true)?;
    let before = usage::cpu();
    let size = job.size.max(1) as usize;
    echo(slice::from_mut(&mut Datagrams(socket)), size, SILENCE_LIMIT)?;
    drop(listener);
    Ok(cpu_figures(before))
}

/// Ping-pong.
pub(crate) fn run_pingpong(job: &Job) -> Result<Figures> {
    let socket = UdpSocket::bind((route_to(None, job.at)?.local, 0))?;
    socket.connect(job.at)?;
    socket.set_nonblocking(true)?;
    let (mut stream, extent) = (Datagrams(socket), Extent::Time(job.span()));
    let size = job.size.max(1) as usize;
    let times = round_trips(slice::from_mut(&mut stream), size, 2, extent, SILENCE_LIMIT)?;
    stream.0.send(&[])?;
    Ok(figures_from_times(times, job.size))
}

/// Receives datagrams until the time is over, and reports how many bytes came.
pub(crate) fn receive_stream(job: &Job) -> Result<Figures> {
    let socket = DatagramSocket::bind_roce(job.at)?;
    socket.set_recv_buffer(RECV_BUFFER);
    let (mut control, _) = TcpListener::bind(job.at)?.accept()?;
    let (mut batch, before) = (ReceiveBatch::new(JOINED), usage::cpu());
    let mut meter: Option<Meter> = None;
    let start = Instant::now();
    loop {
        if !socket.receive_batch(&mut batch)? {
            if start.elapsed() > SILENCE_LIMIT {
                bail!("no datagrams for {SILENCE_LIMIT:?}");
            }
            continue;
        }
        let bytes: usize = batch.arrivals().map(|arrival| arrival.bytes.len()).sum();
        // Counted in bytes.
        let meter = meter.get_or_insert_with(|| Meter::start(Some(job.span()), 1));
        if !meter.record(bytes as u64) {
            let figures = Figures::from(meter.figures());
            control.write_all(serde_json::to_string(&figures)?.as_bytes())?;
            return Ok(cpu_figures(before));
        }
    }
}

/// Sends bursts until the receiver has reported.
pub(crate) fn send_stream(job: &Job) -> Result<Figures> {
    let mut control = TcpStream::connect(job.at)?;
    control.set_nonblocking(true)?;
    let local = route_to(None, job.at)?.local;
    let socket = DatagramSocket::bind_roce(SocketAddr::new(local, 0))?;
    let segment = (job.segment.max(1) as usize).min(MAX_SEGMENTS_LEN);
    let count = (MAX_SEGMENTS_LEN / segment).min(MAX_SEGMENTS);
    let (bytes, before) = (vec![7; segment * count], usage::cpu());
    let mut report = Vec::new();
    loop {
        for _ in 0..BURSTS {
            match socket.send_segments(&bytes, segment, job.at)? {
                SegmentsOutcome::Sent | SegmentsOutcome::Full => {}
                SegmentsOutcome::Unsupported => bail!("the kernel has no UDP_SEGMENT"),
            }
        }
        match control.read_to_end(&mut report) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    let figures: Figures = serde_json::from_slice(&report).context("the receiver failed")?;
    Ok(Figures {
        cpu: usage::cpu() - before,
        ..figures
    })
}
