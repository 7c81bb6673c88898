//! The names that most programs need. [`Error`](crate::Error) and [`Config`](crate::Config) are not among them, because programs
//! often have types of their own with these names.
//!
//! ```
//! use verbena::prelude::*;
//!
//! let device = Device::open()?;
//! let memory: Memory = device.memory(64, Access::ALL)?;
//! let words: RemoteMemory = memory.remote().slice(0, 16)?;
//! assert_eq!(words.len(), 16);
//! # Ok::<(), verbena::Error>(())
//! ```

pub use crate::{
    Access, Buf, BufResult, Connection, Depths, Device, Endpoint, Listener, Memory, Pending,
    Received, RemoteMemory, RemoteValue,
};
