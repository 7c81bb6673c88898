//! Registered memory: shared with peers ([`Memory`]), buffers of operations ([`Buf`]), and memory that the program allocated ([`Mr`]).
//!
//! | memory | its bytes are | for |
//! | --- | --- | --- |
//! | [`Buf`] | the program's or an operation's | sends, receives, and what is written or read |
//! | [`Memory`] | shared with peers | one-sided operations of peers |
//! | [`Scope`] | borrowed for a call | slices that the program has on its stack or elsewhere |
//! | [`Mr`] | the program's own, by `unsafe` | memory that something else allocated |
//! | [`Window`], [`FastRegMr`] | parts of the above | rights that are given and taken back by work requests |
//!
//! ```
//! use verbena::{Access, Device};
//! # let device = Device::open()?;
//! # let listener = device.listen("127.0.0.1:0")?;
//! # let connecting = device.connect(listener.local_addr()?);
//! # let (_server, client) = (listener.accept().wait()?, connecting.wait()?);
//! let shared = device.memory(1 << 20, Access::ALL)?;
//! shared.write_at(512, b"record 8")?;
//! // A slice of this function's stack is the destination of the read, without a copy.
//! let mut record = [0; 8];
//! client.scope(|scope| scope.read(&mut record, &shared.remote().slice(512, 8)?).wait().0)?;
//! assert_eq!(&record, b"record 8");
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! Memory is registered as long as its handle lives. A slice is given out only of memory that nothing else can access at that time.
//! The only `unsafe` code of this crate is here.
//!
//! Why the slices of a [`Buf`] are sound: its region grants no remote access and lies in the device's own protection
//! domain, which no queue pair of the low layer can use, and the high layer owns the buffer while work on it is
//! outstanding. A slice registered by a [`Scope`] lies in the same domain and is deregistered before the call that registered it
//! returns. Everything else is copied in and out, never accessed through a Rust reference (CONTRIBUTING.md).

mod block;
mod buf;
mod bytes;
mod fast_reg_mr;
mod memory;
mod mr_guard;
mod mr_slice;
mod region_export;
mod scope;
mod temporary_mr;
mod user_mr;
mod window;

pub(crate) use block::Block;
pub use buf::Buf;
pub use fast_reg_mr::FastRegMr;
pub use memory::Memory;
pub use mr_guard::MrGuard;
pub use mr_slice::MrSlice;
pub use scope::Scope;
pub(crate) use temporary_mr::TemporaryMr;
pub use user_mr::Mr;
pub use window::Window;
#[cfg(feature = "handover")]
pub(crate) use window::WindowState;

pub use crate::registering::Registering;

// Of inner crates, deliberately: plain enumerations of the verbs, and tickets of requests.
/// What peers may access in a protection domain (M7).
pub use verbena_mem::Policy as RemoteAccess;
pub use verbena_mem::{Bind, PageSize, Refusal, Ticket, WindowType};
