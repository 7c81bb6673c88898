//! A PDU of either side, and whether first bytes look like one. A direction is parsed by the rules of its sender, without state.

use verbena_storage_wire::iscsi::{Bhs, FromInitiator, FromTarget, Opcode};
use verbena_wire::Malformed;

use super::super::record::Dir;

/// A PDU of either side.
#[derive(Debug, Clone, Copy)]
pub(super) enum AnyPdu {
    Initiator(FromInitiator),
    Target(FromTarget),
}

impl AnyPdu {
    pub(super) fn parse(dir: Dir, bhs: &Bhs) -> Result<AnyPdu, Malformed> {
        match dir {
            Dir::ToResponder => FromInitiator::parse(bhs).map(AnyPdu::Initiator),
            Dir::ToInitiator => FromTarget::parse(bhs).map(AnyPdu::Target),
        }
    }

    pub(super) fn opcode(&self) -> Opcode {
        match self {
            AnyPdu::Initiator(pdu) => pdu.opcode(),
            AnyPdu::Target(pdu) => pdu.opcode(),
        }
    }

    pub(super) fn is_login(&self) -> bool {
        matches!(self.opcode(), Opcode::LoginRequest | Opcode::LoginResponse)
    }
}

/// Whether a connection begins with a login.
pub fn is_login(bytes: &[u8]) -> bool {
    let first = bytes.first().map(|first| Opcode::from_code(first & 0x3f));
    first == Some(Some(Opcode::LoginRequest))
}

/// Whether these bytes begin with a valid header of this direction.
pub fn is_header(dir: Dir, bytes: &[u8]) -> bool {
    bytes
        .first_chunk()
        .is_some_and(|bhs| AnyPdu::parse(dir, bhs).is_ok())
}
