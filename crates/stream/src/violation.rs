//! Protocol errors of a peer on an established stream, with the numbers that show them.
//! Each variant is one broken rule; [`crate::terminate`] maps all of them to Terminate codes.

use verbena_wire::rdmap::Opcode;
use verbena_wire::{Malformed, Mo, Msn, Qn, Rsn, Srqn, Stag, To};

/// A rule of MPA, DDP, RDMAP or the extensions (docs/extensions.md) that the peer broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum Violation {
    // MPA
    /// The FPDU's checksum does not match its bytes.
    #[error("FPDU checksum is {got:#010x}, computed {expected:#010x}")]
    Crc { expected: u32, got: u32 },
    /// A marker does not point to the start of its FPDU as the lengths give it.
    #[error("marker points back {got} bytes, the FPDU began {expected} bytes before it")]
    Marker { expected: u16, got: u16 },
    /// A segment that arrived ahead of a gap, and was a valid FPDU there, is in the middle of one in the stream.
    #[error("an FPDU that arrived out of order does not begin where the one before it ends")]
    Misaligned,
    /// The ULPDU is shorter than the header it must begin with.
    #[error("FPDU of {got} bytes is shorter than its {need}-byte header")]
    TooShort { need: u16, got: u16 },
    /// The stream ended inside an FPDU.
    #[error("the stream ended inside an FPDU")]
    CutFpdu,
    /// The stream ended between the segments of a message.
    #[error("the stream ended inside a message")]
    CutMessage,

    // headers
    /// A header or a fixed-size message body that does not parse.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// An opcode that was not agreed on, or one whose tagged bit contradicts it.
    #[error("unexpected opcode {} ({})", .0.code(), .0.name())]
    Opcode(Opcode),
    /// A message with a fixed layout has another length.
    #[error("{} of {got} bytes, must be {need}", .opcode.name())]
    BodyLength { opcode: Opcode, need: u16, got: u16 },
    /// A message that must be one segment has several.
    #[error("{} must be a single segment", .0.name())]
    NotSingle(Opcode),

    // DDP untagged
    /// The queue number does not belong to the opcode.
    #[error("{} on queue {}", .opcode.name(), .got.get())]
    Queue { opcode: Opcode, got: Qn },
    /// A message sequence number that is not the next.
    #[error("queue {}: got message {}, expected {}", .qn.get(), .got.get(), .expected.get())]
    MsnRange { qn: Qn, expected: Msn, got: Msn },
    /// No receive was posted for the message.
    #[error("no receive posted for message {}", .msn.get())]
    NoReceive { msn: Msn },
    /// A segment that does not continue where the last one ended.
    #[error("segment at offset {}, expected offset {}", .got.get(), .expected.get())]
    Offset { expected: Mo, got: Mo },
    /// A message that ends beyond 2^32 bytes.
    #[error("segment at offset {} with {len} bytes passes 2^32", .mo.get())]
    OffsetWrap { mo: Mo, len: u32 },
    /// A message longer than the receive it consumes.
    #[error("message reaches {end} bytes, its receive holds {capacity}")]
    TooLong { capacity: u32, end: u64 },
    /// A later segment that differs from the first in its opcode or RDMAP word.
    #[error("segment has opcode {}, its message began with {}", .got.name(), .began.name())]
    Changed { began: Opcode, got: Opcode },
    /// A Send with immediate too short for its immediate data.
    #[error("Send with immediate of {got} bytes")]
    ImmediateMissing { got: u32 },

    // DDP tagged
    /// A tagged segment whose end passes 2^64.
    #[error("segment at {:#x} with {len} bytes wraps", .to.get())]
    Wrap { to: To, len: u32 },
    /// A tagged segment that does not continue its message.
    #[error("tagged segment at {:#x}, expected {:#x}", .got.get(), .expected.get())]
    TaggedGap { expected: To, got: To },
    /// A tagged segment for another STag than its message began with.
    #[error("tagged segment for STag {got}, the message began with {expected}")]
    TaggedStag { expected: Stag, got: Stag },
    /// A tagged message of 2^32 bytes or more.
    #[error("tagged message passes 2^32 bytes")]
    TaggedTooLong,

    // RDMAP
    /// A message began while another was unfinished, which the extensions do not allow.
    #[error("{} began inside an unfinished {}", .got.name(), .open.name())]
    Interleaved { open: Opcode, got: Opcode },
    /// More reads and atomics at once than were agreed.
    #[error("more than {limit} reads outstanding")]
    TooManyReads { limit: u16 },
    /// A response without a request, or of another kind than the oldest request.
    #[error("{} without a matching request", .0.name())]
    Unsolicited(Opcode),
    /// A Read Response for another sink than the request named.
    #[error("Read Response for STag {got}, asked for {expected}")]
    ResponseStag { expected: Stag, got: Stag },
    /// A Read Response that does not start at the address of the request.
    #[error("Read Response at {:#x}, expected at {:#x}", .got.get(), .expected.get())]
    ResponseOffset { expected: To, got: To },
    /// A Read Response that exceeds its request.
    #[error("{} reaches {end} bytes of {size} asked", .opcode.name())]
    ResponseTooLong { opcode: Opcode, size: u32, end: u64 },
    /// A Read Response that ends before its request is satisfied.
    #[error("{} ends after {got} bytes of {size} asked", .opcode.name())]
    ResponseShort { opcode: Opcode, size: u32, got: u32 },
    /// An Atomic Response with another identifier than the oldest atomic request.
    #[error("Atomic Response {got:#x}, asked as {expected:#x}")]
    AtomicId { expected: u32, got: u32 },
    /// The first FPDU was not the ready-to-receive message that was agreed (RFC 6581 §9.2).
    #[error("first FPDU is {}, not the agreed ready-to-receive message", .0.name())]
    NotRtr(Opcode),

    // memory and queues
    /// Memory that the peer may not access so. Reported by the caller, which checks memory.
    #[error("{} refused: {fault} (STag {stag})", .opcode.name())]
    Access {
        opcode: Opcode,
        stag: Stag,
        fault: AccessFault,
    },
    /// The operation is not enabled on this queue pair.
    #[error("{} is not enabled here", .0.name())]
    NotEnabled(Opcode),
    /// An atomic on an address that is not a multiple of eight.
    #[error("atomic on unaligned address {:#x}", .to.get())]
    Unaligned { to: To },
    /// A request for a shared receive queue that is not in the XRC domain of this queue pair, or for none.
    #[error("no shared receive queue {0} in this XRC domain")]
    NoSuchSrq(Srqn),
    /// The local receive buffer could not be written: not the peer's fault, but it ends the stream.
    #[error("the receive buffer is not writable")]
    ReceiveBuffer,

    // control messages
    /// A control message with a number that is not possible.
    #[error("{kind} names request {}, possible were {}..={}", .got.get(), .low.get(), .high.get())]
    Impossible {
        kind: &'static str,
        low: Rsn,
        high: Rsn,
        got: Rsn,
    },
    /// A control message that is not allowed in this state.
    #[error("{0} out of place")]
    OutOfPlace(&'static str),
    /// CAPS came twice, or something else came first.
    #[error("CAPS must be the first FPDU, once")]
    Caps,
}

/// Why a peer's access to memory was refused (RFC 5040 §4.8, RFC 5041 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessFault {
    /// No such STag, or its key has changed.
    #[error("invalid STag")]
    InvalidStag,
    /// The STag is one-touch and was touched before (M9).
    #[error("second touch of a one-touch STag")]
    Touched,
    /// Outside the region or window.
    #[error("out of bounds")]
    Bounds,
    /// The right is not granted.
    #[error("right not granted")]
    Rights,
    /// The STag belongs to another protection domain or stream.
    #[error("STag of another domain or stream")]
    NotAssociated,
    /// Address plus length wraps.
    #[error("address wraps")]
    Wrap,
    /// The STag may not be invalidated by this peer.
    #[error("cannot be invalidated")]
    CannotInvalidate,
}
