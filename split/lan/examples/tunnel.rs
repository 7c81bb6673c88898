//! A plain tunnel: TAP frames over one TCP connection, each behind its length. The split driver is measured beside it. It ends when the
//! connection does.
//!
//! `tunnel listen ADDRESS TAP` on one side, `tunnel connect ADDRESS TAP` on the other; `offloads` behind it on both sides forwards
//! super-frames unsegmented, `unpaced` behind that turns pacing of the connection off, and a number behind that gives the interface as
//! many queues, with a connection and two threads each. Address and MTU of the interface are set with `ip`.

use std::error::Error;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use verbena_lan::{Batch, MAX_FRAME_LEN, Offloads, Queue, Tap, VNET_HDR_LEN, Vnet, WriteOutcome};

const USAGE: &str = "tunnel listen|connect ADDRESS TAP [offloads [unpaced [QUEUES]]]";
/// Frames that are read before they are sent.
const FRAMES: usize = 64;
/// Time limit for the other side to start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type RunResult = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> RunResult {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (role, address, name, more) = match words[..] {
        [role, address, name, ref more @ ..] => (role, address, name, more),
        _ => return Err(USAGE.into()),
    };
    let (offloads, unpaced, queues) = match *more {
        [] => (Offloads::NONE, false, 1),
        ["offloads"] => (Offloads::ALL, false, 1),
        ["offloads", "unpaced"] => (Offloads::ALL, true, 1),
        ["offloads", "unpaced", queues] => (Offloads::ALL, true, queues.parse()?),
        _ => return Err(USAGE.into()),
    };
    let tap = Tap::create(name, queues)?;
    let granted = tap.set_offloads(offloads)?;
    tap.interface().set_up(true)?;
    println!("{}: {granted:?}", tap.interface().name()?);
    let streams: Vec<TcpStream> = match role {
        "listen" => {
            let listener = TcpListener::bind(address)?;
            let accept = |_| Ok(listener.accept()?.0);
            (0..queues).map(accept).collect::<std::io::Result<_>>()
        }
        "connect" => (0..queues).map(|_| connect(address)).collect(),
        _ => return Err(USAGE.into()),
    }?;
    std::thread::scope(|scope| {
        let all = tap.queues().iter().zip(&streams);
        let ends: Vec<_> = all
            .map(|(queue, stream)| scope.spawn(move || serve(queue, stream, unpaced)))
            .collect();
        for end in ends {
            end.join().map_err(|_| "a queue's thread crashed")??;
        }
        Ok(())
    })
}

/// Serves one queue and its connection until the peer closes it; the program then ends.
fn serve(queue: &Queue, stream: &TcpStream, unpaced: bool) -> RunResult {
    stream.set_nodelay(true)?;
    // As in the split driver: the senders of the frames pace them already.
    if unpaced && sockopt::tcp_congestion(stream)?.starts_with("bbr") {
        sockopt::set_tcp_congestion(stream, "reno")?;
    }
    std::thread::scope(|scope| {
        let out = scope.spawn(|| {
            let done = send(queue, stream);
            // The thread of the other direction must notice.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            done
        });
        let came = receive(queue, stream);
        let _ = stream.shutdown(std::net::Shutdown::Both);
        // The sender may be waiting for a frame; the exit ends it.
        if came.is_ok() {
            std::process::exit(0);
        }
        let went = out.join().map_err(|_| "the sender crashed")?;
        came.and(went)
    })
}

fn connect(address: &str) -> Result<TcpStream, std::io::Error> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Err(_) if start.elapsed() < CONNECT_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(50));
            }
            answer => return answer,
        }
    }
}

fn wait(queue: &Queue, flags: PollFlags) -> RunResult {
    let fd = queue.as_fd();
    poll(&mut [PollFd::new(&fd, flags)], None)?;
    Ok(())
}

/// From the TAP to the peer.
fn send(queue: &Queue, mut stream: &TcpStream) -> RunResult {
    let mut batch = Batch::new(FRAMES);
    let mut bytes = Vec::new();
    loop {
        if queue.read(&mut batch)?.frames == 0 {
            wait(queue, PollFlags::IN)?;
            continue;
        }
        bytes.clear();
        for frame in batch.frames() {
            let len = VNET_HDR_LEN + frame.bytes().len();
            bytes.extend(u32::try_from(len)?.to_le_bytes());
            bytes.extend(frame.vnet().emit());
            bytes.extend(frame.bytes());
        }
        stream.write_all(&bytes)?;
    }
}

/// From the peer to the TAP.
fn receive(queue: &Queue, stream: &TcpStream) -> RunResult {
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    let mut frame = vec![0; VNET_HDR_LEN + MAX_FRAME_LEN];
    loop {
        let mut len = [0; 4];
        if let Err(error) = stream.read_exact(&mut len) {
            let ended = error.kind() == std::io::ErrorKind::UnexpectedEof;
            return if ended { Ok(()) } else { Err(error.into()) };
        }
        let len = u32::from_le_bytes(len) as usize;
        let frame = frame.get_mut(..len).ok_or("frame longer than the limit")?;
        stream.read_exact(frame)?;
        let (vnet, bytes) = frame.split_first_chunk().ok_or("a frame without header")?;
        let vnet = Vnet::parse(vnet)?;
        // A frame that the interface rejects (it is down, say) is lost.
        while queue.write_frame(&vnet, bytes)? == WriteOutcome::WouldBlock {
            wait(queue, PollFlags::OUT)?;
        }
    }
}
