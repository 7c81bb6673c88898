//! The tap of one connection: its two directions, and what is known of them. A capture that begins later joins each direction at the next frame, which the
//! queue pair names while no thread moves bytes. A trace follows the directions by itself, since it may begin and end at other times.

use core::net::SocketAddr;
use std::sync::Arc;

use verbena_nic::FrameStarts;
use verbena_sync::locks::{Mutex, OnceLock};
use verbena_wire::mpa::fpdu::Phase;

use super::framing::{Framing, Moved};
use super::record::{Kind, StreamInfo};
use super::tap::Tap;
use crate::sys::{self, Socket};
use crate::trace::record::{FrameKind, HEAD};
use crate::trace::tracer::Tracer;

/// Frames between two descriptions of the connection in a trace, whose oldest events are overwritten.
const TRACED_ANEW: u32 = 4096;

/// The tap of a connection.
#[derive(Debug)]
pub(crate) struct StreamTap {
    tap: Arc<Tap>,
    /// Known when the first byte passes.
    local: OnceLock<SocketAddr>,
    peer: SocketAddr,
    state: Mutex<State>,
    traced: Mutex<Traced>,
}

#[derive(Debug)]
struct State {
    /// The number of the capture that the directions belong to; those of another one are not used.
    capture: u32,
    info: StreamInfo,
    sent: Framing,
    received: Framing,
}

/// The same for a trace.
#[derive(Debug)]
struct Traced {
    /// The number of the trace that the directions belong to; those of another one are not used.
    trace: u64,
    connection: u32,
    /// The queue pair and its number in completions; zeros before the startup is over.
    qp: (u32, u32),
    sent: Framing,
    received: Framing,
    /// Markers in frames that are sent, and that are received.
    markers: (bool, bool),
    /// Frames until the connection is described again.
    described: u32,
}

impl Traced {
    fn unknown(connection: u32) -> Traced {
        Traced {
            trace: 0,
            connection,
            qp: (0, 0),
            sent: Framing::unknown(),
            received: Framing::unknown(),
            markers: (false, false),
            described: 0,
        }
    }

    /// `n` bytes pass.
    fn pass(
        &mut self,
        (tracer, sent): (&Tracer, bool),
        ends: (SocketAddr, SocketAddr),
        n: usize,
        moved: &impl Moved,
    ) {
        if self.trace == 0 || self.trace != tracer.current() {
            return;
        }
        let nanos = sys::now().nanos();
        if self.qp.0 != 0 && self.described == 0 {
            self.described = TRACED_ANEW;
            tracer.put_connection(self.connection, self.qp, ends);
        }
        let (connection, (qp, _)) = (self.connection, self.qp);
        let (direction, markers) = match sent {
            true => (&mut self.sent, self.markers.0),
            false => (&mut self.received, self.markers.1),
        };
        let described = &mut self.described;
        direction.pass(n, moved, HEAD, |frame| {
            *described = described.saturating_sub(1);
            let kind = match frame.is_startup {
                true => FrameKind::Startup { connection },
                false => FrameKind::Fpdu {
                    qp,
                    connection,
                    position: frame.position,
                    markers,
                },
            };
            tracer.put_frame(nanos, sent, kind, frame.bytes);
        });
    }
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
        {
            let mut traced = new.traced.lock();
            traced.trace = tap.tracer().current();
            (traced.sent, traced.received) = (Framing::from_start(), Framing::from_start());
        }
        new
    }

    /// Of a connection that is not captured yet.
    pub(crate) fn unknown(tap: &Arc<Tap>, peer: SocketAddr) -> StreamTap {
        let connection = tap.new_connection();
        StreamTap {
            tap: tap.clone(),
            local: OnceLock::new(),
            peer,
            state: Mutex::new(State {
                capture: 0,
                info: StreamInfo {
                    connection,
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
            traced: Mutex::new(Traced::unknown(connection)),
        }
    }

    /// The connection runs on this queue pair; `early` are bytes that it has not been given. A capture that has not seen the beginning joins.
    pub(crate) fn join(&self, (qp, wc_qpn): (u32, u32), starts: &FrameStarts<'_>, early: &[u8]) {
        self.join_capture(qp, starts, early);
        self.join_trace((qp, wc_qpn), starts, early);
    }

    fn join_trace(&self, qp: (u32, u32), starts: &FrameStarts<'_>, early: &[u8]) {
        let current = self.tap.tracer().current();
        if current == 0 {
            return;
        }
        let framing = starts.framing;
        let markers = (framing.tx_phase.is_some(), framing.rx_phase.is_some());
        let mut traced = self.traced.lock();
        let sees_all = traced.trace == current && !markers.0 && !markers.1;
        (traced.qp, traced.markers, traced.described) = (qp, markers, 0);
        let (sent, received) = starts.moved;
        let received = received + early.len() as u64;
        if sees_all {
            traced.sent.set_position(sent);
            traced.received.set_position(received);
            return;
        }
        traced.trace = current;
        traced.sent = Framing::behind(starts.unsent, framing.tx_phase).at(sent);
        let waiting = [starts.staged, early];
        traced.received = behind_waiting(framing.rx_left, framing.rx_phase, waiting).at(received);
    }

    fn join_capture(&self, qp: u32, starts: &FrameStarts<'_>, early: &[u8]) {
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
        let tracer = self.tap.tracer();
        if tracer.current() != 0 {
            let (to, ends) = ((&**tracer, sent), (local, self.peer));
            self.traced.lock().pass(to, ends, n, moved);
        }
        if !self.tap.is_attached() {
            return;
        }
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
