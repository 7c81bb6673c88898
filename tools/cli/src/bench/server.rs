//! The serving side of a benchmark: answers messages, and shares memory for one-sided operations. It serves one client after the other,
//! each as the private data of its connections says, until the process ends.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use verbena::low::Wc;
use verbena::{Config, ConnectRequest, Device, Listener, RemoteMemory};

use super::Error;
use super::baseline;
use super::case::{Case, Metric, Op};
use super::endpoint::{BenchEndpoint, run_in_threads};

/// A server.
#[derive(Debug)]
pub struct Server {
    device: Device,
    listener: Listener,
    /// Where plain TCP is measured.
    tcp: TcpListener,
}

impl Server {
    /// Listens.
    pub fn bind(config: Config, at: SocketAddr) -> Result<Server, Error> {
        let device = Device::with(config)?;
        let listener = device.listen(at)?;
        let tcp = TcpListener::bind(SocketAddr::new(at.ip(), 0))?;
        Ok(Server {
            device,
            listener,
            tcp,
        })
    }

    /// Its address.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local_addr()?)
    }

    /// Serves for ever; `told` gets the errors of clients, which do not end the server.
    pub fn run(&self, mut notified: impl FnMut(&str)) -> Result<(), Error> {
        let (tcp, device) = (self.tcp.try_clone()?, self.device.clone());
        std::thread::spawn(move || baseline::serve(&tcp, device.access_list()));
        loop {
            if let Err(error) = self.serve() {
                notified(&error.to_string());
            }
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let (request, call) = self.next()?;
        let case = call.case;
        let receives = match (case.op, case.metric) {
            (Op::Send, Metric::Latency) => 128,
            (Op::Send, _) => (4 * case.depth as usize).max(256),
            _ => 0,
        };
        let (mut first, mut number) = (Some((request, call)), 0);
        let mut sides = Vec::new();
        for part in case.per_cq() {
            let station = BenchEndpoint::new(&self.device, part)?;
            let mut words = station.memory.remote().to_bytes().to_vec();
            if case.op == Op::Write && case.metric == Metric::Latency {
                let half = station.len() as u64;
                let sink = station.memory.remote().slice(half, half)?;
                words = sink.to_bytes().to_vec();
            }
            words.extend(self.tcp.local_addr()?.port().to_be_bytes());
            let mut remote = None;
            for (at, qp) in station.qps.iter().enumerate() {
                let (request, next) = first.take().map_or_else(|| self.next(), Ok)?;
                if next.case != case || next.index != number {
                    request.reject(b"another client is being served");
                    return Err(Error::Failed(
                        "rejected a second client while another was connecting".to_owned(),
                    ));
                }
                number += 1;
                remote = Some(next.remote);
                station.post_receives(at, receives)?;
                request.accept_on(qp, &words)?.wait()?;
            }
            sides.push((station, remote.unwrap_or(call.remote), AtomicU32::new(0)));
        }
        run_in_threads(case.threads as usize, |thread| {
            let (station, remote, taken) = &sides[if case.one_cq { 0 } else { thread }];
            match (case.metric, case.op) {
                (Metric::Latency, Op::Send) => answer_sends(station, remote),
                (Metric::Latency, Op::Write) => answer_writes(station, remote),
                (_, Op::Send) => poll_messages(station, taken),
                _ => Ok(()),
            }
        })?;
        // The client's remaining operations need no thread here: wait until it disconnects.
        while sides.iter().any(|(station, ..)| station.is_connected()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The next request of a benchmark client; others are rejected.
    fn next(&self) -> Result<(ConnectRequest, ClientHello), Error> {
        let request = self.listener.next().wait()?;
        match ClientHello::from_bytes(request.private_data()) {
            Some(call) => Ok((request, call)),
            None => {
                request.reject(b"not a client of this benchmark");
                Err(Error::Failed(
                    "rejected a connection that is not from a benchmark client".to_owned(),
                ))
            }
        }
    }
}

/// The private data of each of a client's connections.
#[derive(Clone, Copy)]
struct ClientHello {
    case: Case,
    /// The number of the connection.
    index: usize,
    /// Destination of answers.
    remote: RemoteMemory,
}

impl ClientHello {
    fn from_bytes(bytes: &[u8]) -> Option<ClientHello> {
        let (at, rest) = bytes.get(Case::BYTES..)?.split_first_chunk()?;
        Some(ClientHello {
            case: Case::from_bytes(bytes)?,
            index: u32::from_be_bytes(*at) as usize,
            remote: RemoteMemory::from_bytes(rest).ok()?,
        })
    }
}

fn answer_sends(station: &BenchEndpoint, remote: &RemoteMemory) -> Result<(), Error> {
    let mut wcs = [Wc::default(); 16];
    let mut idle = 0_u32;
    // The state of the connections is more expensive to read than a poll, so it is checked every 4096 empty polls.
    while !idle.is_multiple_of(4096) || idle == 0 || station.is_connected() {
        idle = idle.wrapping_add(1);
        for done in station.poll(&mut wcs)?.filter(|done| !done.is_send) {
            idle = 0;
            station.post_receives(done.qp_index, 1)?;
            station.post(done.qp_index, remote, 1)?;
        }
    }
    Ok(())
}

fn answer_writes(station: &BenchEndpoint, remote: &RemoteMemory) -> Result<(), Error> {
    let (mut wcs, count) = ([Wc::default(); 16], station.case.count);
    for turn in 0..(count + count / 10) as usize {
        station.await_mark(turn, &mut wcs)?;
        station.mark(turn)?;
        station.post(turn % station.qps.len(), remote, 1)?;
        station.poll_batch(turn, &mut wcs)?;
    }
    Ok(())
}

/// Polls all messages of a completion queue, together with the other threads that poll it.
fn poll_messages(station: &BenchEndpoint, taken: &AtomicU32) -> Result<(), Error> {
    let mut wcs = [Wc::default(); 64];
    while taken.load(Ordering::Relaxed) < station.case.count {
        let mut some = 0;
        for done in station.poll(&mut wcs)? {
            station.post_receives(done.qp_index, 1)?;
            some += 1;
        }
        if some > 0 {
            taken.fetch_add(some, Ordering::Relaxed);
        }
    }
    Ok(())
}
