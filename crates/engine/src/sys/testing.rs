//! Helpers of the tests in `sys`: loopback addresses, connected sockets, registered memory.
//! They use real sockets, and wait for readiness instead of sleeping.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::Arc;

use verbena_mem::{Access, Buffer, MemAccess, Pd, Policy, Sources, Targets, Tpt};
use verbena_nic::{Carrier, IoOutcome};

use super::{Interest, Listener, Poller, Ready, Socket};

/// Long enough for a busy machine; reaching it is a failure.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

const PD: Pd = Pd(1);

/// The loopback addresses of this machine; prints a note if IPv6 is missing.
pub(crate) fn loopbacks() -> Vec<IpAddr> {
    let mut all = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
    match Listener::bind(SocketAddr::new(six, 0), false) {
        Ok(_) => all.push(six),
        Err(error) => eprintln!("SKIPPED: no IPv6 loopback on this machine ({error})"),
    }
    all
}

/// Waits until the descriptor is ready for `interest`, and returns its readiness.
pub(crate) fn await_ready(fd: impl AsFd, interest: Interest) -> Ready {
    let poller = Poller::new().unwrap();
    poller.add(fd, 7, interest).unwrap();
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(TEST_TIMEOUT)).unwrap();
    assert_eq!(ready.len(), 1, "not ready in time");
    ready[0]
}

pub(crate) const WRITE: Interest = Interest {
    read: false,
    write: true,
    oneshot: false,
};

/// The two ends of a loopback connection: initiator, acceptor.
pub(crate) fn connection(ip: IpAddr) -> (Socket, Socket) {
    let listener = Listener::bind(SocketAddr::new(ip, 0), false).unwrap();
    let dialled = Socket::connect(listener.local_addr().unwrap(), None, None).unwrap();
    await_ready(&listener, Interest::READ);
    let (accepted, from) = listener.accept().unwrap().unwrap();
    await_ready(&dialled, WRITE);
    assert!(dialled.is_connected().unwrap());
    assert_eq!(dialled.local_addr().unwrap(), from);
    (dialled, accepted)
}

/// Sends all of `bytes`; they must fit.
pub(crate) fn send(mut socket: &Socket, bytes: &[u8]) {
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(bytes));
    assert_eq!(socket.write(&sources), IoOutcome::Bytes(bytes.len()));
}

/// One attempt to read up to `most` bytes.
pub(crate) fn receive(mut socket: &Socket, most: usize) -> (IoOutcome, Vec<u8>) {
    let mut room = vec![0; most];
    let mut targets = Targets::new();
    assert!(targets.stage(&mut room));
    let moved = socket.read(&mut targets);
    drop(targets);
    if let IoOutcome::Bytes(n) = moved {
        room.truncate(n);
    }
    (moved, room)
}

/// A protection table and registered memory in it.
pub(crate) fn memory(len: usize) -> (Arc<Tpt>, Buffer) {
    let tpt = Arc::new(Tpt::new(1..10, Policy::Verbs, 1));
    let buffer = Buffer::new(&tpt, len, PD, Access::ALL).unwrap();
    (tpt, buffer)
}

/// A part of the registered memory.
pub(crate) fn part(buffer: &Buffer, offset: u64, len: u64, needs: Access) -> MemAccess {
    MemAccess {
        stag: buffer.stag(),
        at: buffer.at() + offset,
        len,
        pd: PD,
        qp: 1,
        needs,
    }
}
