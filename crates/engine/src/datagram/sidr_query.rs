//! Asks a SIDR listener for the number, Q_Key and address of a datagram queue pair. The request is repeated until an answer
//! arrives or the attempts are used up; `done` is called once with the result, and not at all if [`SidrQuery`] is dropped before.
//! Datagrams with another transaction number or from another port are counted and ignored.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU64, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::ext::{SidrKind, SidrMessage};

use crate::config::Wire;
use crate::datagram::sidr_listener::{UdEndpoint, check_private_data};
use crate::engine::Engine;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::lifecycle::Lifecycle;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::roce::cm::RoceCm;
use crate::roce::cm::sidr::{ResolvedService, RoceSidrQuery};
use crate::sys::{self, DatagramSocket, Interest, Ready};

/// Datagrams read in one turn of the shard.
const READ_BATCH: usize = 64;
/// How often a request without any reply is sent.
const TRIES: u32 = 6;
/// Time for a reply to the first request; each repetition has twice the time of the one before.
const FIRST_TIMEOUT: Duration = Duration::from_millis(50);
/// Interval of requests after the listener has acknowledged one.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// How long after the acknowledgement the answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Called with the queue pair's address and the private data of the answer.
type Done = Box<dyn FnOnce(Result<(UdEndpoint, Vec<u8>), Error>) + Send>;

/// A request in progress; dropping it cancels it without a call of `done`.
#[derive(Debug)]
pub struct SidrQuery(Inner);

/// The protocol of a request.
enum Inner {
    /// That of docs/extensions.md.
    Verbena(Arc<QueryState>),
    /// A SIDR_REQ of the connection manager of RoCEv2.
    Roce(RoceSidrQuery),
}

/// The state of a request, served by a shard.
struct QueryState {
    lifecycle: Arc<Lifecycle>,
    shard: Arc<Shard>,
    token: u64,
    socket: DatagramSocket,
    from: SocketAddr,
    to: SocketAddr,
    transaction: u64,
    request: [u8; SidrMessage::LEN],
    progress: Mutex<QueryProgress>,
    unrelated: AtomicU64,
}

/// Progress of a request.
struct QueryProgress {
    began: Time,
    tries: u32,
    /// When the listener first acknowledged the request.
    acknowledged: Option<Time>,
    timer: Option<Time>,
    /// None when the request has ended.
    done: Option<Done>,
}

impl Engine {
    /// Asks a SIDR listener, from this address or the one that routing selects. `done` is called with the answer, on the thread that
    /// received it and without any lock; it must not block.
    pub fn query_sidr(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<(UdEndpoint, Vec<u8>), Error>) + Send + 'static,
    ) -> Result<SidrQuery, Error> {
        self.core.check()?;
        if self.core.config.wire_to(to.ip()) == Wire::Roce {
            let done = move |result: Result<ResolvedService, Error>| done(result.map(endpoint_of));
            let query = RoceCm::query_sidr(&self.core, from, to, private_data, done)?;
            return Ok(SidrQuery(Inner::Roce(query)));
        }
        check_private_data(private_data)?;
        let any: IpAddr = if to.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = DatagramSocket::bind(SocketAddr::new(from.unwrap_or(any), 0))?;
        let transaction = sys::random_u64()?;
        let inquiry = SidrMessage {
            transaction,
            kind: SidrKind::Request,
            private_data,
        };
        let task = Arc::new(QueryState {
            lifecycle: self.core.lifecycle.clone(),
            shard: self.core.shards.pick()?,
            token: next_token(),
            from: socket.local_addr()?,
            socket,
            to,
            transaction,
            request: inquiry.emit(),
            progress: Mutex::new(QueryProgress {
                began: sys::now(),
                tries: 0,
                acknowledged: None,
                timer: None,
                done: Some(Box::new(done)),
            }),
            unrelated: AtomicU64::new(0),
        });
        task.begin()?;
        Ok(SidrQuery(Inner::Verbena(task)))
    }
}

impl SidrQuery {
    /// The local address of the request.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.0 {
            Inner::Verbena(query) => query.from,
            Inner::Roce(query) => query.local_addr(),
        }
    }

    /// The request has ended, or `done` is about to be called.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Verbena(query) => {
                !query.lifecycle.is_alive() || query.progress.lock().done.is_none()
            }
            Inner::Roce(query) => query.is_finished(),
        }
    }

    /// Datagrams received that did not answer this request.
    pub fn unrelated(&self) -> u64 {
        match &self.0 {
            Inner::Verbena(query) => query.unrelated.load(Ordering::Relaxed),
            // They are dropped by the connection manager.
            Inner::Roce(_) => 0,
        }
    }
}

impl Drop for SidrQuery {
    fn drop(&mut self) {
        // One of RoCEv2 is cancelled by its own drop.
        if let Inner::Verbena(query) = &self.0
            && query.lifecycle.is_alive()
        {
            drop(query.end());
        }
    }
}

impl core::fmt::Debug for Inner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Inner::Verbena(query) => query.fmt(f),
            Inner::Roce(query) => f.debug_tuple("Roce").field(&query.local_addr()).finish(),
        }
    }
}

/// The queue pair of a SIDR_REP.
fn endpoint_of(found: ResolvedService) -> (UdEndpoint, Vec<u8>) {
    let endpoint = UdEndpoint {
        number: found.qpn,
        qkey: found.qkey,
        address: found.address,
    };
    (endpoint, found.private_data)
}

impl QueryState {
    fn begin(self: &Arc<Self>) -> Result<(), Error> {
        self.shard.serve(self.token, self.clone())?;
        let watched = self.shard.watch(&self.socket, self.token, Interest::READ);
        let begun = watched.map_err(Error::from).and_then(|()| {
            let sent = self.socket.send(&self.request, self.to);
            sent.map_err(|cause| Error::Unreachable {
                peer: self.to,
                cause,
            })
        });
        if let Err(error) = begun {
            drop(self.end());
            return Err(error);
        }
        let mut course = self.progress.lock();
        course.tries = 1;
        self.set_timer(&mut course, FIRST_TIMEOUT);
        Ok(())
    }

    fn set_timer(&self, course: &mut QueryProgress, pause: Duration) {
        // The answer may have arrived before the timer is set.
        if course.done.is_some() {
            let when = sys::now() + pause;
            course.timer = Some(when);
            self.shard.set_timer(when, self.token);
        }
    }

    /// Ends the request; returns the callback unless it was taken before.
    fn end(&self) -> Option<Done> {
        let mut course = self.progress.lock();
        let done = course.done.take()?;
        let timer = course.timer.take();
        drop(course);
        if let Some(when) = timer {
            self.shard.cancel_timer(when, self.token);
        }
        self.shard.unwatch(&self.socket);
        self.shard.forget(self.token);
        Some(done)
    }

    fn finish(&self, answer: Result<(UdEndpoint, Vec<u8>), Error>) {
        if let Some(done) = self.end() {
            catch_panic(|| done(answer));
        }
    }

    fn resend(&self) {
        // A failure to send counts as a lost datagram: the next attempt repeats it.
        let _ = self.socket.send(&self.request, self.to);
    }

    /// Handles a datagram; none if it does not answer this request.
    fn handle_datagram(&self, bytes: &[u8], from: SocketAddr) -> Option<()> {
        let answer = SidrMessage::parse(bytes).ok()?;
        // A listener bound to the unspecified address may answer from another address, but not from another port.
        if answer.transaction != self.transaction || from.port() != self.to.port() {
            return None;
        }
        let said = answer.private_data.to_vec();
        match answer.kind {
            SidrKind::Request => return None,
            SidrKind::Pending => {
                self.progress
                    .lock()
                    .acknowledged
                    .get_or_insert_with(sys::now);
            }
            SidrKind::Accepted { number, qkey, gid } => {
                let address = Ipv6Addr::from(gid).to_canonical();
                if address.is_unspecified() || address.is_multicast() {
                    return None;
                }
                let at = UdEndpoint {
                    number,
                    qkey,
                    address,
                };
                self.finish(Ok((at, said)));
            }
            SidrKind::Refused => self.finish(Err(Error::Rejected {
                peer: self.to,
                private_data: said,
            })),
        }
        Some(())
    }

    /// The time until the next attempt; none if there is no further one.
    fn next_timeout(course: &mut QueryProgress, now: Time) -> Option<Duration> {
        if let Some(received) = course.acknowledged {
            return (now < received + ANSWER_TIMEOUT).then_some(RESEND_INTERVAL);
        }
        if course.tries >= TRIES {
            return None;
        }
        let pause = FIRST_TIMEOUT * (1 << course.tries);
        course.tries += 1;
        Some(pause)
    }
}

impl ShardTask for QueryState {
    fn ready(self: Arc<Self>, _: Ready) {
        // One byte more than an answer, so that a longer datagram is recognized as longer.
        let mut room = [0; SidrMessage::LEN + 1];
        for _ in 0..READ_BATCH {
            let Ok(Some((len, from))) = self.socket.receive(&mut room) else {
                break;
            };
            let received = self.handle_datagram(room.get(..len).unwrap_or(&room), from);
            if received.is_none() {
                self.unrelated.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        let mut course = self.progress.lock();
        if course.done.is_none() {
            return;
        }
        course.timer = None;
        match QueryState::next_timeout(&mut course, now) {
            Some(pause) => {
                self.set_timer(&mut course, pause);
                drop(course);
                self.resend();
            }
            None => {
                let limit = now.since(course.began);
                drop(course);
                self.finish(Err(Error::Timeout {
                    peer: self.to,
                    limit,
                }));
            }
        }
    }

    fn stop(self: Arc<Self>) {
        self.finish(Err(self.lifecycle.closed_error()));
    }
}

impl core::fmt::Debug for QueryState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QueryState")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}
