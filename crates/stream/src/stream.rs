//! An iWARP stream after startup: receive side, transmit side and the accounting between them.
//! It tells the caller where bytes go and is told how many were placed (docs/ARCHITECTURE.md); it sends nothing before the rules of
//! startup allow it, and at most one Terminate, after the responses it owes. Payload, queues, memory and time are the caller's.

mod failing;
mod lifecycle;
mod receive;
mod transmit;

pub use lifecycle::{Event, State};
pub use transmit::{BeginError, ControlPending};

use serde::{Deserialize, Serialize};
use verbena_wire::ext::{Caps, Features, QpType};
use verbena_wire::mpa::fpdu::Phase;
use verbena_wire::number::{Psn, Srqn};

use crate::accounting::Accounting;
use crate::requester::RnrRetry;
use crate::responder::AckPolicy;
use crate::rx::{FirstFpdu, Rx, RxFeatures};
use crate::startup::{Agreement, Role, Rtr};
use crate::time::Time;
use crate::tx::{ControlOut, Tx};
use crate::violation::Violation;

/// Settings of a stream besides the startup's agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The longest ULPDU to send; lowered by what the peer's CAPS allow.
    pub max_ulpdu: u16,
    /// RFC 7306 messages are allowed in both directions; with extensions they always are.
    pub rfc7306: bool,
    /// How long to wait for a receiver that is not ready.
    pub rnr_retry: RnrRetry,
    /// An unreliable connection: a message that is too long for its receive is dropped, not a violation.
    pub drop_overlong: bool,
    /// This side's capabilities; sent first with extensions.
    pub caps: Caps,
}

/// How the bytes of a stream are framed from now on, for a reader that joins in the middle of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// This side sent the Request.
    pub is_initiator: bool,
    /// Checksums are on.
    pub crc: bool,
    /// Bytes of the frame being received that were not consumed.
    pub rx_left: usize,
    /// The phase of the frame behind it; none without markers.
    pub rx_phase: Option<Phase>,
    /// The phase of the next frame that is framed; none without markers.
    pub tx_phase: Option<Phase>,
}

/// One established stream.
///
/// Receive: call [`handle`](Stream::handle) with the stage, do what the [`Step`](crate::Step) says, report with
/// [`placed`](Stream::placed) and [`claim`](Stream::claim), repeat. Transmit: drain
/// [`poll_control`](Stream::poll_control) first, then [`begin`](Stream::begin) a message and send its
/// [`next_frame`](Stream::next_frame)s, draining control in between. After a violation the caller continues to send responses while
/// the stream [`owes_responses`](Stream::owes_responses), or calls
/// [`drop_responses`](Stream::drop_responses).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stream {
    state: State,
    rx: Rx,
    tx: Tx,
    accounting: Accounting,
    control: ControlOut,
    /// Both sides support docs/extensions.md.
    extensions: bool,
    /// Atomics and immediate data may be sent.
    rfc7306: bool,
    /// This side sent the Request, so it sends the first FPDU.
    is_initiator: bool,
    local_caps: Caps,
    peer_caps: Option<Caps>,
    /// The ready-to-receive message that is still to be sent.
    rtr: Option<Rtr>,
    /// The shared receive queue that the next request is for, as the peer was or will be told (XRC). Not moved: an XRC queue pair is
    /// not migrated.
    #[serde(skip)]
    named_srq: Option<Srqn>,
    /// A stream with a cause is over, and is not handed over.
    #[serde(skip)]
    cause: Option<Violation>,
}

impl Stream {
    /// A stream with the startup's agreement.
    pub fn new(agreement: &Agreement, settings: Settings) -> Stream {
        let extensions = agreement.extensions;
        let features = settings.caps.features;
        let accepts = RxFeatures {
            rfc7306: settings.rfc7306 || extensions,
            extensions,
            read_v2: extensions && features.contains(Features::READ_V2),
            send_imm: extensions && features.contains(Features::SEND_IMM),
            xrc: extensions && settings.caps.qp_type == QpType::XrcRecv,
            memory_placement: extensions && features.contains(Features::MEMORY_PLACEMENT),
            drop_overlong: settings.drop_overlong,
        };
        let first = match (agreement.role, agreement.rtr) {
            (_, Rtr::Caps) => FirstFpdu::Caps,
            (Role::Responder, Rtr::AnyOf(kinds)) => FirstFpdu::Rtr(kinds),
            _ => FirstFpdu::Any,
        };
        let (rtr, state) = match (agreement.role, agreement.rtr) {
            (Role::Initiator, Rtr::None) => (None, State::Running),
            (Role::Initiator, Rtr::Caps) | (Role::Responder, _) => (None, State::Opening),
            (Role::Initiator, rtr) => (Some(rtr), State::Running),
        };
        let (crc, ird, ord) = (agreement.crc, agreement.ird, agreement.ord);
        let mut control = ControlOut::default();
        if extensions {
            // Not more than is served, or a peer that relies on it would commit a violation.
            let served = settings.caps.ird.min(ird);
            control.caps = Some(Caps {
                ird: served,
                ..settings.caps
            });
        }
        Stream {
            state,
            rx: Rx::new(agreement.markers_rx, crc, accepts, first),
            tx: Tx::new(agreement.markers_tx, crc, settings.max_ulpdu),
            accounting: Accounting::new(extensions, ird, ord, settings.rnr_retry),
            control,
            extensions,
            rfc7306: accepts.rfc7306,
            is_initiator: agreement.role == Role::Initiator,
            local_caps: settings.caps,
            peer_caps: None,
            rtr,
            named_srq: None,
            cause: None,
        }
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The violation that ended the stream, if one did: the first, never a later one.
    pub fn cause(&self) -> Option<&Violation> {
        self.cause.as_ref()
    }

    /// Where frames begin in the bytes that come next, and how they are framed.
    pub fn framing(&self) -> Framing {
        let (rx_left, rx_phase) = self.rx.deframer().next_frame();
        Framing {
            is_initiator: self.is_initiator,
            crc: self.rx.deframer().has_crc(),
            rx_left,
            rx_phase,
            tx_phase: self.tx.phase(),
        }
    }

    /// The outstanding work.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// The peer's capabilities, once known.
    pub fn peer_caps(&self) -> Option<&Caps> {
        self.peer_caps.as_ref()
    }

    /// Both sides offer this feature.
    pub fn has(&self, feature: Features) -> bool {
        let peer = self.peer_caps.as_ref();
        self.local_caps.features.contains(feature)
            && peer.is_some_and(|c| c.features.contains(feature))
    }

    /// Both sides support docs/extensions.md.
    pub fn has_extensions(&self) -> bool {
        self.extensions
    }

    /// Both sides see the same addresses of the connection: no proxy or translator is between them.
    pub fn is_direct(&self) -> bool {
        let peer = self.peer_caps.as_ref().and_then(|caps| caps.path);
        peer.is_some() && peer == self.local_caps.path
    }

    /// Sets how long to wait for a receiver that is not ready, from now on.
    pub fn set_rnr_retry(&mut self, retry: RnrRetry) {
        self.accounting.requester.set_retry(retry);
    }

    /// Sets when acknowledgements are due, from now on.
    pub fn set_ack_policy(&mut self, policy: AckPolicy) {
        self.accounting.responder.set_policy(policy);
    }

    /// Limits the reads and atomics that are outstanding at once; the limit is never raised.
    pub fn limit_reads(&mut self, depth: u16) {
        self.accounting.reads_out.limit_to(depth);
    }

    /// When [`handle_timeout`](Stream::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Time> {
        self.accounting.requester.deadline()
    }

    /// Checks the deadline; true if a receiver was not ready for longer than allowed.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        self.accounting.requester.handle_timeout(now)
    }

    /// The peer closed its direction with `staged` bytes unconsumed.
    pub fn handle_eof(&mut self, staged: usize) -> Result<(), Violation> {
        let open = self.state.is_open();
        self.enter(Event::Eof);
        let verdict = if open {
            self.rx.handle_eof(staged)
        } else {
            Ok(())
        };
        if let Err(violation) = verdict {
            self.cause.get_or_insert(violation);
        }
        verdict
    }

    /// Announces that this side's queue pair is in RTS; the peer compares the number with what it expects.
    pub fn announce_active(&mut self, psn: Psn) {
        if self.extensions {
            self.control.active = Some(psn);
        }
    }

    pub(crate) fn enter(&mut self, event: Event) {
        if let Some(next) = self.state.next(event) {
            self.state = next;
        }
    }
}

#[cfg(test)]
mod tests;
