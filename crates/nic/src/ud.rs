//! A queue pair for datagrams (UD, M14): no peer, no connection, each message whole in one packet or lost.
//! Requests complete in posting order, a datagram takes exactly one receive or none, and dropped datagrams are counted by cause.
//! Sockets are not known here: received packets are passed in, and a [`DatagramSender`] takes those to be sent.

mod datagram;
mod modify;
mod post;
mod receive;
mod send;

pub use datagram::{DropReason, GRH_LEN, PKEY, ReceivedDatagram, largest_packet};
pub use post::{Destination, UdSendWr};
pub use send::{DatagramSender, SendOutcome, UdSending};

use std::collections::VecDeque;
use std::sync::Arc;

use verbena_mem::{Access, MemAccess, Pd, Tpt};
use verbena_sync::locks::Mutex;
use verbena_wire::number::{Psn, Qpn};

use crate::cq::Cq;
use crate::qp::Limits;
use crate::receive::ReceiveQueue;
use crate::srq::Srq;
use crate::state::QpState;
use crate::trace::ObserverCell;
use crate::wr::Sge;
use post::Queued;

/// Bytes of the longest message: InfiniBand's largest MTU. Posting a longer one fails.
pub const MAX_DATAGRAM: usize = 4096;

/// The number that multicast datagrams are sent to.
pub const MULTICAST: u32 = 0xff_ffff;

/// The parts of a datagram queue pair; fixed at creation.
#[derive(Debug, Clone)]
pub struct UdInit {
    /// Its number in its function, used in events.
    pub number: u32,
    /// The number that peers send to, used in its completions.
    pub qpn: Qpn,
    /// Its domain.
    pub pd: Pd,
    /// Where its sends complete.
    pub send_cq: Arc<Cq>,
    /// Where its receives complete.
    pub recv_cq: Arc<Cq>,
    /// A receive queue shared with others, instead of its own.
    pub srq: Option<Arc<Srq>>,
    /// The memory it works on.
    pub tpt: Arc<Tpt>,
    /// Its limits.
    pub limits: Limits,
    /// What traces are told.
    pub observer: ObserverCell,
}

/// Counters of a datagram queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdCounters {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of payload in datagrams sent.
    pub bytes_out: u64,
    /// Datagrams that the system did not send, for example for lack of a route; they completed nevertheless.
    pub lost: u64,
    /// Datagrams delivered.
    pub received: u64,
    /// Bytes of payload in datagrams delivered.
    pub bytes_in: u64,
    /// Datagrams dropped because the state does not receive.
    pub not_receiving: u64,
    /// Datagrams dropped because of a wrong Q_Key.
    pub wrong_key: u64,
    /// Datagrams dropped because no receive was posted.
    pub no_receive: u64,
    /// Datagrams dropped because the next receive is too small for them; it stays posted.
    pub too_long: u64,
    /// Datagrams dropped because the memory of the next receive is not registered yet (V5); it stays posted.
    pub pending: u64,
}

/// The changing attributes of a datagram queue pair, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdView {
    /// Its state.
    pub state: QpState,
    /// The Q_Key that datagrams for it must carry.
    pub qkey: u32,
    /// Why it failed, in one sentence.
    pub cause: Option<String>,
    /// Its counters.
    pub counters: UdCounters,
    /// Send requests that have not completed.
    pub sends: usize,
    /// Receives of its own that have not completed.
    pub receives: usize,
}

/// A queue pair for datagrams.
///
/// One short lock keeps its order. A caller that posts calls [`transmit`](UdQp::transmit) afterwards; if that finds no room, it
/// is called again when the socket has room.
#[derive(Debug)]
pub struct UdQp {
    init: UdInit,
    inner: Mutex<Inner>,
}

/// Everything behind the lock.
#[derive(Debug)]
struct Inner {
    state: QpState,
    qkey: u32,
    sends: VecDeque<Queued>,
    receives: ReceiveQueue,
    /// Send requests that were posted.
    posted: u64,
    /// Of the next packet; receivers do not check it.
    psn: Psn,
    /// Buffer for a packet.
    packet: Vec<u8>,
    /// Buffer for its gathered payload.
    gathered: Vec<u8>,
    cause: Option<String>,
    counters: UdCounters,
    /// The `LastWqe` event was raised.
    last_wqe_raised: bool,
    /// Destroyed: nothing completes any more.
    retired: bool,
}

impl UdQp {
    /// In state `Reset`.
    pub fn new(init: UdInit) -> UdQp {
        let receives = ReceiveQueue::new(init.limits.receives, init.limits.max_sge);
        UdQp {
            init,
            inner: Mutex::new(Inner {
                state: QpState::Reset,
                qkey: 0,
                sends: VecDeque::new(),
                receives,
                posted: 0,
                psn: Psn::wrapping(0),
                packet: Vec::new(),
                gathered: Vec::new(),
                cause: None,
                counters: UdCounters::default(),
                last_wqe_raised: false,
                retired: false,
            }),
        }
    }

    /// Its number in its function, used in events.
    pub fn number(&self) -> u32 {
        self.init.number
    }

    /// The number that peers send to.
    pub fn qpn(&self) -> Qpn {
        self.init.qpn
    }

    /// Its parts.
    pub fn init(&self) -> &UdInit {
        &self.init
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.inner.lock().state
    }

    /// Sets the Q_Key that datagrams for it must carry.
    pub fn set_qkey(&self, qkey: u32) {
        self.inner.lock().qkey = qkey;
    }

    /// Send requests that have not completed, and receives of its own that have not.
    pub fn outstanding(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.sends.len(), inner.receives.len())
    }

    /// The changing attributes, at one moment.
    pub fn view(&self) -> UdView {
        let inner = self.inner.lock();
        UdView {
            state: inner.state,
            qkey: inner.qkey,
            cause: inner.cause.clone(),
            counters: inner.counters,
            sends: inner.sends.len(),
            receives: inner.receives.len(),
        }
    }
}

/// The memory access for one scatter or gather element.
fn mem_access(init: &UdInit, sge: &Sge, len: u32, needs: Access) -> MemAccess {
    MemAccess {
        stag: sge.stag,
        at: sge.addr,
        len: u64::from(len),
        pd: init.pd,
        qp: init.number,
        needs,
    }
}

#[cfg(test)]
mod tests;
