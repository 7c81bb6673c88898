//! One connection on one queue pair: its rings, its counts, and what its peer says.
//! It promises that whoever calls makes it progress, that a copy of the program's bytes is all that a lock is held for, and
//! that every number of the peer's is checked before it is believed. It refuses to wait; [`crate::Stream`] does.
//!
//! Reading order: this file (what there is) → `turn` (completions) → `transfer` (bytes out and in) → `tail` (small sends
//! that leave together) → `held` (who sees to what came while another was at work) → `mapping`.

mod held;
mod mapping;
mod tail;
mod transfer;
mod turn;

pub use mapping::Mapped;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use verbena::low::{Arm, BareCq, Enabled, Limits, QpState, RecvWr};
use verbena::{Access, Memory, Pd, Qp, QpOptions, RemoteMemory, Request};

use crate::alarm::{Alarm, Watch};
use crate::credit::{Incoming, Outgoing, RESERVE};
use crate::error::Error;
use crate::hello::Hello;
use crate::net::{Net, News};
use crate::options::Options;
use crate::word;
use tail::Tail;

/// Requests kept for control messages, beside those for data.
const CONTROL: usize = 8;
/// Marks the number of a receive; the rest of it is the slot.
const RECEIVE: u64 = 1 << 63;

/// Where a connection stands.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Joining,
    Joined,
    Failed(Error),
}

/// Everything that changes, under one short lock.
struct Flow {
    phase: Phase,
    /// Known once the peer has said hello.
    peer: Option<(Outgoing, RemoteMemory)>,
    incoming: Incoming,
    /// Bytes put into the send buffer and taken out of it since the beginning.
    stock: (u64, u64),
    /// Requests under way, and the one that the tail will be.
    sends: usize,
    /// Small sends that have not left yet.
    tail: Option<Tail>,
    /// The peer will send no more.
    peer_ended: bool,
    /// We will send no more.
    ended: bool,
    /// The program does not want to read any more.
    deaf: bool,
    /// The connection is over.
    lost: bool,
    /// Memory of the peer's, by offset.
    maps: Vec<(u64, RemoteMemory)>,
}

/// A connection.
pub(crate) struct Link {
    // The queue pair goes first, then what it used.
    qp: Qp,
    cq: BareCq,
    ring: Memory,
    stock: Memory,
    words: Memory,
    /// Memory of ours that the peer may write, by its address here.
    mapped: Mutex<Vec<(usize, u64, Mapped)>>,
    pd: Pd,
    flow: Mutex<Flow>,
    /// There is a tail, so that completions are of interest though nobody waits.
    has_tail: AtomicBool,
    /// Completions came for the tail while another held the flow.
    due: AtomicBool,
    /// Held by whoever sends, so that bytes leave in the order of the calls.
    writing: Mutex<()>,
    /// Held by whoever reads.
    reading: Mutex<()>,
    news: Arc<News>,
    net: Arc<Net>,
    options: Options,
    ends: Mutex<Option<(SocketAddr, SocketAddr)>>,
}

/// What can be done with a connection without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) failed: bool,
    pub(crate) over: bool,
}

impl Link {
    fn new(net: &Arc<Net>, news: Arc<News>, options: Options) -> Result<Arc<Link>, Error> {
        let options = options.within(net.device.attributes().requests);
        let receives = options.messages + RESERVE;
        let sends = options.sends + CONTROL;
        let pd = net.device.pd()?;
        let cq = net.device.bare_cq(2 * (sends + receives))?;
        let limits = Limits {
            // Twice the room: a completion may be seen before the queue pair has counted it out.
            sends: 2 * sends,
            receives: 2 * receives,
            pieces: 1,
            inline: options.inline,
        };
        let qp = Qp::new(
            &pd,
            &cq,
            &cq,
            QpOptions {
                limits,
                ..QpOptions::default()
            },
        )?;
        qp.enable(Enabled {
            write: true,
            read: false,
            atomic: false,
        });
        let theirs = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let ours = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let link = Arc::new(Link {
            ring: pd.memory(options.recv_buffer, theirs)?,
            stock: pd.memory(options.send_buffer, ours)?,
            words: pd.memory(receives * word::MOST, ours)?,
            mapped: Mutex::default(),
            flow: Mutex::new(Flow {
                phase: Phase::Joining,
                peer: None,
                incoming: Incoming::new(options.recv_buffer as u64, options.messages as u16),
                stock: (0, 0),
                sends: 0,
                tail: None,
                peer_ended: false,
                ended: false,
                deaf: false,
                lost: false,
                maps: Vec::new(),
            }),
            has_tail: AtomicBool::new(false),
            due: AtomicBool::new(false),
            writing: Mutex::new(()),
            reading: Mutex::new(()),
            net: net.clone(),
            ends: Mutex::new(None),
            qp,
            cq,
            pd,
            news,
            options,
        });
        let (itself, rung) = (Arc::downgrade(&link), link.news.waiters.clone());
        link.cq.listen(Some(Arc::new(move || {
            if let Some(link) = itself.upgrade() {
                link.notified();
            }
            rung.ring();
        })));
        net.joined(link.qp.number(), &link.news);
        link.qp.modify(QpState::Init);
        for slot in 0..receives {
            link.post_receive(slot)?;
        }
        Ok(link)
    }

    fn hello(&self) -> [u8; Hello::BYTES] {
        let hello = Hello {
            ring: self.ring.remote(),
            messages: self.options.messages as u16,
        };
        hello.to_bytes()
    }

    /// Begins to connect.
    pub(crate) fn dial(
        net: &Arc<Net>,
        news: Arc<News>,
        options: Options,
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> Result<Arc<Link>, Error> {
        let link = Link::new(net, news.clone(), options)?;
        let hello = link.hello();
        let told = move |answer| {
            *news.answer.lock() = Some(answer);
            news.waiters.ring();
        };
        link.qp
            .connect_from(from, to, &hello, told)
            .map_err(Error::of_connect)?;
        Ok(link)
    }

    /// Says yes to a request whose hello is known to be good.
    pub(crate) fn accept(
        net: &Arc<Net>,
        news: Arc<News>,
        options: Options,
        request: Request,
        hello: &Hello,
    ) -> Result<Arc<Link>, Error> {
        let link = Link::new(net, news.clone(), options)?;
        *link.ends.lock() = Some((request.local()?, request.peer()));
        link.hold().meet(hello);
        let ours = link.hello();
        let told = move |answer: Result<Vec<u8>, verbena::Error>| {
            *news.answer.lock() = Some(answer);
            news.waiters.ring();
        };
        request.accept_telling(&link.qp, &ours, told)?;
        Ok(link)
    }

    /// The domain of memory that can be mapped for the peer.
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Asks to be told of the next completion; look once more afterwards.
    pub(crate) fn arm(&self) {
        self.cq.arm(Arm::Next);
    }

    /// Where it stands.
    pub(crate) fn phase(&self) -> Phase {
        let mut flow = self.hold();
        if matches!(flow.phase, Phase::Joining) {
            self.turn(&mut flow);
        }
        flow.phase.clone()
    }

    /// Our address and the peer's.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let mut ends = self.ends.lock();
        if ends.is_none() {
            *ends = self.qp.ends().ok().flatten();
        }
        *ends
    }

    /// What can be done without waiting.
    pub(crate) fn state(&self) -> State {
        let mut flow = self.hold();
        let state = self.look(&flow);
        if state.readable && state.writable {
            return state;
        }
        self.turn(&mut flow);
        self.look(&flow)
    }

    fn look(&self, flow: &Flow) -> State {
        let failed = matches!(flow.phase, Phase::Failed(_));
        let lost = flow.lost || failed;
        // As TCP: who has read the end and may still write has not hung up, though nobody may be there any more.
        let broken = failed || (flow.lost && !flow.peer_ended);
        let over = broken || (flow.ended && flow.peer_ended);
        let joined = matches!(flow.phase, Phase::Joined);
        let room = flow.peer.is_some_and(|(out, _)| out.room() > 0) && self.has_stock(flow);
        State {
            readable: flow.incoming.waiting() > 0 || flow.peer_ended || flow.deaf || lost,
            writable: lost || (joined && (flow.ended || (room && flow.sends < self.options.sends))),
            failed: broken,
            over,
        }
    }

    /// Ends the stream as far as that goes now: true when all that was sent has left, or never will. Otherwise a
    /// [`watch`](Link::watch) tells when to call again.
    pub(crate) fn finish(&self) -> bool {
        self.arm();
        if matches!(self.end(), Err(Error::WouldBlock)) {
            return false;
        }
        let mut flow = self.hold();
        self.turn(&mut flow);
        self.is_done(&flow)
    }

    /// Rings `alarm` when there may be news, as long as the watch lives.
    pub(crate) fn watch(&self, alarm: &Alarm) -> Watch {
        self.news.waiters.add(alarm)
    }

    /// Bytes of its buffers.
    pub(crate) fn buffers(&self) -> usize {
        self.ring.len() + self.stock.len()
    }

    fn is_done(&self, flow: &Flow) -> bool {
        flow.sends == 0 || flow.lost || !matches!(flow.phase, Phase::Joined)
    }

    /// Nothing more will come.
    pub(crate) fn is_finished(&self) -> bool {
        let flow = self.hold();
        flow.lost || flow.peer_ended || flow.deaf || matches!(flow.phase, Phase::Failed(_))
    }

    /// The program does not want to read any more.
    pub(crate) fn deafen(&self) {
        self.hold().deaf = true;
        self.news.waiters.ring();
    }

    fn post_receive(&self, slot: usize) -> Result<(), Error> {
        let place = self.words.sge(slot * word::MOST, word::MOST)?;
        let receive = RecvWr {
            id: RECEIVE | slot as u64,
            scatter: &[place],
        };
        let posted = self.qp.post_recv(&[receive]);
        posted.map_err(|(_, error)| verbena::Error::from(error).into())
    }
}

impl Flow {
    fn meet(&mut self, hello: &Hello) {
        let outgoing = Outgoing::new(hello.ring.len(), hello.messages);
        self.peer = Some((outgoing, hello.ring));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.net.parted(self.qp.number());
        self.cq.listen(None);
        self.news.lost.store(true, Ordering::Release);
    }
}
