//! The terms that both sides agreed on in their startup frames: all that a stream needs to begin.
//! Revision, CRC, markers and extensions match on both ends; an `ord` that was negotiated is at most the other side's `ird`.

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::mpa::fpdu::{Phase, emit_fpdu};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::rdmap::{Cause, Dialect, LlpError, Opcode, Terminate};
use verbena_wire::{Mo, Msn, Qn};

/// The side of the startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Opened the connection and sent the Request.
    Initiator,
    /// Was connected to and sent the Reply.
    Responder,
}

/// The ready-to-receive message of the peer-to-peer model (RFC 6581 §9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rtr {
    /// Client/server model: the responder may send after the initiator's first message.
    None,
    /// Verbena's CAPS control message is sent instead, in both directions.
    Caps,
    /// The initiator first sends a zero-length Send.
    Send,
    /// The same with a zero-length RDMA Write.
    Write,
    /// The same with a zero-length RDMA Read.
    Read,
    /// Responder: any of these may be the first message.
    AnyOf(RtrKinds),
}

/// The result of a successful startup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// This side's role.
    pub role: Role,
    /// The revision of both frames.
    pub revision: Revision,
    /// Checksums in both directions.
    pub crc: bool,
    /// Frames that are sent must have markers.
    pub markers_tx: bool,
    /// Frames that are received have markers.
    pub markers_rx: bool,
    /// Inbound reads and atomics that are served at once.
    pub ird: u16,
    /// Outbound reads and atomics that may be outstanding at once.
    pub ord: u16,
    /// The first message of the stream.
    pub rtr: Rtr,
    /// Verbena's extensions are enabled.
    pub extensions: bool,
    /// The peer's private data.
    pub private_data: Vec<u8>,
}

impl Agreement {
    /// The Terminate FPDU with which an initiator ends a startup whose terms it cannot accept (RFC 6581 §8).
    pub(super) fn startup_terminate(&self, error: LlpError) -> Vec<u8> {
        let header = Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::Terminate,
            ulp: 0,
            qn: Qn::TERMINATE,
            msn: Msn::FIRST,
            mo: Mo::ZERO,
        });
        let mut ulpdu = header.emit().to_vec();
        let terminate = Terminate {
            cause: Cause::Llp(error),
            segment: None,
        };
        terminate.emit(Dialect::Rfc, &mut ulpdu);
        let mut out = Vec::new();
        let phase = self.markers_tx.then_some(Phase::START);
        emit_fpdu(&ulpdu, phase, self.crc, &mut out);
        out
    }
}
