//! Marker PDU Aligned framing for TCP (RFC 5044) with the enhanced set-up of RFC 6581: the
//! start-up frames, the FPDU around every segment and the markers inside the stream. Each file
//! parses and emits one of these formats; the order of frames and the negotiation of their flags
//! are in the `stream` crate.

pub mod enhanced;
pub mod fpdu;
pub mod marker;
pub mod startup;

pub use enhanced::{Depth, Enhanced, RtrKinds};
pub use fpdu::{Layout, Phase, emit_fpdu, mulpdu, pad_len};
pub use marker::Marker;
pub use startup::{Flags, Frame, Kind, Revision, StartupError};
