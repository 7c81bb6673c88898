//! A SIDR listener: a UDP port that answers which datagram queue pair serves a request (docs/extensions.md, inquiries).
//! The program is shown a request once, however often it is repeated; repetitions get the same answer. Requests beyond the backlog and
//! malformed datagrams are dropped and counted.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_stream::Time;
use verbena_wire::ext::{Inquiry, MOST_SAID, Matter};
use verbena_wire::number::Qpn;

use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::pipeline::shield;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Datagrams, Interest, Ready};

/// Datagrams read in one turn of the shard.
const AT_ONCE: usize = 64;
/// Answers that are kept for repeated requests.
const KEPT: usize = 1024;
/// How long an answer is kept; requests are not repeated later.
const KEPT_FOR: Duration = Duration::from_secs(90);

/// The address of a datagram queue pair, and its Q_Key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whereabouts {
    /// Its number.
    pub number: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// Its address.
    pub address: IpAddr,
}

/// Counters of a SIDR listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeskCounts {
    /// Requests shown to the program.
    pub asked: u64,
    /// Repeated requests.
    pub repeated: u64,
    /// Requests dropped because the backlog was full.
    pub crowded: u64,
    /// Datagrams that were no request.
    pub malformed: u64,
}

/// Called with every request.
type Told = Arc<dyn Fn(Question) + Send + Sync>;
/// Identifies a request: source address and transaction number.
type Key = (SocketAddr, u64);

/// A SIDR listener.
#[derive(Debug)]
pub struct Desk(Arc<Clerk>);

/// Its state, served by a shard.
struct Clerk {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: Datagrams,
    at: SocketAddr,
    book: Mutex<Book>,
}

/// Open requests and kept answers.
#[derive(Default)]
struct Book {
    /// None while the listener is not open.
    told: Option<Told>,
    backlog: usize,
    /// Requests without an answer yet.
    open: HashSet<Key>,
    answers: HashMap<Key, Box<[u8; Inquiry::LEN]>>,
    /// The answers, oldest first.
    order: VecDeque<(Time, Key)>,
    counts: DeskCounts,
}

impl Book {
    /// Removes answers older than [`KEPT_FOR`], and the oldest ones beyond [`KEPT`].
    fn tidy(&mut self, now: Time) {
        while let Some((at, key)) = self.order.front().copied() {
            if self.order.len() <= KEPT && at + KEPT_FOR > now {
                break;
            }
            self.order.pop_front();
            self.answers.remove(&key);
        }
    }

    /// Decides about a request: send a kept answer, call the program, or ignore it.
    fn note(&mut self, key: Key, now: Time) -> Next {
        self.tidy(now);
        if let Some(answer) = self.answers.get(&key) {
            self.counts.repeated += 1;
            return Next::Answer(answer.clone());
        }
        if self.open.contains(&key) {
            self.counts.repeated += 1;
            return Next::Answer(Box::new(say(key.1, Matter::Heard, &[])));
        }
        let Some(told) = &self.told else {
            return Next::Nothing;
        };
        if self.open.len() >= self.backlog {
            self.counts.crowded += 1;
            return Next::Nothing;
        }
        self.open.insert(key);
        self.counts.asked += 1;
        Next::Tell(told.clone())
    }
}

enum Next {
    Nothing,
    Answer(Box<[u8; Inquiry::LEN]>),
    Tell(Told),
}

fn say(transaction: u64, matter: Matter, private_data: &[u8]) -> [u8; Inquiry::LEN] {
    let inquiry = Inquiry {
        transaction,
        matter,
        private_data,
    };
    inquiry.emit()
}

/// Checks that private data fits.
pub(crate) fn check_said(private_data: &[u8]) -> Result<(), Error> {
    if private_data.len() <= MOST_SAID {
        return Ok(());
    }
    Err(Error::PrivateData {
        got: private_data.len(),
        limit: MOST_SAID,
    })
}

impl Engine {
    /// Binds a SIDR listener to this address, not open yet; port 0 selects a free port.
    pub fn desk(&self, at: SocketAddr) -> Result<Desk, Error> {
        self.core.check()?;
        let socket = Datagrams::bind(self.core.bindable(at)?)?;
        let at = socket.local()?;
        Ok(Desk(Arc::new(Clerk {
            core: self.core.clone(),
            shard: self.core.shards.pick()?,
            token: next_token(),
            socket,
            at,
            book: Mutex::default(),
        })))
    }
}

impl Desk {
    /// The local address.
    pub fn local(&self) -> SocketAddr {
        self.0.at
    }

    /// Opens the listener: `told` is called with every request, on the thread that received it and without any lock; it must not block. At most
    /// `backlog` requests are open at a time.
    pub fn open(
        &self,
        backlog: usize,
        told: impl Fn(Question) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let clerk = &self.0;
        clerk.core.check()?;
        let before = {
            let mut book = clerk.book.lock();
            book.backlog = backlog;
            book.told.replace(Arc::new(told))
        };
        if before.is_some() {
            return Ok(());
        }
        let served = clerk.serve();
        if served.is_err() {
            // Not open: the next attempt serves it.
            clerk.book.lock().told = None;
        }
        served
    }

    /// The counters.
    pub fn counts(&self) -> DeskCounts {
        if !self.0.core.lives() {
            return DeskCounts::default();
        }
        self.0.book.lock().counts
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let clerk = &self.0;
        if !clerk.core.lives() {
            return;
        }
        let told = clerk.book.lock().told.take();
        if told.is_some() {
            clerk.shard.unwatch(&clerk.socket);
            clerk.shard.forget(clerk.token);
        }
    }
}

impl Clerk {
    fn serve(self: &Arc<Self>) -> Result<(), Error> {
        self.shard.serve(self.token, self.clone())?;
        let watched = self.shard.watch(&self.socket, self.token, Interest::READ);
        if let Err(error) = watched {
            self.shard.forget(self.token);
            return Err(error.into());
        }
        Ok(())
    }

    fn hear(self: &Arc<Self>, bytes: &[u8], from: SocketAddr) {
        let question = Inquiry::parse(bytes).ok();
        let question = question.filter(|one| one.matter == Matter::Question);
        let Some(question) = question else {
            self.book.lock().counts.malformed += 1;
            return;
        };
        let key = (from, question.transaction);
        let next = self.book.lock().note(key, sys::now());
        match next {
            Next::Nothing => {}
            Next::Answer(answer) => self.send(&*answer, from),
            Next::Tell(told) => {
                let question = Question {
                    clerk: self.clone(),
                    key,
                    private_data: question.private_data.to_vec(),
                    answered: false,
                };
                shield(|| told(question));
            }
        }
    }

    fn send(&self, answer: &[u8], to: SocketAddr) {
        // If the answer is lost, the peer repeats its request.
        let _ = self.socket.send(answer, to);
    }
}

impl Served for Clerk {
    fn ready(self: Arc<Self>, _: Ready) {
        // One byte more than a request, so that a longer datagram is recognized as longer.
        let mut room = [0; Inquiry::LEN + 1];
        for _ in 0..AT_ONCE {
            let Ok(Some((len, from))) = self.socket.receive(&mut room) else {
                break;
            };
            if self.core.access.admits(from.ip()) {
                self.hear(room.get(..len).unwrap_or(&room), from);
            }
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {
        let told = self.book.lock().told.take();
        // Dropped without the lock: it is the program's code.
        drop(told);
    }
}

/// A request without an answer yet. Dropping it sends a rejection. It can be answered after the listener was dropped.
pub struct Question {
    clerk: Arc<Clerk>,
    key: Key,
    private_data: Vec<u8>,
    answered: bool,
}

impl Question {
    /// The source of the request.
    pub fn peer(&self) -> SocketAddr {
        self.key.0
    }

    /// The address of the listener.
    pub fn local(&self) -> SocketAddr {
        self.clerk.at
    }

    /// The private data of the request.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Answers with the address of the queue pair. Private data that is too long is an error, and the request is refused.
    pub fn accept(mut self, at: Whereabouts, private_data: &[u8]) -> Result<(), Error> {
        check_said(private_data)?;
        let gid = match at.address {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let matter = Matter::Accepted {
            number: at.number,
            qkey: at.qkey,
            gid,
        };
        self.answer(matter, private_data);
        Ok(())
    }

    /// Refuses the request, with private data for the peer's program; what does not fit is cut.
    pub fn refuse(mut self, private_data: &[u8]) {
        self.answer(Matter::Refused, private_data);
    }

    fn answer(&mut self, matter: Matter, private_data: &[u8]) {
        if self.answered || !self.clerk.core.lives() {
            return;
        }
        self.answered = true;
        let answer = say(self.key.1, matter, private_data);
        {
            let mut book = self.clerk.book.lock();
            let now = sys::now();
            book.open.remove(&self.key);
            book.answers.insert(self.key, Box::new(answer));
            book.order.push_back((now, self.key));
            book.tidy(now);
        }
        self.clerk.send(&answer, self.key.0);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answer(Matter::Refused, &[]);
    }
}

impl core::fmt::Debug for Clerk {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Clerk")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Question {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Question").field(&self.peer()).finish()
    }
}

#[cfg(test)]
mod tests;
