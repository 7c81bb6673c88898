//! Remote direct memory access messages (RFC 5040) and the atomic and immediate extensions of
//! RFC 7306: the control byte that every segment carries and the headers that follow DDP's. Each
//! file parses and emits one of them.

pub mod atomic;
pub mod cause;
pub mod immediate;
pub mod opcode;
pub mod read_request;
pub mod terminate;

pub use atomic::{AtomicOp, AtomicRequest, AtomicResponse, FlushScope};
pub use cause::{Cause, DdpError, LlpError, RdmapError};
pub use immediate::Immediate;
pub use opcode::Opcode;
pub use read_request::ReadRequest;
pub use terminate::{Dialect, Echo, EchoHeader, Phase, Terminate};
