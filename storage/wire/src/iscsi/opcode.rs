//! The opcodes of iSCSI (RFC 7143 §11.2.1.2): which side sends each, and its name. Opcodes that the RFC does not define,
//! including the vendor-specific ones, have no value.

use core::fmt;

use super::Bhs;
use super::layout::IMMEDIATE;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $word:literal,)*) => {
        /// The kind of a PDU.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Opcode {
            /// Every opcode that is defined.
            pub const ALL: &[Opcode] = &[$(Opcode::$variant,)*];

            /// The opcode with this code of six bits.
            pub const fn from_code(code: u8) -> Option<Opcode> {
                match code {
                    $($code => Some(Opcode::$variant),)*
                    _ => None,
                }
            }

            /// Its name.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Opcode::$variant => $word,)*
                }
            }
        }

        impl fmt::Display for Opcode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

opcodes! {
    /// NOP-Out: a ping, or the answer to one.
    NopOut = 0x00 "NOP-Out",
    /// SCSI Command.
    ScsiCommand = 0x01 "SCSI Command",
    /// Task Management Function Request.
    TaskRequest = 0x02 "Task Request",
    /// Login Request.
    LoginRequest = 0x03 "Login Request",
    /// Text Request.
    TextRequest = 0x04 "Text Request",
    /// SCSI Data-Out: data of a write.
    DataOut = 0x05 "Data-Out",
    /// Logout Request.
    LogoutRequest = 0x06 "Logout Request",
    /// SNACK: asks for PDUs again.
    Snack = 0x10 "SNACK",
    /// NOP-In: a ping, or the answer to one.
    NopIn = 0x20 "NOP-In",
    /// SCSI Response.
    ScsiResponse = 0x21 "SCSI Response",
    /// Task Management Function Response.
    TaskResponse = 0x22 "Task Response",
    /// Login Response.
    LoginResponse = 0x23 "Login Response",
    /// Text Response.
    TextResponse = 0x24 "Text Response",
    /// SCSI Data-In: data of a read.
    DataIn = 0x25 "Data-In",
    /// Logout Response.
    LogoutResponse = 0x26 "Logout Response",
    /// Ready To Transfer: asks for data of a write.
    R2t = 0x31 "R2T",
    /// Asynchronous Message.
    AsyncMessage = 0x32 "Async Message",
    /// Reject.
    Reject = 0x3f "Reject",
}

impl Opcode {
    /// The six bits of byte 0 that are the opcode.
    pub(super) const MASK: u8 = 0x3f;
    /// Set in the opcodes of targets.
    const TARGET: u8 = 0x20;

    /// The opcode of a header, if it is defined.
    pub const fn of(bhs: &Bhs) -> Option<Opcode> {
        let [first, ..] = *bhs;
        Opcode::from_code(first & Opcode::MASK)
    }

    /// Whether targets send it; initiators send the others.
    pub const fn is_from_target(self) -> bool {
        self as u8 & Opcode::TARGET != 0
    }
}

/// The I bit of a request: immediate delivery, outside the order of commands. It has no meaning in other PDUs.
pub const fn is_immediate(bhs: &Bhs) -> bool {
    let [first, ..] = *bhs;
    first & IMMEDIATE != 0
}
