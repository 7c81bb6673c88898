//! Where a queue pair stands, in both vocabularies: InfiniBand's (as verbs name it) and the RDMA Consortium's.
//! All transitions of both personalities are in one function, those of datagram queue pairs in another; all are kept as snapshots.
//! It refuses to know what a transition does; callers act on it.

use serde::{Deserialize, Serialize};

/// Whose manners a queue pair has.
pub use verbena_wire::ext::{Personality, QpType};

/// The state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QpState {
    /// Fresh, or emptied again.
    Reset,
    /// May be given receives.
    Init,
    /// May receive.
    Rtr,
    /// May send.
    Rts,
    /// The send queue drains; `roce` only.
    Sqd,
    /// A send failed and the send queue flushes, while receives go on: a datagram that could not be sent, or a registration
    /// that could not be executed on a queue pair that may try again (M4).
    Sqe,
    /// A graceful close is under way; `iwarp` only.
    Closing,
    /// A Terminate was sent or received and the connection is being taken down; `iwarp` only.
    Terminate,
    /// Everything flushes.
    Err,
}

/// States in the words of the RDMA Consortium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RdmacState {
    /// No stream.
    Idle,
    /// Full operation.
    Rts,
    /// Graceful close.
    Closing,
    /// Abortive close.
    Terminate,
    /// Failed.
    Error,
}

/// What moves a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpEvent {
    /// The consumer asks for a state.
    Modify(QpState),
    /// The connection manager has a stream for it.
    Connected,
    /// A failure found here: a violation of the peer's, or a request of ours that failed.
    Failed,
    /// The peer's Terminate.
    PeerTerminated,
    /// The peer closed cleanly and nothing is outstanding.
    PeerClosed,
    /// The connection is lost, or was closed with work outstanding.
    PeerLost,
    /// The connection is completely closed.
    Closed,
    /// A send of a datagram queue pair failed, or a registration that may be tried again (M4).
    SendFailed,
}

impl QpState {
    /// Every state, for tables.
    pub const ALL: [QpState; 9] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Closing,
        QpState::Terminate,
        QpState::Err,
        QpState::Sqe,
    ];

    /// The same in the RDMA Consortium's words.
    pub fn rdmac(self) -> RdmacState {
        match self {
            QpState::Reset | QpState::Init | QpState::Rtr => RdmacState::Idle,
            // The stream goes on without our sends.
            QpState::Rts | QpState::Sqe => RdmacState::Rts,
            QpState::Sqd | QpState::Closing => RdmacState::Closing,
            QpState::Terminate => RdmacState::Terminate,
            QpState::Err => RdmacState::Error,
        }
    }

    /// The verbs' number of the state; `iwarp`'s own two are shown as their neighbours SQD and SQE.
    pub fn verbs(self) -> u8 {
        match self {
            QpState::Reset => 0,
            QpState::Init => 1,
            QpState::Rtr => 2,
            QpState::Rts => 3,
            QpState::Sqd | QpState::Closing => 4,
            QpState::Terminate | QpState::Sqe => 5,
            QpState::Err => 6,
        }
    }

    /// A receive may be posted.
    pub fn takes_receives(self) -> bool {
        self != QpState::Reset
    }

    /// A send may be posted: it is carried out, kept, or flushed.
    pub fn takes_sends(self) -> bool {
        matches!(
            self,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Terminate | QpState::Err
        )
    }

    /// Whatever is posted flushes at once.
    pub fn flushes(self) -> bool {
        matches!(self, QpState::Closing | QpState::Terminate | QpState::Err)
    }

    /// Messages of the peer are taken.
    pub fn receives(self) -> bool {
        matches!(
            self,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// Whatever is posted to the send queue flushes at once.
    pub fn flushes_sends(self) -> bool {
        self.flushes() || self == QpState::Sqe
    }

    /// The state after `event`; `None` when it is refused and nothing changes.
    pub fn next(self, personality: Personality, event: QpEvent) -> Option<QpState> {
        match event {
            // Any queue pair can be failed or emptied by its owner, except into or out of what it is doing now.
            QpEvent::Modify(QpState::Err) => Some(QpState::Err),
            QpEvent::Modify(QpState::Reset) => match personality {
                Personality::Roce => Some(QpState::Reset),
                Personality::Iwarp => self.iwarp_reset(),
            },
            QpEvent::Modify(to) => self.modify(personality, to),
            _ => match personality {
                Personality::Roce => self.roce(event),
                Personality::Iwarp => self.iwarp(event),
            },
        }
    }

    fn modify(self, personality: Personality, to: QpState) -> Option<QpState> {
        use QpState as S;
        match (self, to, personality) {
            (S::Reset, S::Init, _) | (S::Init, S::Init, _) | (S::Init, S::Rtr, _) => Some(to),
            (S::Rts, S::Rts, _) => Some(to),
            // M4: whoever has seen what failed may try again.
            (S::Sqe, S::Rts, _) => Some(to),
            (S::Rtr, S::Rts, Personality::Roce)
            | (S::Rts, S::Sqd, Personality::Roce)
            | (S::Sqd, S::Rts | S::Sqd, Personality::Roce) => Some(to),
            // The connection manager alone makes an iWARP queue pair send; the verbs' calls are harmless before.
            (S::Rtr, S::Rts, Personality::Iwarp) => Some(S::Rtr),
            (S::Rts | S::Sqe, S::Sqd | S::Closing, Personality::Iwarp) => Some(S::Closing),
            (S::Rts | S::Sqe, S::Terminate, Personality::Iwarp) => Some(S::Terminate),
            _ => None,
        }
    }

    /// The state of a datagram queue pair after `event`, which has no peer; `None` when it is refused and nothing changes.
    pub fn next_ud(self, event: QpEvent) -> Option<QpState> {
        use QpState as S;
        match (self, event) {
            (_, QpEvent::Modify(S::Err)) => Some(S::Err),
            (_, QpEvent::Modify(S::Reset)) => Some(S::Reset),
            (S::Reset | S::Init, QpEvent::Modify(S::Init)) => Some(S::Init),
            (S::Init, QpEvent::Modify(S::Rtr)) => Some(S::Rtr),
            (S::Rtr | S::Rts | S::Sqd | S::Sqe, QpEvent::Modify(S::Rts)) => Some(S::Rts),
            (S::Rts | S::Sqd, QpEvent::Modify(S::Sqd)) => Some(S::Sqd),
            // InfiniBand: a send that fails here stops the send queue alone.
            (S::Rts | S::Sqd, QpEvent::SendFailed) => Some(S::Sqe),
            (S::Init | S::Rtr | S::Rts | S::Sqd | S::Sqe, QpEvent::Failed) => Some(S::Err),
            _ => None,
        }
    }

    /// InfiniBand's manners: a peer that goes away changes nothing by itself; failures end in `Err`.
    fn roce(self, event: QpEvent) -> Option<QpState> {
        use QpState as S;
        match (self, event) {
            // A connection manager opens the gate itself; a consumer that moves its queue pair by hand does so in its
            // own time, and until then the queue pair receives and answers, but asks nothing.
            (S::Init, QpEvent::Connected) => Some(S::Rts),
            (S::Rtr | S::Rts | S::Sqd, QpEvent::Connected) => Some(self),
            (S::Rtr | S::Rts | S::Sqd | S::Sqe, QpEvent::Failed | QpEvent::PeerTerminated) => {
                Some(S::Err)
            }
            (S::Rts | S::Sqd, QpEvent::SendFailed) => Some(S::Sqe),
            (S::Rts | S::Sqd | S::Sqe, QpEvent::PeerLost) => Some(S::Err),
            (state, QpEvent::PeerClosed | QpEvent::PeerLost | QpEvent::Closed) => Some(state),
            _ => None,
        }
    }

    /// The RDMA Consortium's manners.
    fn iwarp(self, event: QpEvent) -> Option<QpState> {
        use QpState as S;
        match (self, event) {
            (S::Reset | S::Init | S::Rtr, QpEvent::Connected) => Some(S::Rts),
            (S::Rts, QpEvent::SendFailed) => Some(S::Sqe),
            (S::Rts | S::Sqe, QpEvent::Failed | QpEvent::PeerTerminated) => Some(S::Terminate),
            (S::Rts | S::Sqe, QpEvent::PeerClosed) => Some(S::Closing),
            (S::Rts | S::Sqe, QpEvent::PeerLost) => Some(S::Err),
            (S::Closing, QpEvent::Closed) => Some(S::Init),
            (S::Closing, QpEvent::PeerClosed) => Some(S::Closing),
            (S::Closing, QpEvent::Failed | QpEvent::PeerTerminated | QpEvent::PeerLost) => {
                Some(S::Err)
            }
            (S::Terminate, QpEvent::Closed | QpEvent::PeerLost) => Some(S::Err),
            (S::Terminate, QpEvent::PeerClosed | QpEvent::PeerTerminated) => Some(S::Terminate),
            (S::Err, QpEvent::Closed | QpEvent::PeerClosed | QpEvent::PeerLost) => Some(S::Err),
            _ => None,
        }
    }

    /// An iWARP queue pair with a stream must be failed before it can be emptied.
    fn iwarp_reset(self) -> Option<QpState> {
        matches!(
            self,
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Err
        )
        .then_some(QpState::Reset)
    }
}

#[cfg(test)]
mod tests;
