//! Frames over many plain TCP connections in turn: what the kernel itself gives when there are many.
//! It promises the same sizes and the same turns as Verbena's many connections; the receiver sleeps in epoll.
//! It refuses to tell memory: what a socket takes is the kernel's.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use anyhow::{Result, bail};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::job::{Figures, Job, Meter};
use crate::tcp::{HEAD, connect, gather, head, spent};
use crate::usage;

/// Sockets that one wait may name.
const AT_ONCE: usize = 256;

/// Reads whatever comes on all of them, until all have ended.
pub(crate) fn take(job: &Job) -> Result<Figures> {
    usage::raise_descriptors()?;
    let listener = TcpListener::bind(job.at)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut lanes: Vec<Option<TcpStream>> = Vec::with_capacity(job.connections);
    for at in 0..job.connections {
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&poll, &socket, data, epoll::EventFlags::IN)?;
        lanes.push(Some(socket));
    }
    let before = usage::cpu();
    let mut bytes = vec![0; job.size.max(1) as usize + HEAD];
    let (mut events, mut left) = (Vec::with_capacity(AT_ONCE), lanes.len());
    while left > 0 {
        events.clear();
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        for event in &events {
            let lane = &mut lanes[event.data.u64() as usize];
            let ended = lane
                .as_mut()
                .is_some_and(|socket| drain(socket, &mut bytes));
            if let Some(mut socket) = lane.take_if(|_| ended) {
                left -= 1;
                socket.write_all(&[1])?;
            }
        }
    }
    Ok(spent(before))
}

/// Reads what is there; true at the end.
fn drain(socket: &mut TcpStream, bytes: &mut [u8]) -> bool {
    loop {
        match socket.read(bytes) {
            Ok(0) => return true,
            // Less than asked for: there is no more now.
            Ok(n) if n < bytes.len() => return false,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// One frame on each in turn.
pub(crate) fn give(job: &Job) -> Result<Figures> {
    let most = usage::raise_descriptors()?;
    if most < job.connections as u64 + 16 {
        bail!(
            "{} connections need as many descriptors, and this process may have {most}",
            job.connections
        );
    }
    let mut lanes = VecDeque::with_capacity(job.connections);
    for _ in 0..job.connections {
        lanes.push_back(connect(job)?);
    }
    let (bytes, before) = (vec![7; job.size.max(1) as usize], usage::cpu());
    let head = head(job.size.max(1));
    let mut meter = Meter::start(job);
    while let Some(mut socket) = lanes.pop_front() {
        gather(&mut socket, &head, &bytes)?;
        lanes.push_back(socket);
        if !meter.more(1) {
            break;
        }
    }
    // What the kernel has taken is not there yet: with many sockets that can be all of it.
    for socket in &lanes {
        socket.shutdown(Shutdown::Write)?;
    }
    for mut socket in lanes {
        socket.read_exact(&mut [0])?;
    }
    Ok(Figures {
        cpu: usage::cpu() - before,
        ..meter.figures()
    })
}
