//! The same pattern over a plain TCP socket: what the adapter is compared with.
//! It promises a fair opponent: no delay, busy polling where the adapter polls, large reads where it streams.
//! It refuses anything that is not bytes and counts.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use super::Error;
use super::case::{Case, Metric, Op};
use super::report::Sample;

/// Bytes that one read of a stream asks for.
const CHUNK: usize = 256 << 10;

/// Serves measurements for ever.
pub(super) fn serve(listener: &TcpListener) {
    for socket in listener.incoming().flatten() {
        // A client that goes away ends its own measurement only.
        let _ = answer(socket);
    }
}

fn answer(mut socket: TcpStream) -> std::io::Result<()> {
    let mut words = [0; Case::BYTES];
    socket.read_exact(&mut words)?;
    let Some(case) = Case::from_bytes(&words) else {
        return Ok(());
    };
    socket.set_nodelay(true)?;
    let size = case.size.max(1) as usize;
    if case.metric == Metric::Latency {
        socket.set_nonblocking(true)?;
        let mut bytes = vec![0; size];
        for _ in 0..case.count {
            read_busy(&mut socket, &mut bytes)?;
            write_busy(&mut socket, &bytes)?;
        }
        return Ok(());
    }
    let mut left = u64::from(case.count) * size as u64;
    let mut bytes = vec![0; CHUNK];
    while left > 0 {
        let n = socket.read(&mut bytes)?;
        if n == 0 {
            return Ok(());
        }
        left = left.saturating_sub(n as u64);
    }
    socket.write_all(&[1])
}

/// Measures the case's pattern.
pub(super) fn measure(server: SocketAddr, case: &Case) -> Result<Sample, Error> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    socket.write_all(&case.to_bytes())?;
    let bytes = vec![7; case.size.max(1) as usize];
    if case.metric == Metric::Latency {
        return ping_pong(socket, case, bytes);
    }
    let start = Instant::now();
    for _ in 0..case.count {
        socket.write_all(&bytes)?;
    }
    socket.read_exact(&mut [0])?;
    Ok(Sample::Throughput {
        messages: u64::from(case.count),
        bytes: u64::from(case.count) * bytes.len() as u64,
        took: start.elapsed(),
    })
}

fn ping_pong(mut socket: TcpStream, case: &Case, mut bytes: Vec<u8>) -> Result<Sample, Error> {
    socket.set_nonblocking(true)?;
    // Half a round trip is compared with half a round trip.
    let ways = if matches!(case.op, Op::Send | Op::Write) {
        2
    } else {
        1
    };
    let mut times = Vec::with_capacity(case.count as usize);
    for _ in 0..case.count {
        let start = Instant::now();
        write_busy(&mut socket, &bytes)?;
        read_busy(&mut socket, &mut bytes)?;
        times.push(start.elapsed() / ways);
    }
    Ok(Sample::Times(times))
}

fn read_busy(socket: &mut TcpStream, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        match socket.read(&mut bytes[at..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_busy(socket: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        match socket.write(&bytes[at..]) {
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
