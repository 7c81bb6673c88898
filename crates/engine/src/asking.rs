//! Asks a SIDR listener for the number, Q_Key and address of a datagram queue pair. The request is repeated until an answer
//! arrives or the attempts are used up; `done` is called once with the result, and not at all if [`Asking`] is dropped before.
//! Datagrams with another transaction number or from another port are counted and ignored.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use verbena_stream::Time;
use verbena_wire::ext::{Inquiry, Matter};

use crate::core::Core;
use crate::desk::{Whereabouts, check_said};
use crate::engine::Engine;
use crate::error::Error;
use crate::pipeline::shield;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Datagrams, Interest, Ready};

/// Datagrams read in one turn of the shard.
const AT_ONCE: usize = 64;
/// How often a request without any reply is sent.
const TRIES: u32 = 6;
/// Time for a reply to the first request; each repetition has twice the time of the one before.
const FIRST: Duration = Duration::from_millis(50);
/// Interval of requests after the listener has acknowledged one.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after the acknowledgement the answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Called with the queue pair's address and the private data of the answer.
type Done = Box<dyn FnOnce(Result<(Whereabouts, Vec<u8>), Error>) + Send>;

/// A request in progress; dropping it cancels it without a call of `done`.
#[derive(Debug)]
pub struct Asking(Arc<Errand>);

/// The state of a request, served by a shard.
struct Errand {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: Datagrams,
    from: SocketAddr,
    to: SocketAddr,
    transaction: u64,
    question: [u8; Inquiry::LEN],
    course: Mutex<Course>,
    strangers: AtomicU64,
}

/// Progress of a request.
struct Course {
    began: Time,
    tries: u32,
    /// When the listener first acknowledged the request.
    heard: Option<Time>,
    timer: Option<Time>,
    /// None when the request has ended.
    done: Option<Done>,
}

impl Engine {
    /// Asks a SIDR listener, from this address or the one that routing selects. `done` is called with the answer, on the thread that
    /// received it and without any lock; it must not block.
    pub fn ask(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<(Whereabouts, Vec<u8>), Error>) + Send + 'static,
    ) -> Result<Asking, Error> {
        self.core.check()?;
        check_said(private_data)?;
        let any: IpAddr = if to.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = Datagrams::bind(SocketAddr::new(from.unwrap_or(any), 0))?;
        let transaction = sys::random_u64()?;
        let question = Inquiry {
            transaction,
            matter: Matter::Question,
            private_data,
        };
        let errand = Arc::new(Errand {
            core: self.core.clone(),
            shard: self.core.shards.pick()?,
            token: next_token(),
            from: socket.local()?,
            socket,
            to,
            transaction,
            question: question.emit(),
            course: Mutex::new(Course {
                began: sys::now(),
                tries: 0,
                heard: None,
                timer: None,
                done: Some(Box::new(done)),
            }),
            strangers: AtomicU64::new(0),
        });
        errand.begin()?;
        Ok(Asking(errand))
    }
}

impl Asking {
    /// The local address of the request.
    pub fn local(&self) -> SocketAddr {
        self.0.from
    }

    /// The request has ended, or `done` is about to be called.
    pub fn is_over(&self) -> bool {
        !self.0.core.lives() || self.0.course.lock().done.is_none()
    }

    /// Datagrams received that did not answer this request.
    pub fn strangers(&self) -> u64 {
        self.0.strangers.load(Ordering::Relaxed)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.0.core.lives() {
            drop(self.0.end());
        }
    }
}

impl Errand {
    fn begin(self: &Arc<Self>) -> Result<(), Error> {
        self.shard.serve(self.token, self.clone())?;
        let watched = self.shard.watch(&self.socket, self.token, Interest::READ);
        let begun = watched.map_err(Error::from).and_then(|()| {
            let sent = self.socket.send(&self.question, self.to);
            sent.map_err(|cause| Error::Unreachable {
                peer: self.to,
                cause,
            })
        });
        if let Err(error) = begun {
            drop(self.end());
            return Err(error);
        }
        let mut course = self.course.lock();
        course.tries = 1;
        self.wake_after(&mut course, FIRST);
        Ok(())
    }

    fn wake_after(&self, course: &mut Course, pause: Duration) {
        // The answer may have arrived before the timer is set.
        if course.done.is_some() {
            let when = sys::now() + pause;
            course.timer = Some(when);
            self.shard.at(when, self.token);
        }
    }

    /// Ends the request; returns the callback unless it was taken before.
    fn end(&self) -> Option<Done> {
        let mut course = self.course.lock();
        let done = course.done.take()?;
        let timer = course.timer.take();
        drop(course);
        if let Some(when) = timer {
            self.shard.not_at(when, self.token);
        }
        self.shard.unwatch(&self.socket);
        self.shard.forget(self.token);
        Some(done)
    }

    fn finish(&self, answer: Result<(Whereabouts, Vec<u8>), Error>) {
        if let Some(done) = self.end() {
            shield(|| done(answer));
        }
    }

    fn ask_again(&self) {
        // A failure to send counts as a lost datagram: the next attempt repeats it.
        let _ = self.socket.send(&self.question, self.to);
    }

    /// Handles a datagram; none if it does not answer this request.
    fn hear(&self, bytes: &[u8], from: SocketAddr) -> Option<()> {
        let answer = Inquiry::parse(bytes).ok()?;
        // A listener bound to the unspecified address may answer from another address, but not from another port.
        if answer.transaction != self.transaction || from.port() != self.to.port() {
            return None;
        }
        let said = answer.private_data.to_vec();
        match answer.matter {
            Matter::Question => return None,
            Matter::Heard => {
                self.course.lock().heard.get_or_insert_with(sys::now);
            }
            Matter::Accepted { number, qkey, gid } => {
                let address = Ipv6Addr::from(gid).to_canonical();
                if address.is_unspecified() || address.is_multicast() {
                    return None;
                }
                let at = Whereabouts {
                    number,
                    qkey,
                    address,
                };
                self.finish(Ok((at, said)));
            }
            Matter::Refused => self.finish(Err(Error::Rejected {
                peer: self.to,
                private_data: said,
            })),
        }
        Some(())
    }

    /// The time until the next attempt; none if there is no further one.
    fn next_pause(course: &mut Course, now: Time) -> Option<Duration> {
        if let Some(heard) = course.heard {
            return (now < heard + PATIENCE).then_some(AGAIN);
        }
        if course.tries >= TRIES {
            return None;
        }
        let pause = FIRST * (1 << course.tries);
        course.tries += 1;
        Some(pause)
    }
}

impl Served for Errand {
    fn ready(self: Arc<Self>, _: Ready) {
        // One byte more than an answer, so that a longer datagram is recognized as longer.
        let mut room = [0; Inquiry::LEN + 1];
        for _ in 0..AT_ONCE {
            let Ok(Some((len, from))) = self.socket.receive(&mut room) else {
                break;
            };
            let heard = self.hear(room.get(..len).unwrap_or(&room), from);
            if heard.is_none() {
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        let mut course = self.course.lock();
        if course.done.is_none() {
            return;
        }
        course.timer = None;
        match Errand::next_pause(&mut course, now) {
            Some(pause) => {
                self.wake_after(&mut course, pause);
                drop(course);
                self.ask_again();
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
        self.finish(Err(self.core.closed()));
    }
}

impl core::fmt::Debug for Errand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Errand")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}
