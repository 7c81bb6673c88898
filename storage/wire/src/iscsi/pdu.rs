//! Any PDU of either side, by one match on the opcode. Each enum has a variant for every opcode of its side; opcodes of
//! the other side are an error.

use core::fmt;

use verbena_wire::Malformed;

use super::{
    AsyncMessage, Bhs, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse,
    NopIn, NopOut, Opcode, R2t, Reject, ScsiCommand, ScsiResponse, Snack, TaskRequest,
    TaskResponse, TextRequest, TextResponse,
};

macro_rules! side {
    ($(#[$about:meta])* $name:ident { $($kind:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant is the PDU it is named after")]
        pub enum $name {
            $($kind($kind),)*
        }

        impl $name {
            /// Reads the header; an opcode that this side does not send is an error.
            pub fn parse(bhs: &Bhs) -> Result<$name, Malformed> {
                match Opcode::of(bhs) {
                    $(Some(Opcode::$kind) => $kind::parse(bhs).map($name::$kind),)*
                    _ => {
                        let [first, ..] = *bhs;
                        let got = first & Opcode::MASK;
                        Err(Malformed::IscsiSide { got })
                    }
                }
            }

            /// The header's bytes.
            pub fn emit(&self) -> Bhs {
                match self {
                    $($name::$kind(pdu) => pdu.emit(),)*
                }
            }

            /// The opcode.
            pub const fn opcode(&self) -> Opcode {
                match self {
                    $($name::$kind(_) => Opcode::$kind,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$kind(pdu) => pdu.fmt(f),)*
                }
            }
        }

        $(impl From<$kind> for $name {
            fn from(pdu: $kind) -> $name {
                $name::$kind(pdu)
            }
        })*
    };
}

side! {
    /// A PDU that an initiator sends.
    FromInitiator {
        NopOut,
        ScsiCommand,
        TaskRequest,
        LoginRequest,
        TextRequest,
        DataOut,
        LogoutRequest,
        Snack,
    }
}

side! {
    /// A PDU that a target sends.
    FromTarget {
        NopIn,
        ScsiResponse,
        TaskResponse,
        LoginResponse,
        TextResponse,
        DataIn,
        LogoutResponse,
        R2t,
        AsyncMessage,
        Reject,
    }
}
