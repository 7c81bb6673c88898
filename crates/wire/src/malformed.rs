//! The parse error of this crate. Each variant carries the numbers that were wrong, so that a log
//! line or a Terminate can be written from it; the caller decides how to react.

#[cfg(test)]
mod tests;

/// Bytes that do not form the header they should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The input ends inside the header.
    #[error("{what} needs {need} bytes, only {got} are there")]
    Truncated {
        /// The header being read.
        what: &'static str,
        /// Bytes it takes.
        need: usize,
        /// Bytes available.
        got: usize,
    },
    /// The input is longer than this header may ever be.
    #[error("{what} is limited to {limit} bytes, got {got}")]
    TooLong {
        /// The header being read.
        what: &'static str,
        /// Most bytes it may take.
        limit: usize,
        /// Bytes given.
        got: usize,
    },
    /// The DDP version is not 1.
    #[error("DDP version {got} in {} segment, expected 1", class(*tagged))]
    DdpVersion {
        /// Whether the segment was tagged, since the Terminate code differs.
        tagged: bool,
        /// The version found.
        got: u8,
    },
    /// A tagged header was asked for and an untagged one found, or the reverse.
    #[error("{} DDP header expected, the T bit does not match", class(*expected_tagged))]
    DdpClass {
        /// Whether the caller wanted a tagged header.
        expected_tagged: bool,
    },
    /// The RDMAP version is not 1.
    #[error("RDMAP version {got}, expected 1")]
    RdmapVersion {
        /// The version found.
        got: u8,
    },
    /// The atomic operation code is not known, or not agreed on.
    #[error("atomic operation code {got} is not defined")]
    AtomicCode {
        /// The code found.
        got: u8,
    },
    /// A Flush with a placement type other than global visibility, or a selectivity that is not defined.
    #[error("flush with placement type {placement:#x} and selectivity {selectivity:#x}")]
    FlushKind {
        /// The placement type found.
        placement: u64,
        /// The selectivity found.
        selectivity: u64,
    },
    /// An Immediate Data message does not carry exactly 8 bytes.
    #[error("immediate data is 8 bytes, got {got}")]
    ImmediateLength {
        /// Payload bytes found.
        got: usize,
    },
    /// A Terminate message ends inside the headers its own bits announce.
    #[error("terminate message announces {need} bytes, only {got} are there")]
    TerminateTruncated {
        /// Bytes announced.
        need: usize,
        /// Bytes available.
        got: usize,
    },
    /// The control message kind is not one of 1 to 7.
    #[error("control message kind {got} is not defined")]
    ControlKind {
        /// The kind found.
        got: u8,
    },
    /// A control message of this kind must have another payload length.
    #[error("control message kind {kind} takes {need} payload bytes, got {got}")]
    ControlLength {
        /// The control message kind.
        kind: u8,
        /// Payload bytes it takes.
        need: usize,
        /// Payload bytes found.
        got: usize,
    },
    /// A capability appears twice.
    #[error("capability {tag} appears twice")]
    CapsDuplicate {
        /// The capability's tag.
        tag: u8,
    },
    /// A mandatory capability does not appear.
    #[error("capability {tag} is missing")]
    CapsMissing {
        /// The capability's tag.
        tag: u8,
    },
    /// The payload ends inside a capability.
    #[error("capability {tag} is cut short")]
    CapsTruncated {
        /// The capability's tag.
        tag: u8,
    },
    /// A capability has a length that its tag does not allow.
    #[error("capability {tag} takes {need} bytes, got {got}")]
    CapsLength {
        /// The capability's tag.
        tag: u8,
        /// Value bytes it takes.
        need: usize,
        /// Value bytes found.
        got: usize,
    },
    /// A capability has a value that its tag does not allow.
    #[error("capability {tag} has an impossible value")]
    CapsValue {
        /// The capability's tag.
        tag: u8,
    },
    /// The receiver-not-ready timer code does not fit five bits.
    #[error("RNR timer code {got} is above 31")]
    RnrTimer {
        /// The code found.
        got: u8,
    },
    /// Private data of an out-of-band connection with an invalid field.
    #[error("{what} has an invalid field")]
    Dial {
        /// What it should be.
        what: &'static str,
    },
    /// The transport header version of a RoCEv2 packet is not 0.
    #[error("BTH transport version {got}, expected 0")]
    BthVersion {
        /// The version found.
        got: u8,
    },
    /// A RoCEv2 opcode other than the two of the unreliable datagram service.
    #[error("BTH opcode {got:#04x} is not an unreliable datagram")]
    UdOpcode {
        /// The opcode found.
        got: u8,
    },
    /// A RoCEv2 opcode that is not defined, or of a service that is not supported.
    #[error("BTH opcode {got:#04x} is not supported")]
    RoceOpcode {
        /// The opcode found.
        got: u8,
    },
    /// The syndrome of an acknowledgement is reserved.
    #[error("AETH syndrome {got:#04x} is not defined")]
    Syndrome {
        /// The syndrome found.
        got: u8,
    },
    /// A field of a management datagram has a value that it cannot have.
    #[error("{what} {got:#x} is not defined")]
    Mad {
        /// The field.
        what: &'static str,
        /// The value found.
        got: u64,
    },
    /// The pad count of a RoCEv2 packet exceeds its payload.
    #[error("pad count {pad} exceeds the {payload} bytes of payload and pad")]
    Padding {
        /// Pad count of the header.
        pad: u8,
        /// Bytes between the headers and the ICRC.
        payload: usize,
    },
    /// The version of a cell is not 1.
    #[error("cell version {got}, expected 1")]
    CellVersion {
        /// The version found.
        got: u8,
    },
    /// The kind of a cell is not one of 0 to 8.
    #[error("cell kind {got} is not defined")]
    CellKind {
        /// The kind found.
        got: u8,
    },
    /// The checksum of a cell is wrong.
    #[error("cell CRC {got:#010x}, expected {expected:#010x} over {len} bytes with it")]
    CellCrc {
        /// The checksum of the bytes.
        expected: u32,
        /// The checksum found behind them.
        got: u32,
        /// Bytes of the cell, computed from its header.
        len: usize,
    },
    /// Flags that a cell of this kind cannot have, or not together.
    #[error("cell of kind {kind} with flags {flags:#04x}")]
    CellFlags {
        /// The kind.
        kind: u8,
        /// The flags found.
        flags: u8,
    },
    /// The first cell of a packet has number 0, and no other.
    #[error("cell number {got} in {}", if *.first { "a first cell" } else { "another cell" })]
    CellSequence {
        /// Whether the cell has the FIRST flag.
        first: bool,
        /// The number found.
        got: u16,
    },
    /// Bits of a cell that must be zero are not.
    #[error("reserved bits of a cell set in {got:#x}")]
    CellReserved {
        /// The field found.
        got: u32,
    },
    /// A cell of this kind must have another payload length.
    #[error("cell of kind {kind} takes {need} payload bytes, got {got}")]
    CellPayload {
        /// The kind.
        kind: u8,
        /// Payload bytes it takes, at least.
        need: usize,
        /// Payload bytes found.
        got: usize,
    },
    /// A push-push message whose entries or data do not end where the message does.
    #[error("message {function} cannot have a body of {got} bytes")]
    PushLength {
        /// The function code.
        function: u16,
        /// Bytes behind the header.
        got: usize,
    },
    /// A push-push message with a field that must be zero and is not.
    #[error("reserved field of message {function} is {got:#x}")]
    PushReserved {
        /// The function code.
        function: u16,
        /// The field found.
        got: u32,
    },
    /// An iSCSI header of another kind was given.
    #[error("iSCSI opcode {got:#04x}, expected {expected:#04x}")]
    IscsiOpcode {
        /// The opcode wanted.
        expected: u8,
        /// The opcode found.
        got: u8,
    },
    /// An iSCSI opcode that is not defined, or that the other side sends.
    #[error("iSCSI opcode {got:#04x} is not valid in this direction")]
    IscsiSide {
        /// The opcode found.
        got: u8,
    },
    /// Flags of an iSCSI header that may not be set together.
    #[error("iSCSI PDU {opcode:#04x} with flags {flags:#04x}")]
    IscsiFlags {
        /// The opcode.
        opcode: u8,
        /// Byte 1 of the header.
        flags: u8,
    },
    /// Additional header segments where only commands may have them.
    #[error("iSCSI PDU {opcode:#04x} cannot have additional headers, got {got} bytes")]
    IscsiAhs {
        /// The opcode.
        opcode: u8,
        /// Bytes announced.
        got: u16,
    },
    /// A data segment where there cannot be one.
    #[error("iSCSI PDU {opcode:#04x} cannot have data, got {got} bytes")]
    IscsiData {
        /// The opcode.
        opcode: u8,
        /// Bytes announced.
        got: u32,
    },
    /// An R2T that asks for nothing.
    #[error("R2T of task {itt:#x} asks for 0 bytes at offset {offset}")]
    IscsiR2tEmpty {
        /// The task tag.
        itt: u32,
        /// The buffer offset.
        offset: u32,
    },
    /// Text that is no list of keys and values.
    #[error("{what} at byte {at} of the text")]
    Text {
        /// What is wrong.
        what: &'static str,
        /// Offset of the pair, or of the digit.
        at: usize,
    },
    /// The opcode of an iSER header is not the one wanted, or not defined.
    #[error("iSER opcode {got} is not the one expected here")]
    IserOpcode {
        /// The opcode found.
        got: u8,
    },
    /// Sense data of a form that is not known.
    #[error("sense data of form {got:#04x}, expected 0x70 to 0x73")]
    SenseFormat {
        /// The response code found.
        got: u8,
    },
    /// Another page of vital product data than was asked for.
    #[error("page {got:#04x} of vital product data, expected {expected:#04x}")]
    ScsiPage {
        /// The page wanted.
        expected: u8,
        /// The page found.
        got: u8,
    },
    /// Blocks of a length that no disk has.
    #[error("blocks of {got} bytes")]
    BlockLength {
        /// The length found.
        got: u32,
    },
    /// A list of logical units that does not hold whole numbers.
    #[error("list of logical units of {got} bytes, expected a multiple of 8")]
    LunList {
        /// The length found.
        got: u32,
    },
}

fn class(tagged: bool) -> &'static str {
    if tagged { "a tagged" } else { "an untagged" }
}
