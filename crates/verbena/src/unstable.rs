//! For the other crates of Verbena, such as its drop-in libraries and its command. Semantic versioning does not cover it: any version
//! may change it.

pub use verbena_engine::capture;
pub use verbena_engine::config::{Log, Wire};
pub use verbena_engine::faults::MAX_SCRIPT;
pub use verbena_engine::notify::monitor;
pub use verbena_engine::security::access;
/// Directories for the sockets and files of the current user.
pub use verbena_engine::sys::runtime;
pub use verbena_engine::sys::{Channel, interface_mtu, interface_name, interface_of, is_link_up};
pub use verbena_engine::sys::{processor, spawn, timestamp};
pub use verbena_engine::trace;
pub use verbena_engine::{
    Backoff, EngineThread, Notify, TargetElsewhere, TargetHandle, WeakCompletionQueue,
    device_addresses,
};
pub use verbena_mem::catches_faults;
pub use verbena_nic::trace::TraceEvent;
pub use verbena_nic::{QpState, WcOp};
