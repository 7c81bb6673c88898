//! The same pattern over plain TCP sockets, for comparison. Nagle's algorithm is off, latency is measured with busy polling as on the
//! adapter, and streams are read in large pieces.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use verbena::access::AccessList;

use super::Error;
use super::case::{Case, Metric, Op};
use super::report::Sample;

/// Bytes per read of a stream.
const CHUNK: usize = 256 << 10;

/// Serves measurements for ever.
pub(super) fn serve(listener: &TcpListener, access: &AccessList) {
    loop {
        // An error of a client ends its measurement only.
        if let Ok((sockets, case)) = accept_all(listener, access) {
            let _ = answer(sockets, &case);
        }
    }
}

/// Accepts all sockets of the next client.
fn accept_all(
    listener: &TcpListener,
    access: &AccessList,
) -> std::io::Result<(Vec<TcpStream>, Case)> {
    let mut sockets = Vec::new();
    loop {
        let (mut socket, source) = listener.accept()?;
        if !access.admits(source.ip()) {
            continue;
        }
        let mut words = [0; Case::BYTES];
        socket.read_exact(&mut words)?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
        let case = Case::from_bytes(&words).ok_or(ErrorKind::InvalidData)?;
        if sockets.len() >= case.qps as usize {
            return Ok((sockets, case));
        }
    }
}

fn answer(mut sockets: Vec<TcpStream>, case: &Case) -> std::io::Result<()> {
    let size = case.size.max(1) as usize;
    let several = sockets.len() > 1;
    if case.metric == Metric::Latency || several {
        // A single socket that streams may block, as a program's would.
        sockets.iter().try_for_each(|s| s.set_nonblocking(true))?;
    }
    if case.metric == Metric::Latency {
        let mut bytes = vec![0; size];
        for turn in 0..case.count as usize {
            let at = turn % sockets.len();
            read_busy(&mut sockets[at], &mut bytes)?;
            write_busy(&mut sockets[at], &bytes)?;
        }
        return Ok(());
    }
    let mut lanes: Vec<(TcpStream, usize)> = Vec::new();
    for (at, socket) in sockets.into_iter().enumerate() {
        lanes.push((socket, case.share(at) * size));
    }
    let mut bytes = vec![0; CHUNK];
    let mut left: usize = lanes.iter().map(|(_, left)| left).sum();
    while left > 0 {
        for (socket, lane) in lanes.iter_mut().filter(|(_, left)| *left > 0) {
            match socket.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    *lane -= n.min(*lane);
                    left -= n.min(left);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    let (first, _) = &mut lanes[0];
    write_busy(first, &[1])
}

/// Measures the case's pattern.
pub(super) fn measure(server: SocketAddr, case: &Case) -> Result<Sample, Error> {
    let mut sockets = Vec::new();
    for _ in 0..case.qps {
        let mut socket = TcpStream::connect(server)?;
        socket.set_nodelay(true)?;
        socket.write_all(&case.to_bytes())?;
        sockets.push(socket);
    }
    let bytes = vec![7; case.size.max(1) as usize];
    if case.metric == Metric::Latency {
        return ping_pong(sockets, case, bytes);
    }
    let start = Instant::now();
    for turn in 0..case.count as usize {
        let at = turn % sockets.len();
        sockets[at].write_all(&bytes)?;
    }
    sockets[0].read_exact(&mut [0])?;
    Ok(Sample::Throughput {
        messages: u64::from(case.count),
        bytes: u64::from(case.count) * bytes.len() as u64,
        elapsed: start.elapsed(),
    })
}

fn ping_pong(
    mut sockets: Vec<TcpStream>,
    case: &Case,
    mut bytes: Vec<u8>,
) -> Result<Sample, Error> {
    sockets.iter().try_for_each(|s| s.set_nonblocking(true))?;
    // Half of a round trip is compared with half of a round trip.
    let ways = if matches!(case.op, Op::Send | Op::Write) {
        2
    } else {
        1
    };
    let mut times = Vec::with_capacity(case.count as usize);
    for turn in 0..case.count as usize {
        let at = turn % sockets.len();
        let start = Instant::now();
        write_busy(&mut sockets[at], &bytes)?;
        read_busy(&mut sockets[at], &mut bytes)?;
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
