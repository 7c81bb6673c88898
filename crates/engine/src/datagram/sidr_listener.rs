//! A SIDR listener: a UDP port that answers which datagram queue pair serves a request (docs/extensions.md, inquiries).
//! The program is shown a request once, however often it is repeated; repetitions get the same answer. Requests beyond the backlog and
//! malformed datagrams are dropped and counted.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;
use verbena_wire::ext::{MAX_SIDR_PRIVATE_DATA, SidrKind, SidrMessage};
use verbena_wire::number::Qpn;

use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::roce::cm::sidr::{self, SidrArrival, SidrOrigin, SidrService};
use crate::roce::cm::{RoceCm, ServiceGuard};
use crate::sys::{self, DatagramSocket, Interest, Ready};

/// Datagrams read in one turn of the shard.
const READ_BATCH: usize = 64;
/// Answers that are kept for repeated requests.
const MAX_ANSWERS: usize = 1024;
/// How long an answer is kept; requests are not repeated later.
const ANSWER_LIFETIME: Duration = Duration::from_secs(90);

/// The address of a datagram queue pair, and its Q_Key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdEndpoint {
    /// Its number.
    pub number: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// Its address.
    pub address: IpAddr,
}

/// Counters of a SIDR listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SidrCounters {
    /// Requests shown to the program.
    pub requests: u64,
    /// Repeated requests.
    pub repeated: u64,
    /// Requests dropped because the backlog was full.
    pub backlog_full: u64,
    /// Datagrams that were no request.
    pub malformed: u64,
}

/// Called with every request.
type RequestCallback = Arc<dyn Fn(SidrRequest) + Send + Sync>;
/// Identifies a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RequestKey {
    peer: SocketAddr,
    transaction: u64,
    /// Present if it was a SIDR_REQ of the connection manager of RoCEv2.
    roce: Option<SidrOrigin>,
}

/// A SIDR listener.
#[derive(Debug)]
pub struct SidrListener(Arc<ListenerState>);

/// Its state, served by a shard.
struct ListenerState {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: DatagramSocket,
    local_addr: SocketAddr,
    requests: Mutex<RequestTable>,
    /// Set while requests are received over RoCEv2, too.
    roce: Mutex<Option<ServiceGuard>>,
}

/// Open requests and kept answers.
#[derive(Default)]
struct RequestTable {
    /// None while the listener is not open.
    callback: Option<RequestCallback>,
    backlog: usize,
    /// Requests without an answer yet.
    open: HashSet<RequestKey>,
    answers: HashMap<RequestKey, Arc<[u8]>>,
    /// The answers, oldest first.
    order: VecDeque<(Time, RequestKey)>,
    counters: SidrCounters,
}

impl RequestTable {
    /// Removes answers older than [`ANSWER_LIFETIME`], and the oldest ones beyond [`MAX_ANSWERS`].
    fn expire_answers(&mut self, now: Time) {
        while let Some((at, key)) = self.order.front().copied() {
            if self.order.len() <= MAX_ANSWERS && at + ANSWER_LIFETIME > now {
                break;
            }
            self.order.pop_front();
            self.answers.remove(&key);
        }
    }

    /// Decides about a request: send a kept answer, call the program, or ignore it.
    fn handle_request(&mut self, key: RequestKey, now: Time) -> Action {
        self.expire_answers(now);
        if let Some(answer) = self.answers.get(&key) {
            self.counters.repeated += 1;
            return Action::Answer(answer.clone());
        }
        if self.open.contains(&key) {
            self.counters.repeated += 1;
            return match key.roce {
                Some(_) => Action::Nothing,
                None => Action::Answer(key.emit(SidrKind::Pending, &[])),
            };
        }
        let Some(callback) = &self.callback else {
            return Action::Nothing;
        };
        if self.open.len() >= self.backlog {
            self.counters.backlog_full += 1;
            return Action::Nothing;
        }
        self.open.insert(key);
        self.counters.requests += 1;
        Action::Present(callback.clone())
    }
}

enum Action {
    Nothing,
    Answer(Arc<[u8]>),
    Present(RequestCallback),
}

impl RequestKey {
    /// The answer in the protocol of the request. RoCEv2 has none that says that a request is pending.
    fn emit(&self, kind: SidrKind, private_data: &[u8]) -> Arc<[u8]> {
        match self.roce {
            Some(origin) => {
                let queue_pair = match kind {
                    SidrKind::Accepted { number, qkey, .. } => Some((number, qkey)),
                    SidrKind::Request | SidrKind::Pending | SidrKind::Refused => None,
                };
                Arc::from(&sidr::answer(&origin, queue_pair, private_data)[..])
            }
            None => {
                let inquiry = SidrMessage {
                    transaction: self.transaction,
                    kind,
                    private_data,
                };
                Arc::from(&inquiry.emit()[..])
            }
        }
    }

    /// Bytes of private data that an answer has room for.
    fn max_private_data(&self) -> usize {
        match self.roce {
            Some(_) => sidr::MAX_ANSWER_DATA,
            None => MAX_SIDR_PRIVATE_DATA,
        }
    }
}

/// Checks that private data fits.
pub(crate) fn check_private_data(private_data: &[u8]) -> Result<(), Error> {
    if private_data.len() <= MAX_SIDR_PRIVATE_DATA {
        return Ok(());
    }
    Err(Error::PrivateData {
        got: private_data.len(),
        limit: MAX_SIDR_PRIVATE_DATA,
    })
}

impl Engine {
    /// Binds a SIDR listener to this address, not open yet; port 0 selects a free port.
    pub fn bind_sidr_listener(&self, at: SocketAddr) -> Result<SidrListener, Error> {
        self.core.check()?;
        let socket = DatagramSocket::bind(self.core.local_addresses.to_bind(at)?)?;
        let at = socket.local_addr()?;
        self.core.check_owner(at, None)?;
        Ok(SidrListener(Arc::new(ListenerState {
            core: self.core.clone(),
            shard: self.core.shards.pick()?,
            token: next_token(),
            socket,
            local_addr: at,
            requests: Mutex::default(),
            roce: Mutex::default(),
        })))
    }
}

impl SidrListener {
    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr
    }

    /// Opens the listener: `callback` is called with every request, on the thread that received it and without any lock; it must not block. At most
    /// `backlog` requests are open at a time.
    pub fn listen(
        &self,
        backlog: usize,
        callback: impl Fn(SidrRequest) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let inner = &self.0;
        inner.core.check()?;
        let before = {
            let mut book = inner.requests.lock();
            book.backlog = backlog;
            book.callback.replace(Arc::new(callback))
        };
        if before.is_some() {
            return Ok(());
        }
        let served = inner.serve().and_then(|()| inner.listen_on_roce());
        if served.is_err() {
            inner.shard.unwatch(&inner.socket);
            inner.shard.forget(inner.token);
            // Not open: the next attempt serves it.
            inner.requests.lock().callback = None;
        }
        served
    }

    /// The counters.
    pub fn counters(&self) -> SidrCounters {
        if !self.0.core.is_alive() {
            return SidrCounters::default();
        }
        self.0.requests.lock().counters
    }
}

impl Drop for SidrListener {
    fn drop(&mut self) {
        let inner = &self.0;
        if !inner.core.is_alive() {
            return;
        }
        let service = inner.roce.lock().take();
        drop(service);
        let callback = inner.requests.lock().callback.take();
        if callback.is_some() {
            inner.shard.unwatch(&inner.socket);
            inner.shard.forget(inner.token);
        }
    }
}

impl ListenerState {
    fn serve(self: &Arc<Self>) -> Result<(), Error> {
        self.shard
            .serve_watched(self.token, self.clone(), &self.socket, Interest::READ)
    }

    fn handle_datagram(self: &Arc<Self>, bytes: &[u8], from: SocketAddr) {
        let request = SidrMessage::parse(bytes).ok();
        let request = request.filter(|one| one.kind == SidrKind::Request);
        let Some(request) = request else {
            self.requests.lock().counters.malformed += 1;
            return;
        };
        let key = RequestKey {
            peer: from,
            transaction: request.transaction,
            roce: None,
        };
        self.present(key, request.private_data.to_vec());
    }

    /// Shows the program a request that is new, and answers one that is repeated.
    fn present(self: &Arc<Self>, key: RequestKey, private_data: Vec<u8>) {
        let next = self.requests.lock().handle_request(key, sys::now());
        match next {
            Action::Nothing => {}
            Action::Answer(answer) => self.send(&answer, &key),
            Action::Present(callback) => {
                let request = SidrRequest {
                    listener: self.clone(),
                    key,
                    private_data,
                    answered: false,
                };
                catch_panic(|| callback(request));
            }
        }
    }

    fn listen_on_roce(self: &Arc<Self>) -> Result<(), Error> {
        let service: Arc<dyn SidrService> = self.clone();
        let guard = RoceCm::listen_sidr(&self.core, &service, self.local_addr)?;
        let before = core::mem::replace(&mut *self.roce.lock(), guard);
        drop(before);
        Ok(())
    }

    fn send(&self, answer: &[u8], key: &RequestKey) {
        // If the answer is lost, the peer repeats its request.
        match (&key.roce, answer.try_into()) {
            (Some(origin), Ok(mad)) => {
                RoceCm::send_sidr_answer(&self.core, origin, key.peer.ip(), mad);
            }
            _ => {
                let _ = self.socket.send(answer, key.peer);
            }
        }
    }
}

impl ShardTask for ListenerState {
    fn ready(self: Arc<Self>, _: Ready) {
        // One byte more than a request, so that a longer datagram is recognized as longer.
        let mut room = [0; SidrMessage::LEN + 1];
        for _ in 0..READ_BATCH {
            let Ok(Some((len, from))) = self.socket.receive(&mut room) else {
                break;
            };
            if self.core.security.access.admits(from.ip()) {
                self.handle_datagram(room.get(..len).unwrap_or(&room), from);
            }
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {
        let callback = self.requests.lock().callback.take();
        // Dropped without the lock: it is the program's code.
        drop(callback);
    }
}

impl SidrService for ListenerState {
    fn handle_request(self: Arc<Self>, request: SidrArrival) {
        let key = RequestKey {
            peer: request.peer,
            transaction: 0,
            roce: Some(request.origin),
        };
        self.present(key, request.private_data);
    }
}

/// A request without an answer yet. Dropping it sends a rejection. It can be answered after the listener was dropped.
pub struct SidrRequest {
    listener: Arc<ListenerState>,
    key: RequestKey,
    private_data: Vec<u8>,
    answered: bool,
}

impl SidrRequest {
    /// The source of the request.
    pub fn peer_addr(&self) -> SocketAddr {
        self.key.peer
    }

    /// The address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr
    }

    /// The private data of the request.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Answers with the address of the queue pair. Private data that is too long is an error, and the request is refused.
    pub fn accept(mut self, at: UdEndpoint, private_data: &[u8]) -> Result<(), Error> {
        let (got, limit) = (private_data.len(), self.key.max_private_data());
        if got > limit {
            return Err(Error::PrivateData { got, limit });
        }
        let gid = match at.address {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let matter = SidrKind::Accepted {
            number: at.number,
            qkey: at.qkey,
            gid,
        };
        self.answer(matter, private_data);
        Ok(())
    }

    /// Refuses the request, with private data for the peer's program; what does not fit is cut.
    pub fn reject(mut self, private_data: &[u8]) {
        self.answer(SidrKind::Refused, private_data);
    }

    fn answer(&mut self, matter: SidrKind, private_data: &[u8]) {
        if self.answered || !self.listener.core.is_alive() {
            return;
        }
        self.answered = true;
        let answer = self.key.emit(matter, private_data);
        {
            let mut book = self.listener.requests.lock();
            let now = sys::now();
            book.open.remove(&self.key);
            book.answers.insert(self.key, answer.clone());
            book.order.push_back((now, self.key));
            book.expire_answers(now);
        }
        self.listener.send(&answer, &self.key);
    }
}

impl Drop for SidrRequest {
    fn drop(&mut self) {
        self.answer(SidrKind::Refused, &[]);
    }
}

impl core::fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ListenerState")
            .field("at", &self.local_addr)
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for SidrRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("SidrRequest")
            .field(&self.peer_addr())
            .finish()
    }
}

#[cfg(test)]
mod tests;
