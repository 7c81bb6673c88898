//! The serving side of a benchmark: answers messages, and shares memory for one-sided operations. It serves one client after the other,
//! each as the private data of its connections says, until the process ends.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use verbena::cm::ConnectRequest;
use verbena::{Config, Device, Listener, RemoteMemory};

use super::Error;
use super::answer::{answer_writes, await_disconnect, receive};
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
    /// How long a client may be silent.
    limit: Duration,
}

impl Server {
    /// Listens. A client may be silent for `limit`.
    pub fn bind(config: Config, at: SocketAddr, limit: Duration) -> Result<Server, Error> {
        let device = Device::with(config)?;
        let listener = device.listen(at)?;
        let tcp = match device.config().port {
            // An address of its own port is not the kernel's: clients measure without plain TCP.
            Some(ref port) if port.has_address(at.ip()) => TcpListener::bind("127.0.0.1:0")?,
            _ => TcpListener::bind(SocketAddr::new(at.ip(), 0))?,
        };
        Ok(Server {
            device,
            listener,
            tcp,
            limit,
        })
    }

    /// Its address.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local_addr()?)
    }

    /// Serves for ever; `told` gets the errors of clients, which do not end the server.
    pub fn run(&self, mut report: impl FnMut(&str)) -> Result<(), Error> {
        let (tcp, device) = (self.tcp.try_clone()?, self.device.clone());
        let limit = self.limit;
        std::thread::spawn(move || baseline::serve(&tcp, device.access_list(), limit));
        loop {
            if let Err(error) = self.serve() {
                report(&error.to_string());
            }
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let (request, call) = ClientHello::check(self.listener.next().wait()?)?;
        let case = call.case;
        let receives = match (case.op, case.metric) {
            (Op::Send, Metric::Latency) => 128,
            (Op::Send, _) => (4 * case.depth as usize).max(256),
            _ => 0,
        };
        let (mut first, mut number) = (Some((request, call)), 0);
        let mut sides = Vec::new();
        for part in case.per_cq() {
            let endpoint = BenchEndpoint::new(&self.device, part, self.limit)?;
            let mut words = endpoint.memory.remote().to_bytes().to_vec();
            if case.op == Op::Write && case.metric == Metric::Latency {
                let half = endpoint.len() as u64;
                let sink = endpoint.memory.remote().slice(half, half)?;
                words = sink.to_bytes().to_vec();
            }
            words.extend(self.tcp.local_addr()?.port().to_be_bytes());
            let mut remote = None;
            for (at, qp) in endpoint.qps.iter().enumerate() {
                let (request, next) = first.take().map_or_else(|| self.next_of_client(), Ok)?;
                if next.case != case || next.index != number {
                    request.reject(b"another client is being served");
                    return Err(Error::Failed(
                        "rejected a second client while another was connecting".to_owned(),
                    ));
                }
                number += 1;
                remote = Some(next.remote);
                endpoint.post_receives(at, receives)?;
                request.accept_on(qp, &words)?.wait()?;
            }
            sides.push((endpoint, remote.unwrap_or(call.remote), AtomicU32::new(0)));
        }
        run_in_threads(case.threads as usize, |thread| {
            let (endpoint, remote, taken) = &sides[if case.one_cq { 0 } else { thread }];
            let count = endpoint.case.count;
            // Of latency messages the client sends a tenth more, as warm-up.
            let turns = count.saturating_add(count / 10);
            match (case.metric, case.op) {
                (Metric::Latency, Op::Send) => receive(endpoint, remote, taken, turns),
                (Metric::Latency, Op::Write) => answer_writes(endpoint, remote, turns),
                (_, Op::Send) => receive(endpoint, remote, taken, count),
                _ => Ok(()),
            }
        })?;
        for (endpoint, _, taken) in sides.iter().filter(|_| case.op == Op::Send) {
            let (taken, count) = (taken.load(Ordering::Relaxed), endpoint.case.count);
            if taken < count {
                let text = format!("a client disconnected after {taken} of {count} messages");
                return Err(Error::Failed(text));
            }
        }
        // The client's remaining operations need no thread here.
        let endpoints: Vec<&BenchEndpoint> = sides.iter().map(|(endpoint, ..)| endpoint).collect();
        await_disconnect(&endpoints, self.limit)
    }

    /// The next connection of a client that has begun to connect.
    fn next_of_client(&self) -> Result<(ConnectRequest, ClientHello), Error> {
        let start = Instant::now();
        loop {
            match self.listener.try_next()? {
                Some(request) => return ClientHello::check(request),
                None if start.elapsed() >= self.limit => return Err(Error::Silent(self.limit)),
                None => std::thread::sleep(Duration::from_micros(100)),
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
    /// The request of a benchmark client; others are rejected.
    fn check(request: ConnectRequest) -> Result<(ConnectRequest, ClientHello), Error> {
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

    fn from_bytes(bytes: &[u8]) -> Option<ClientHello> {
        let (at, rest) = bytes.get(Case::BYTES..)?.split_first_chunk()?;
        Some(ClientHello {
            case: Case::from_bytes(bytes)?,
            index: u32::from_be_bytes(*at) as usize,
            remote: RemoteMemory::from_bytes(rest).ok()?,
        })
    }
}
