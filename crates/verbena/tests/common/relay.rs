//! A TCP relay between two adapters that inspects every frame and can hold answers back.
//! It counts RDMA reads that are outstanding on the wire.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// Counts, and whether answers are held.
#[derive(Default)]
struct RelayState {
    held: bool,
    /// Read requests seen.
    requested: usize,
    /// Reads whose last segment was forwarded.
    answered: usize,
    /// Most reads requested and not answered at one time.
    max_outstanding: usize,
}

/// A relay to one server, for one connection without markers.
pub(crate) struct Relay {
    pub(crate) at: SocketAddr,
    state: Arc<(Mutex<RelayState>, Condvar)>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let seen = Arc::<(Mutex<RelayState>, Condvar)>::default();
        let (there, back) = (seen.clone(), seen.clone());
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || forward(from, to, |frame| on_response_frame(&back, frame)));
            forward(client, server, |frame| on_request_frame(&there, frame));
        });
        Relay { at, state: seen }
    }

    /// Holds every answer back from now on, or forwards them.
    pub(crate) fn hold(&self, held: bool) {
        self.state.0.lock().unwrap().held = held;
        self.state.1.notify_all();
    }

    /// Read requests seen, and the most that were outstanding at one time.
    pub(crate) fn reads(&self) -> (usize, usize) {
        let seen = self.state.0.lock().unwrap();
        (seen.requested, seen.max_outstanding)
    }
}

/// RFC 5040 §4.2: the opcode is in the lower four bits of the second control byte.
fn opcode(frame: &[u8]) -> u8 {
    frame[3] & 0xf
}

fn on_request_frame((seen, _): &(Mutex<RelayState>, Condvar), frame: &[u8]) {
    let mut seen = seen.lock().unwrap();
    seen.requested += usize::from(opcode(frame) == 1);
    seen.max_outstanding = seen.max_outstanding.max(seen.requested - seen.answered);
}

fn on_response_frame((seen, changed): &(Mutex<RelayState>, Condvar), frame: &[u8]) {
    let mut seen = changed
        .wait_while(seen.lock().unwrap(), |seen| seen.held)
        .unwrap();
    // RFC 5041 §4.1: the last segment of a message has the L bit.
    let last = frame[2] & 0x40 != 0;
    seen.answered += usize::from(opcode(frame) == 2 && last);
}

/// Forwards the startup frame, then frame by frame; `show` is called before each is forwarded.
fn forward(mut from: TcpStream, mut to: TcpStream, show: impl Fn(&[u8])) {
    to.set_nodelay(true).unwrap();
    let mut startup = true;
    let mut frame = Vec::new();
    loop {
        let head = if startup { 20 } else { 2 };
        frame.resize(head, 0);
        if from.read_exact(&mut frame).is_err() {
            let _ = to.shutdown(std::net::Shutdown::Write);
            return;
        }
        let len = usize::from(u16::from_be_bytes([frame[head - 2], frame[head - 1]]));
        // RFC 5044 §4.1: padded to four bytes, then the checksum.
        let rest = if startup {
            len
        } else {
            (2 + len).next_multiple_of(4) + 4 - 2
        };
        frame.resize(head + rest, 0);
        if from.read_exact(&mut frame[head..]).is_err() {
            return;
        }
        if !core::mem::take(&mut startup) {
            show(&frame);
        }
        if to.write_all(&frame).is_err() {
            return;
        }
    }
}
