//! Many plain TCP connections at once, as `many_qps` has them of Verbena: the limit of the system for that pattern. The order (each in turn)
//! and the number of messages in flight are the same, and each message is answered. Messages have no header, and sockets are read only
//! when epoll reports them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};

use crate::job::{Figures, Job};
use crate::usage;

/// Length of an answer: that of an acknowledgement of Verbena with its frame.
const ANSWER_LEN: usize = 24;
/// Limit on events of one wait.
const MAX_EVENTS: usize = 64;

const READABLE: epoll::EventFlags = epoll::EventFlags::IN;
const READ_WRITE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::OUT);

/// One socket and its progress.
struct Link {
    socket: TcpStream,
    /// Bytes to send.
    unsent: usize,
    /// Bytes received of the current message.
    received: usize,
    /// The socket buffer is full, and epoll waits for room.
    full: bool,
}

/// All sockets of one side, and their epoll instance.
struct Links {
    all: Vec<Link>,
    poller: rustix::fd::OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Links {
    fn new(count: usize) -> Result<Links> {
        Ok(Links {
            all: Vec::with_capacity(count),
            poller: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(MAX_EVENTS),
        })
    }

    fn add(&mut self, socket: TcpStream) -> Result<()> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let token = epoll::EventData::new_u64(self.all.len() as u64);
        epoll::add(&self.poller, &socket, token, READABLE)?;
        self.all.push(Link {
            socket,
            unsent: 0,
            received: 0,
            full: false,
        });
        Ok(())
    }

    /// Fills `ready`; without a timeout it blocks until there is an event.
    fn wait(&mut self, timeout: Option<&Timespec>) -> Result<()> {
        self.ready.clear();
        let room = rustix::buffer::spare_capacity(&mut self.ready);
        epoll::wait(&self.poller, room, timeout)?;
        Ok(())
    }

    /// Sends what is left, as far as there is room; all messages have the same bytes.
    fn send(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let link = &mut self.all[at];
        let mut full = false;
        while link.unsent > 0 && !full {
            // The unsent part of the oldest unsent message.
            let rest = (link.unsent - 1) % bytes.len() + 1;
            match link.socket.write(&bytes[bytes.len() - rest..]) {
                Ok(n) => link.unsent -= n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => full = true,
                Err(error) => return Err(error.into()),
            }
        }
        if full != link.full {
            link.full = full;
            let token = epoll::EventData::new_u64(at as u64);
            let interest = if full { READ_WRITE } else { READABLE };
            epoll::modify(&self.poller, &link.socket, token, interest)?;
        }
        Ok(())
    }

    /// Reads once, up to the end of the message; returns how many messages that completed, or `None` at the end of the stream.
    fn receive(&mut self, at: usize, bytes: &mut [u8]) -> Result<Option<u64>> {
        let link = &mut self.all[at];
        let rest = bytes.len() - link.received;
        match link.socket.read(&mut bytes[..rest]) {
            Ok(0) => Ok(None),
            Ok(n) => {
                link.received = (link.received + n) % bytes.len();
                Ok(Some(u64::from(n == rest)))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Some(0)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Receives messages and answers each, asleep while there are none.
pub(crate) fn serve(job: &Job) -> Result<Figures> {
    usage::allow_connections(job.connections)?;
    let listener = TcpListener::bind(job.at).with_context(|| format!("cannot bind {}", job.at))?;
    let (before, cpu) = (usage::resident()?, usage::cpu());
    let mut links = Links::new(job.connections)?;
    for _ in 0..job.connections {
        links.add(listener.accept()?.0)?;
    }
    let grown = usage::resident()?.saturating_sub(before);
    let mut bytes = vec![0; job.size.max(1) as usize];
    let mut there = links.all.len();
    while there > 0 {
        links.wait(None)?;
        for at in 0..links.ready.len() {
            let at = links.ready[at].data.u64() as usize;
            match links.receive(at, &mut bytes)? {
                Some(0) => links.send(at, &[7; ANSWER_LEN])?,
                Some(ended) => {
                    links.all[at].unsent += ended as usize * ANSWER_LEN;
                    links.send(at, &[7; ANSWER_LEN])?;
                }
                None => {
                    epoll::delete(&links.poller, &links.all[at].socket)?;
                    there -= 1;
                }
            }
        }
    }
    Ok(Figures {
        grown,
        cpu: usage::cpu() - cpu,
        ..Figures::default()
    })
}

/// Sends on each connection in turn, polling for answers.
pub(crate) fn call(job: &Job) -> Result<Figures> {
    usage::allow_connections(job.connections)?;
    let (before, cpu) = (usage::resident()?, usage::cpu());
    let mut links = Links::new(job.connections)?;
    for _ in 0..job.connections {
        let socket =
            TcpStream::connect(job.at).with_context(|| format!("cannot connect to {}", job.at))?;
        links.add(socket)?;
    }
    let grown = usage::resident()?.saturating_sub(before);
    let figures = send_in_turn(job, &mut links)?;
    Ok(Figures {
        grown,
        cpu: usage::cpu() - cpu,
        ..figures
    })
}

fn send_in_turn(job: &Job, links: &mut Links) -> Result<Figures> {
    let bytes = vec![7; job.size.max(1) as usize];
    let (mut turn, mut under, mut going) = (0, 0, true);
    let (count, depth) = (links.all.len(), job.inflight());
    let mut meter = job.meter_for_connections();
    while going || under > 0 {
        while going && under < depth {
            let at = turn % count;
            links.all[at].unsent += bytes.len();
            links.send(at, &bytes)?;
            turn += 1;
            under += 1;
        }
        links.wait(Some(&Timespec::default()))?;
        let mut ended = 0;
        for at in 0..links.ready.len() {
            let at = links.ready[at].data.u64() as usize;
            let Some(answers) = links.receive(at, &mut [0; ANSWER_LEN])? else {
                bail!("the server closed the connection");
            };
            ended += answers;
            links.send(at, &bytes)?;
        }
        under -= ended as usize;
        if ended > 0 {
            going &= meter.record(ended);
        }
    }
    Ok(meter.figures().into())
}
