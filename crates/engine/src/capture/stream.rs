//! The tap of one connection: its two directions, and what is known of them. A capture that begins later joins each direction at the next frame, which the
//! queue pair names while no thread moves bytes.

use core::net::SocketAddr;
use std::sync::Arc;

use verbena_nic::FrameStarts;
use verbena_sync::locks::{Mutex, OnceLock};
use verbena_wire::mpa::fpdu::Phase;

use super::framing::{Framing, Moved};
use super::record::{Kind, StreamInfo};
use super::tap::Tap;
use crate::sys::Socket;

/// The tap of a connection.
#[derive(Debug)]
pub(crate) struct StreamTap {
    tap: Arc<Tap>,
    /// Known when the first byte passes.
    local: OnceLock<SocketAddr>,
    peer: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The number of the capture that the directions belong to; those of another one are not used.
    capture: u32,
    info: StreamInfo,
    sent: Framing,
    received: Framing,
}

impl StreamTap {
    /// Of a connection of which no byte has passed; it is captured if a capture is attached.
    pub(crate) fn from_start(tap: &Arc<Tap>, peer: SocketAddr, is_initiator: bool) -> StreamTap {
        let (sent, received) = (Framing::from_start(), Framing::from_start());
        let new = StreamTap::unknown(tap, peer);
        {
            let mut state = new.state.lock();
            state.capture = tap.current();
            state.info.is_initiator = is_initiator;
            (state.sent, state.received) = (sent, received);
        }
        new
    }

    /// Of a connection that is not captured yet.
    pub(crate) fn unknown(tap: &Arc<Tap>, peer: SocketAddr) -> StreamTap {
        StreamTap {
            tap: tap.clone(),
            local: OnceLock::new(),
            peer,
            state: Mutex::new(State {
                capture: 0,
                info: StreamInfo {
                    connection: tap.new_connection(),
                    qp: 0,
                    position: 0,
                    is_initiator: false,
                    is_startup: false,
                    crc: false,
                    markers_sent: false,
                    markers_received: false,
                },
                sent: Framing::unknown(),
                received: Framing::unknown(),
            }),
        }
    }

    /// The connection runs on this queue pair; `early` are bytes that it has not been given. A capture that has not seen the beginning joins.
    pub(crate) fn join(&self, qp: u32, starts: &FrameStarts<'_>, early: &[u8]) {
        let mut state = self.state.lock();
        let framing = starts.framing;
        let is_marked = framing.tx_phase.is_some() || framing.rx_phase.is_some();
        let sees_all = state.capture != 0 && state.capture == self.tap.current();
        state.info = StreamInfo {
            qp,
            is_initiator: framing.is_initiator,
            crc: framing.crc,
            markers_sent: framing.tx_phase.is_some(),
            markers_received: framing.rx_phase.is_some(),
            ..state.info
        };
        if sees_all && !is_marked {
            return;
        }
        state.capture = self.tap.current();
        let (sent, received) = (state.sent.position(), state.received.position());
        state.sent = Framing::behind(starts.unsent, framing.tx_phase).at(sent);
        let waiting = [starts.staged, early];
        state.received = behind_waiting(framing.rx_left, framing.rx_phase, waiting).at(received);
    }

    /// `n` bytes were sent, or received, on this socket.
    #[cold]
    pub(crate) fn pass(&self, sent: bool, n: usize, moved: &impl Moved, socket: &Socket) {
        let local = self.local.get().copied();
        let Some(local) = local.or_else(|| socket.local_addr().ok()) else {
            return;
        };
        let local = *self.local.get_or_init(|| local);
        let mut state = self.state.lock();
        if state.capture == 0 || state.capture != self.tap.current() {
            return;
        }
        let info = state.info;
        let wanted = self.tap.wants(info.qp);
        let snap_len = if wanted { self.tap.snap_len() } else { 0 };
        let direction = match sent {
            true => &mut state.sent,
            false => &mut state.received,
        };
        direction.pass(n, moved, snap_len, |frame| {
            if wanted {
                let kind = Kind::Stream(StreamInfo {
                    position: frame.position,
                    is_startup: frame.is_startup,
                    ..info
                });
                let ends = (local, self.peer);
                self.tap.put(kind, sent, ends, (frame.len, frame.bytes));
            }
        });
    }
}

/// A direction in which a frame begins `left` bytes behind the first of those that were read and wait.
fn behind_waiting(left: usize, phase: Option<Phase>, waiting: [&[u8]; 2]) -> Framing {
    let mut framing = Framing::behind(left, phase);
    for bytes in waiting {
        framing.pass(bytes.len(), &bytes, 0, |_| ());
    }
    framing.without_begun()
}
