//! Verbena's own messages (docs/extensions.md), used only after both sides agreed to them in their
//! start-up frames: Read V2, and the control messages that make a stream behave like a reliable
//! InfiniBand connection; and inquiries, datagrams of their own. Each file promises one format in both
//! directions. When they are sent, and what they cause, is known to the stream and the engine only.

pub mod caps;
pub mod control;
pub mod dial;
pub mod inquiry;
pub mod read_v2;
pub mod rnr_timer;

pub use caps::{Caps, Features, Personality, QpType};
pub use control::{Control, MAX_CONTROL_PAYLOAD, PathKind};
pub use dial::{Answer, Call, Keyed, NoAnswer};
pub use inquiry::{Inquiry, MOST_SAID, Matter};
pub use read_v2::ReadV2Request;
pub use rnr_timer::RnrTimer;
