//! Verbena's own messages (docs/extensions.md): Read V2 and the control messages that add the
//! semantics of a reliable InfiniBand connection, both used only after the two sides agreed to them
//! in their start-up frames, and inquiries, which are datagrams of their own. Each file parses and
//! emits one format; `stream` and `engine` decide when a message is sent and what it causes.

pub mod caps;
pub mod control;
pub mod dial;
pub mod read_v2;
pub mod rnr_timer;
pub mod sidr;

pub use caps::{Caps, Features, Personality, QpType};
pub use control::Control;
pub use dial::{DialReject, DialReply, DialRequest, KeyProof};
pub use read_v2::ReadV2Request;
pub use rnr_timer::RnrTimer;
pub use sidr::{MAX_SIDR_PRIVATE_DATA, SidrKind, SidrMessage};

/// Longest payload of a control message.
pub const MAX_CONTROL_PAYLOAD: usize = 256;
