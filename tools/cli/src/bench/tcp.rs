//! Loops over byte streams: the ping-pong of the comparisons with plain TCP, and with TLS over it. Streams that do not block are polled; a
//! peer that is silent for longer than the limit ends them with `TimedOut`.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::meter::{Extent, Timer};
use super::silence::Silence;

/// Answers each message of `size` bytes, on the streams in turn, until one ends.
pub fn echo<S: Read + Write>(streams: &mut [S], size: usize, limit: Duration) -> io::Result<()> {
    let mut bytes = vec![0; size];
    for turn in 0.. {
        let stream = &mut streams[turn % streams.len()];
        if !read_all(stream, &mut bytes, limit)? {
            break;
        }
        write_all(stream, &bytes, limit)?;
    }
    Ok(())
}

/// One message after the other on the streams in turn, each echoed by the peer: the time of each round trip, divided by `ways`.
pub fn round_trips<S: Read + Write>(
    streams: &mut [S],
    size: usize,
    ways: u32,
    extent: Extent,
    limit: Duration,
) -> io::Result<Vec<Duration>> {
    let (mut bytes, mut timer) = (vec![7; size], Timer::start(extent));
    for turn in 0.. {
        let stream = &mut streams[turn % streams.len()];
        let start = Instant::now();
        if timer.is_over(turn, start) {
            break;
        }
        write_all(stream, &bytes, limit)?;
        if !read_all(stream, &mut bytes, limit)? {
            let text = "the server closed the connection";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        timer.record(turn, start, ways);
    }
    Ok(timer.into_times())
}

/// Fills the bytes; false if the stream ends before the first.
pub fn read_all(stream: &mut impl Read, bytes: &mut [u8], limit: Duration) -> io::Result<bool> {
    let (mut at, mut silence) = (0, Silence::new(limit));
    while at < bytes.len() {
        match stream.read(&mut bytes[at..]) {
            Ok(0) if at == 0 => return Ok(false),
            Ok(0) => {
                let text = "the stream ended within a message";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => check(&mut silence)?,
            Err(error) if is_disconnect(error.kind()) && at == 0 => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writes all bytes.
pub fn write_all(stream: &mut impl Write, bytes: &[u8], limit: Duration) -> io::Result<()> {
    let (mut at, mut silence) = (0, Silence::new(limit));
    while at < bytes.len() {
        match stream.write(&bytes[at..]) {
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => check(&mut silence)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// After a call that would block.
pub(super) fn check(silence: &mut Silence) -> io::Result<()> {
    if silence.is_check_due() && silence.is_too_long() {
        return Err(silent(silence.limit()));
    }
    Ok(())
}

/// The error for a silent peer.
pub(super) fn silent(limit: Duration) -> io::Error {
    let text = format!("the peer's socket has been silent for {limit:?}; --timeout sets the limit");
    io::Error::new(ErrorKind::TimedOut, text)
}

/// The peer ended the stream, perhaps without close_notify.
fn is_disconnect(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}
