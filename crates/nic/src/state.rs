//! The states of a queue pair, in the terms of InfiniBand (as in verbs) and of the RDMA Consortium.
//! All transitions of both personalities are in one function, those of datagram queue pairs in another; all are kept as snapshots.
//! What a transition does is up to the callers.

use serde::{Deserialize, Serialize};

/// The personality and type of a queue pair.
pub use verbena_wire::ext::{Personality, QpType};

/// The state of a queue pair does not allow a change that was requested; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("queue pair {number} cannot go from {from:?} to {to:?}")]
pub struct TransitionError {
    /// The queue pair.
    pub number: u32,
    /// Its state.
    pub from: QpState,
    /// The requested state.
    pub to: QpState,
}

/// The state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QpState {
    /// New, or reset.
    Reset,
    /// Receives may be posted.
    Init,
    /// Messages are received.
    Rtr,
    /// Sends are transmitted.
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

/// States in the terms of the RDMA Consortium.
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

/// Input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpEvent {
    /// The program requests a state.
    Modify(QpState),
    /// The connection manager has a stream for the queue pair.
    Connected,
    /// A failure found locally: a violation by the peer, or a local request that failed.
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

    /// The same in the RDMA Consortium's terms.
    pub fn rdmac(self) -> RdmacState {
        match self {
            QpState::Reset | QpState::Init | QpState::Rtr => RdmacState::Idle,
            // The stream continues without local sends.
            QpState::Rts | QpState::Sqe => RdmacState::Rts,
            QpState::Sqd | QpState::Closing => RdmacState::Closing,
            QpState::Terminate => RdmacState::Terminate,
            QpState::Err => RdmacState::Error,
        }
    }

    /// The state's number in verbs; the two `iwarp` states `Closing` and `Terminate` are shown as SQD and SQE.
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

    /// A send may be posted: it is executed, kept, or flushed.
    pub fn takes_sends(self) -> bool {
        matches!(
            self,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Terminate | QpState::Err
        )
    }

    /// Every posted request flushes at once.
    pub fn flushes(self) -> bool {
        matches!(self, QpState::Closing | QpState::Terminate | QpState::Err)
    }

    /// Messages of the peer are accepted.
    pub fn receives(self) -> bool {
        matches!(
            self,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// Every request posted to the send queue flushes at once.
    pub fn flushes_sends(self) -> bool {
        self.flushes() || self == QpState::Sqe
    }

    /// The state after `event`; `None` if it is not allowed and nothing changes.
    pub fn next(self, personality: Personality, event: QpEvent) -> Option<QpState> {
        match event {
            // Any queue pair can be moved to the error state or reset, except where `iwarp_reset` excludes it.
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
            // M4: a program that has handled the failure may continue.
            (S::Sqe, S::Rts, _) => Some(to),
            (S::Rtr, S::Rts, Personality::Roce)
            | (S::Rts, S::Sqd, Personality::Roce)
            | (S::Sqd, S::Rts | S::Sqd, Personality::Roce) => Some(to),
            // Only the connection manager moves an iWARP queue pair to RTS; before that the verbs' call changes nothing.
            (S::Rtr, S::Rts, Personality::Iwarp) => Some(S::Rtr),
            (S::Rts | S::Sqe, S::Sqd | S::Closing, Personality::Iwarp) => Some(S::Closing),
            (S::Rts | S::Sqe, S::Terminate, Personality::Iwarp) => Some(S::Terminate),
            _ => None,
        }
    }

    /// The state of a datagram queue pair, which has no peer, after `event`; `None` if it is not allowed and nothing changes.
    pub fn next_ud(self, event: QpEvent) -> Option<QpState> {
        use QpState as S;
        match (self, event) {
            (_, QpEvent::Modify(S::Err)) => Some(S::Err),
            (_, QpEvent::Modify(S::Reset)) => Some(S::Reset),
            (S::Reset | S::Init, QpEvent::Modify(S::Init)) => Some(S::Init),
            (S::Init, QpEvent::Modify(S::Rtr)) => Some(S::Rtr),
            (S::Rtr | S::Rts | S::Sqd | S::Sqe, QpEvent::Modify(S::Rts)) => Some(S::Rts),
            (S::Rts | S::Sqd, QpEvent::Modify(S::Sqd)) => Some(S::Sqd),
            // InfiniBand: a local send error stops the send queue only.
            (S::Rts | S::Sqd, QpEvent::SendFailed) => Some(S::Sqe),
            (S::Init | S::Rtr | S::Rts | S::Sqd | S::Sqe, QpEvent::Failed) => Some(S::Err),
            _ => None,
        }
    }

    /// InfiniBand's rules: a peer that closes cleanly changes nothing; failures end in `Err`.
    fn roce(self, event: QpEvent) -> Option<QpState> {
        use QpState as S;
        match (self, event) {
            // A connection manager moves the queue pair to RTS itself; a program that calls `ibv_modify_qp` does so later, and until
            // then the queue pair receives and responds, but sends no requests.
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

    /// The RDMA Consortium's rules.
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

    /// An iWARP queue pair with a stream must be in the error state before it can be reset.
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
