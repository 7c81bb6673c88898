//! The same pattern over plain TCP sockets, for comparison. Nagle's algorithm is off, latency is measured with busy polling as on the
//! adapter, and streams are read in large pieces. Connects, and peers that are silent, have a time limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use verbena::unstable::access::AccessList;

use super::Error;
use super::case::{Case, Metric, Op};
use super::meter::{Extent, Meter};
use super::report::Sample;
use super::silence::Silence;
use super::tcp;

/// Bytes per read of a stream.
const CHUNK: usize = 256 << 10;

/// Serves measurements for ever.
pub(super) fn serve(listener: &TcpListener, access: &AccessList, limit: Duration) {
    loop {
        // An error of a client ends its measurement only.
        if let Ok((sockets, case)) = accept_all(listener, access, limit) {
            let _ = answer(sockets, &case, limit);
        }
    }
}

/// Accepts all sockets of the next client.
fn accept_all(
    listener: &TcpListener,
    access: &AccessList,
    limit: Duration,
) -> io::Result<(Vec<TcpStream>, Case)> {
    let mut sockets = Vec::new();
    loop {
        let (mut socket, source) = listener.accept()?;
        if !access.admits(source.ip()) {
            continue;
        }
        socket.set_read_timeout(Some(limit))?;
        socket.set_write_timeout(Some(limit))?;
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

fn answer(mut sockets: Vec<TcpStream>, case: &Case, limit: Duration) -> io::Result<()> {
    let size = case.size.max(1) as usize;
    let several = sockets.len() > 1;
    if case.metric == Metric::Latency || several {
        // A single socket that streams may block, as a program's would.
        sockets.iter().try_for_each(|s| s.set_nonblocking(true))?;
    }
    if case.metric == Metric::Latency {
        return tcp::echo(&mut sockets, size, limit);
    }
    let mut lanes: Vec<(TcpStream, usize)> = Vec::new();
    for (at, socket) in sockets.into_iter().enumerate() {
        lanes.push((socket, case.share(at) * size));
    }
    let (mut bytes, mut silence) = (vec![0; CHUNK], Silence::new(limit));
    let mut left: usize = lanes.iter().map(|(_, left)| left).sum();
    while left > 0 {
        for (socket, lane) in lanes.iter_mut().filter(|(_, left)| *left > 0) {
            match socket.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    *lane -= n.min(*lane);
                    left -= n.min(left);
                    silence.end();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && several => {
                    tcp::check(&mut silence)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(tcp::silent(limit));
                }
                Err(error) => return Err(error),
            }
        }
    }
    let (first, _) = &mut lanes[0];
    tcp::write_all(first, &[1], limit)
}

/// Measures the case's pattern.
pub(super) fn measure(server: SocketAddr, case: &Case, limit: Duration) -> Result<Sample, Error> {
    let mut sockets = Vec::new();
    for _ in 0..case.qps {
        let mut socket = connect(server, limit)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(limit))?;
        socket.set_write_timeout(Some(limit))?;
        socket.write_all(&case.to_bytes())?;
        sockets.push(socket);
    }
    let bytes = vec![7; case.size.max(1) as usize];
    if case.metric == Metric::Latency {
        sockets.iter().try_for_each(|s| s.set_nonblocking(true))?;
        // Half of a round trip is compared with half of a round trip.
        let ways = if matches!(case.op, Op::Send | Op::Write) {
            2
        } else {
            1
        };
        let extent = Extent::Messages {
            warmup: 0,
            count: case.count as usize,
        };
        let times = tcp::round_trips(&mut sockets, bytes.len(), ways, extent, limit)?;
        return Ok(Sample::Times(times));
    }
    let blocked = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock => tcp::silent(limit),
        _ => error,
    };
    let mut meter = Meter::start(None, bytes.len() as u32);
    for turn in 0..case.count as usize {
        let at = turn % sockets.len();
        sockets[at].write_all(&bytes).map_err(blocked)?;
        meter.record(1);
    }
    sockets[0].read_exact(&mut [0]).map_err(blocked)?;
    Ok(Sample::Throughput(meter.figures()))
}

fn connect(server: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&server, limit).map_err(|error| {
        let text = format!("cannot connect to {server} over plain TCP: {error}");
        io::Error::new(error.kind(), text)
    })
}

#[cfg(test)]
mod tests {
    //! Servers that accept and say nothing, or do not accept.

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    fn case(metric: Metric) -> Case {
        Case {
            op: Op::Send,
            metric,
            size: 64,
            count: 1 << 20,
            depth: 1,
            qps: 1,
            threads: 1,
            one_cq: false,
            poll_memory: false,
        }
    }

    #[test]
    fn silent_server_ends_measurement() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for metric in [Metric::Latency, Metric::Bandwidth] {
            let at = listener.local_addr().unwrap();
            let error = measure(at, &case(metric), LIMIT).unwrap_err();
            assert!(error.to_string().contains("silent for 50ms"), "{error}");
        }
    }

    #[test]
    fn silent_client_ends_its_measurement() {
        for (metric, qps) in [(Metric::Latency, 1), (Metric::Rate, 1), (Metric::Rate, 2)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let case = Case {
                qps,
                ..case(metric)
            };
            let connect = |_| {
                let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                socket.write_all(&case.to_bytes()).unwrap();
                socket
            };
            let _clients: Vec<TcpStream> = (0..qps).map(connect).collect();
            let device = verbena::Device::open().unwrap();
            let (sockets, asked) = accept_all(&listener, device.access_list(), LIMIT).unwrap();
            let error = answer(sockets, &asked, LIMIT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
    }

    #[test]
    fn connect_without_answer_ends() {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, 0).unwrap();
        let at = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        // The queue has room for one connection; requests beyond it are dropped.
        let waiting: Result<Vec<TcpStream>, io::Error> =
            (0..4).map(|_| connect(at, LIMIT)).collect();
        let error = waiting.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}
