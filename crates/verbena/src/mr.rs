//! Registered memory: shared with peers ([`Memory`]), buffers of operations ([`Buf`]), and memory that the program allocated ([`Mr`]).
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
pub(crate) use window::WindowState;
