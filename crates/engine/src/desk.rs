//! A desk: a UDP port where others ask where a datagram queue pair is (docs/extensions.md, inquiries).
//! It promises that the program is shown a question once, however often it is repeated, and that whoever repeats it gets the same
//! answer. It refuses more open questions than the program wants, and whatever is no question: both are dropped and counted.

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

/// Datagrams read in one go, before others on the shard have their turn.
const AT_ONCE: usize = 64;
/// Answers that are kept for those who ask again.
const KEPT: usize = 1024;
/// How long: nobody repeats a question later.
const KEPT_FOR: Duration = Duration::from_secs(90);

/// Where a datagram queue pair is, and what must be shown there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whereabouts {
    /// Its number.
    pub number: Qpn,
    /// The key of its datagrams.
    pub qkey: u32,
    /// Its address.
    pub address: IpAddr,
}

/// What came to a desk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeskCounts {
    /// Questions that the program was shown.
    pub asked: u64,
    /// Questions that were known already.
    pub repeated: u64,
    /// Questions that found too many others waiting.
    pub crowded: u64,
    /// What was no question.
    pub malformed: u64,
}

/// Is shown every question.
type Told = Arc<dyn Fn(Question) + Send + Sync>;
/// A question: who asks, and its transaction.
type Key = (SocketAddr, u64);

/// A desk.
#[derive(Debug)]
pub struct Desk(Arc<Clerk>);

/// Who sits there.
struct Clerk {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: Datagrams,
    at: SocketAddr,
    book: Mutex<Book>,
}

/// What is written down.
#[derive(Default)]
struct Book {
    /// None while the desk is closed.
    told: Option<Told>,
    backlog: usize,
    /// Questions without an answer yet.
    open: HashSet<Key>,
    answers: HashMap<Key, Box<[u8; Inquiry::LEN]>>,
    /// The answers, the oldest first.
    order: VecDeque<(Time, Key)>,
    counts: DeskCounts,
}

impl Book {
    /// Forgets answers that nobody asks for any more, and the oldest ones where there are too many.
    fn tidy(&mut self, now: Time) {
        while let Some((at, key)) = self.order.front().copied() {
            if self.order.len() <= KEPT && at + KEPT_FOR > now {
                break;
            }
            self.order.pop_front();
            self.answers.remove(&key);
        }
    }

    /// What is to be done about a question: an answer that is there, or a program that is told.
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

/// Private data must fit.
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
    /// A desk at this address, closed for now; port 0 finds a free one.
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
    /// Where it is.
    pub fn local(&self) -> SocketAddr {
        self.0.at
    }

    /// Opens it: `told` is shown every question, on whatever thread noticed and without any lock; it must not wait. At most
    /// `backlog` questions are open at a time.
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
        clerk.shard.serve(clerk.token, clerk.clone())?;
        let watched = clerk
            .shard
            .watch(&clerk.socket, clerk.token, Interest::READ);
        if let Err(error) = watched {
            clerk.shard.forget(clerk.token);
            return Err(error.into());
        }
        Ok(())
    }

    /// What came.
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
        // An answer that is lost is asked for again.
        let _ = self.socket.send(answer, to);
    }
}

impl Served for Clerk {
    fn ready(self: Arc<Self>, _: Ready) {
        // One more than any question has, so that longer ones are seen to be longer.
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
        // Without the lock: it is the program's.
        drop(told);
    }
}

/// A question that waits for an answer; dropped without one, it is refused. It can be answered after its desk is gone.
pub struct Question {
    clerk: Arc<Clerk>,
    key: Key,
    private_data: Vec<u8>,
    answered: bool,
}

impl Question {
    /// Who asks.
    pub fn peer(&self) -> SocketAddr {
        self.key.0
    }

    /// The desk where it asks.
    pub fn local(&self) -> SocketAddr {
        self.clerk.at
    }

    /// What it said with its question.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Says where the queue pair is. Private data that is too long is an error, and the question is refused.
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

    /// Says no, with a reason that the peer's program can read; more than fits is cut.
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
