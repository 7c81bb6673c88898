//! An impaired network for UDP: datagrams are passed, lost, duplicated or delayed, depending on a seed. Each client has a socket of its
//! own, and the same datagrams in the same order have the same results. Datagrams that the system received as one are treated one by one.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the example and tests use a part each"
)]

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// Percentages of datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub loss: f64,
    pub reorder: f64,
    pub duplicate: f64,
}

/// Counters of the results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounters {
    pub received: u64,
    pub lost: u64,
    pub reordered: u64,
    pub duplicated: u64,
}

/// Most clients; further ones are ignored.
const CLIENTS: usize = 64;
/// Datagrams of one socket per turn.
const BURST: usize = 64;

struct Client {
    from: SocketAddr,
    upstream: UdpSocket,
    /// Delayed datagrams, in each direction.
    late: [Option<Vec<u8>>; 2],
}

pub struct Relay {
    listener: UdpSocket,
    to: SocketAddr,
    clients: Vec<Client>,
    faults: Faults,
    random: u64,
    pub counters: RelayCounters,
}

impl Relay {
    pub fn new(listen: SocketAddr, to: SocketAddr, faults: Faults, seed: u64) -> Result<Relay> {
        Ok(Relay {
            listener: open(listen)?,
            to,
            clients: Vec::new(),
            faults,
            random: seed,
            counters: RelayCounters::default(),
        })
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut room = vec![0; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            let moved = self.forward_to_server(&mut room)? | self.forward_to_clients(&mut room)?;
            if !moved {
                // No datagram follows that they could be delayed behind.
                self.release();
                self.wait()?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        let sockets = self.clients.iter().map(|client| &client.upstream);
        let mut on: Vec<PollFd<'_>> = sockets
            .chain([&self.listener])
            .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
            .collect();
        let while_ = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        poll(&mut on, Some(&while_)).map_err(Error::from).map(drop)
    }

    /// Datagrams from clients.
    fn forward_to_server(&mut self, room: &mut [u8]) -> Result<bool> {
        let mut moved = false;
        for _ in 0..BURST {
            let Some((len, from)) = ignore_transient(self.listener.recv_from(room))? else {
                break;
            };
            moved = true;
            let known = self.clients.iter().position(|client| client.from == from);
            let at = match known {
                Some(at) => at,
                None if self.clients.len() >= CLIENTS => continue,
                None => {
                    let any: SocketAddr = match self.to {
                        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                    };
                    let upstream = open(any)?;
                    upstream.connect(self.to)?;
                    let late = [None, None];
                    self.clients.push(Client {
                        from,
                        upstream,
                        late,
                    });
                    self.clients.len() - 1
                }
            };
            self.pass(at, 0, &room[..len]);
        }
        Ok(moved)
    }

    /// Datagrams to clients.
    fn forward_to_clients(&mut self, room: &mut [u8]) -> Result<bool> {
        let mut moved = false;
        for at in 0..self.clients.len() {
            for _ in 0..BURST {
                let Some(len) = ignore_transient(self.clients[at].upstream.recv(room))? else {
                    break;
                };
                moved = true;
                self.pass(at, 1, &room[..len]);
            }
        }
        Ok(moved)
    }

    fn pass(&mut self, at: usize, direction: usize, bytes: &[u8]) {
        self.counters.received += 1;
        if self.happens(self.faults.loss) {
            self.counters.lost += 1;
            return;
        }
        let twice = self.happens(self.faults.duplicate);
        self.counters.duplicated += u64::from(twice);
        let late = self.happens(self.faults.reorder);
        let held = self.clients[at].late[direction].take();
        if late && held.is_none() {
            self.counters.reordered += 1;
            self.clients[at].late[direction] = Some(bytes.to_vec());
        } else {
            self.send(at, direction, bytes);
        }
        if twice {
            self.send(at, direction, bytes);
        }
        if let Some(held) = held {
            self.send(at, direction, &held);
        }
    }

    /// A datagram that the system does not take is lost.
    fn send(&self, at: usize, direction: usize, bytes: &[u8]) {
        let client = &self.clients[at];
        let _ = match direction {
            0 => client.upstream.send(bytes),
            _ => self.listener.send_to(bytes, client.from),
        };
    }

    fn release(&mut self) {
        for at in 0..self.clients.len() {
            for direction in 0..2 {
                if let Some(held) = self.clients[at].late[direction].take() {
                    self.send(at, direction, &held);
                }
            }
        }
    }

    fn happens(&mut self, percent: f64) -> bool {
        ((next(&mut self.random) % 1_000_000) as f64) < percent * 10_000.0
    }
}

/// The next pseudo-random number (SplitMix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn open(at: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, 8 << 20)?;
    }
    Ok(socket)
}

/// `None` if nothing was received, or for an error of an earlier send.
fn ignore_transient<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(got) => Ok(Some(got)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable => Ok(None),
            _ => Err(error),
        },
    }
}
