//! What both sides agreed on in their startup frames: everything a stream must know to begin.
//! It promises that the two ends of one exchange compute matching agreements.
//! It refuses to know how the bytes travelled.

use serde::{Deserialize, Serialize};
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::mpa::fpdu::{Phase, emit_fpdu};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::rdmap::{Cause, Dialect, LlpError, Opcode, Terminate};
use verbena_wire::{Mo, Msn, Qn};

/// Which side of the startup we are.
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
    /// Client/server model: the initiator's first message opens the responder's gate.
    None,
    /// Verbena's CAPS control message takes its place, in both directions.
    Caps,
    /// The initiator sends this one first.
    Send,
    /// As above, by a zero-length RDMA Write.
    Write,
    /// As above, by a zero-length RDMA Read.
    Read,
    /// Responder: any of these may come first.
    AnyOf(RtrKinds),
}

/// The result of a good startup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Our side.
    pub role: Role,
    /// The revision both frames carried.
    pub revision: Revision,
    /// Checksums in both directions.
    pub crc: bool,
    /// We must put markers into what we send.
    pub markers_tx: bool,
    /// The peer puts markers into what it sends.
    pub markers_rx: bool,
    /// Inbound reads and atomics we serve at once.
    pub ird: u16,
    /// Outbound reads and atomics we may have at once.
    pub ord: u16,
    /// What opens the stream.
    pub rtr: Rtr,
    /// Verbena's extensions are in force.
    pub extensions: bool,
    /// The peer's private data.
    pub private_data: Vec<u8>,
}

impl Agreement {
    /// The Terminate FPDU with which an initiator leaves a startup it cannot agree with (RFC 6581 §8).
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
