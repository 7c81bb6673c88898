//! One connection on one queue pair: its buffers, its credits, and the peer's control messages. Calling threads drive it, the lock of its
//! state is not held while the program's bytes are copied (except small sends into the tail), and every number of the peer is checked.
//! Calls do not block; those of [`crate::Stream`] do.
//!
//! Reading order: this file (the objects) → `turn` (completions) → `transfer` (bytes out and in) → `tail` (small sends that are posted
//! together) → `flow_guard` (completions that arrive while the state is locked) → `mapping`.

mod flow_guard;
mod mapping;
mod tail;
mod transfer;
mod turn;

pub use mapping::Mapped;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use verbena::cm::ConnectRequest;
use verbena::low::{Arm, BareCq, Limits, Pd, Qp, QpAccessFlags, QpOptions, QpState, RecvWr};
use verbena::{Access, Memory, RemoteMemory};

use crate::control_message;
use crate::credit::{Incoming, Outgoing, RESERVE};
use crate::error::Error;
use crate::hello::Hello;
use crate::net::{LinkEvents, Net};
use crate::notifier::{Notifier, Watch};
use crate::options::Options;
use tail::Tail;

/// Requests for control messages, beside those for data.
const CONTROL_SENDS: usize = 8;
/// Marks the identifier of a receive; the other bits are the slot.
const RECEIVE_ID: u64 = 1 << 63;

/// Progress of connecting.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Connecting,
    Connected,
    Failed(Error),
}

/// The mutable state, under one lock that is held briefly.
struct Flow {
    phase: Phase,
    /// Known once the peer's hello has arrived.
    peer: Option<(Outgoing, RemoteMemory)>,
    incoming: Incoming,
    /// Bytes put into the send buffer and taken out of it since it was last empty.
    buffered: (u64, u64),
    /// Requests in flight, with the one that the tail will be.
    sends: usize,
    /// Small sends that were not posted yet.
    tail: Option<Tail>,
    /// The peer will send no more.
    peer_ended: bool,
    /// This side will send no more.
    ended: bool,
    /// The program has shut reading down.
    read_shut: bool,
    /// The connection is over.
    lost: bool,
    /// Memory that the peer has mapped, by offset.
    maps: Vec<(u64, RemoteMemory)>,
}

/// A connection.
pub(crate) struct Link {
    // Fields are dropped in order: the queue pair before what it uses.
    qp: Qp,
    cq: BareCq,
    ring: Memory,
    send_buffer: Memory,
    control_buffer: Memory,
    /// Memory that the peer may write, by its address in this process.
    mapped: Mutex<Vec<(usize, u64, Mapped)>>,
    pd: Pd,
    flow: Mutex<Flow>,
    /// There is a tail, so that completions matter even if no thread waits.
    has_tail: AtomicBool,
    /// Completions for the tail arrived while another thread held the flow.
    tail_due: AtomicBool,
    /// Held while sending, so that bytes are sent in the order of the calls.
    writing: Mutex<()>,
    /// Held while reading.
    reading: Mutex<()>,
    events: Arc<LinkEvents>,
    net: Arc<Net>,
    options: Options,
    addrs: Mutex<Option<(SocketAddr, SocketAddr)>>,
}

/// What can be done with a connection without blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) failed: bool,
    pub(crate) hangup: bool,
}

impl Link {
    fn new(net: &Arc<Net>, news: Arc<LinkEvents>, options: Options) -> Result<Arc<Link>, Error> {
        let options = options.clamped(net.device.attributes().requests);
        let receives = options.messages + RESERVE;
        let sends = options.sends + CONTROL_SENDS;
        let pd = net.device.pd()?;
        let cq = net.device.bare_cq(2 * (sends + receives))?;
        let limits = Limits {
            // Twice the requests: a completion may be polled before the queue pair has released its request.
            sends: 2 * sends,
            receives: 2 * receives,
            max_sge: 1,
            inline: options.inline,
        };
        let qp = Qp::new(&pd, &cq, &cq, QpOptions::default().limits(limits))?;
        qp.set_access_flags(QpAccessFlags {
            write: true,
            read: false,
            atomic: false,
            flush: false,
        });
        let theirs = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let ours = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let link = Arc::new(Link {
            ring: pd.memory(options.recv_buffer, theirs)?,
            send_buffer: pd.memory(options.send_buffer, ours)?,
            control_buffer: pd.memory(receives * control_message::MAX_LEN, ours)?,
            mapped: Mutex::default(),
            flow: Mutex::new(Flow {
                phase: Phase::Connecting,
                peer: None,
                incoming: Incoming::new(options.recv_buffer as u64, options.messages as u16),
                buffered: (0, 0),
                sends: 0,
                tail: None,
                peer_ended: false,
                ended: false,
                read_shut: false,
                lost: false,
                maps: Vec::new(),
            }),
            has_tail: AtomicBool::new(false),
            tail_due: AtomicBool::new(false),
            writing: Mutex::new(()),
            reading: Mutex::new(()),
            net: net.clone(),
            addrs: Mutex::new(None),
            qp,
            cq,
            pd,
            events: news,
            options,
        });
        let (itself, rung) = (Arc::downgrade(&link), link.events.waiters.clone());
        link.cq.set_notify(Some(Arc::new(move || {
            if let Some(link) = itself.upgrade() {
                link.on_completion();
            }
            rung.notify();
        })));
        net.register(link.qp.number(), &link.events);
        link.qp.modify(QpState::Init)?;
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

    /// Starts to connect.
    pub(crate) fn dial(
        net: &Arc<Net>,
        news: Arc<LinkEvents>,
        options: Options,
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> Result<Arc<Link>, Error> {
        let link = Link::new(net, news.clone(), options)?;
        let hello = link.hello();
        let done = move |answer| {
            *news.connect_result.lock() = Some(answer);
            news.waiters.notify();
        };
        link.qp
            .connect_from(from, to, &hello, done)
            .map_err(Error::of_connect)?;
        Ok(link)
    }

    /// Accepts a request whose hello is valid.
    pub(crate) fn accept(
        net: &Arc<Net>,
        news: Arc<LinkEvents>,
        options: Options,
        request: ConnectRequest,
        hello: &Hello,
    ) -> Result<Arc<Link>, Error> {
        let link = Link::new(net, news.clone(), options)?;
        *link.addrs.lock() = Some((request.local_addr()?, request.peer_addr()));
        link.lock_flow().set_peer(hello);
        let ours = link.hello();
        let done = move |answer: Result<Vec<u8>, verbena::Error>| {
            *news.connect_result.lock() = Some(answer);
            news.waiters.notify();
        };
        request.accept_with_callback(&link.qp, &ours, done)?;
        Ok(link)
    }

    /// The protection domain of memory that can be mapped for the peer.
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Arms the completion queue for the next completion; check once more afterwards.
    pub(crate) fn arm(&self) {
        self.cq.arm(Arm::Next);
    }

    /// The progress of connecting.
    pub(crate) fn phase(&self) -> Phase {
        let mut flow = self.lock_flow();
        if matches!(flow.phase, Phase::Connecting) {
            self.turn(&mut flow);
        }
        flow.phase.clone()
    }

    /// The local address and the peer's.
    pub(crate) fn addrs(&self) -> Option<(SocketAddr, SocketAddr)> {
        let mut ends = self.addrs.lock();
        if ends.is_none() {
            *ends = self.qp.socket_addrs().ok().flatten();
        }
        *ends
    }

    /// What can be done without blocking.
    pub(crate) fn state(&self) -> State {
        let mut flow = self.lock_flow();
        let state = self.readiness(&flow);
        if state.readable && state.writable {
            return state;
        }
        self.turn(&mut flow);
        self.readiness(&flow)
    }

    fn readiness(&self, flow: &Flow) -> State {
        let failed = matches!(flow.phase, Phase::Failed(_));
        let lost = flow.lost || failed;
        // As TCP: after the end was read, a socket that may still write is not hung up, even if the peer is gone.
        let broken = failed || (flow.lost && !flow.peer_ended);
        let over = broken || (flow.ended && flow.peer_ended);
        let joined = matches!(flow.phase, Phase::Connected);
        let room = flow.peer.is_some_and(|(out, _)| out.room() > 0) && self.has_send_buffer(flow);
        State {
            readable: flow.incoming.unread() > 0 || flow.peer_ended || flow.read_shut || lost,
            writable: lost || (joined && (flow.ended || (room && flow.sends < self.options.sends))),
            failed: broken,
            hangup: over,
        }
    }

    /// Ends the stream as far as possible now: true when everything sent has reached the peer's adapter, or never will. Otherwise a
    /// [`watch`](Link::watch) signals when to call again.
    pub(crate) fn finish(&self) -> bool {
        self.arm();
        if matches!(self.end(), Err(Error::WouldBlock)) {
            return false;
        }
        let mut flow = self.lock_flow();
        self.turn(&mut flow);
        self.is_done(&flow)
    }

    /// Signals `alarm` when there may be a change, as long as the watch lives.
    pub(crate) fn watch(&self, alarm: &Notifier) -> Watch {
        self.events.waiters.add(alarm)
    }

    /// Length of its buffers.
    pub(crate) fn buffers(&self) -> usize {
        self.ring.len() + self.send_buffer.len()
    }

    fn is_done(&self, flow: &Flow) -> bool {
        flow.sends == 0 || flow.lost || !matches!(flow.phase, Phase::Connected)
    }

    /// No more bytes will arrive.
    pub(crate) fn is_finished(&self) -> bool {
        let flow = self.lock_flow();
        flow.lost || flow.peer_ended || flow.read_shut || matches!(flow.phase, Phase::Failed(_))
    }

    /// Shuts reading down.
    pub(crate) fn shut_read(&self) {
        self.lock_flow().read_shut = true;
        self.events.waiters.notify();
    }

    fn post_receive(&self, slot: usize) -> Result<(), Error> {
        let place = self
            .control_buffer
            .sge(slot * control_message::MAX_LEN, control_message::MAX_LEN)?;
        let receive = RecvWr {
            id: RECEIVE_ID | slot as u64,
            scatter: &[place],
        };
        let posted = self.qp.post_recv(&[receive]);
        posted.map_err(|error| verbena::Error::from(error.source).into())
    }
}

impl Flow {
    fn set_peer(&mut self, hello: &Hello) {
        let outgoing = Outgoing::new(hello.ring.len(), hello.messages);
        self.peer = Some((outgoing, hello.ring));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.net.unregister(self.qp.number());
        self.cq.set_notify(None);
        self.events.lost.store(true, Ordering::Release);
    }
}
