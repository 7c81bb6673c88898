//! Registered memory: ours to share with peers ([`Memory`]), ours to work with ([`Buf`]), and somebody else's ([`Mr`]).
//! It promises that memory is registered exactly as long as it lives, and that a slice is given out only of memory that
//! nobody else can reach at that moment. It refuses to know queues; the only `unsafe` of this crate is here.
//!
//! Why the slices of a [`Buf`] are sound: its region grants peers nothing and lies in the device's own protection
//! domain, which no queue pair of the low layer can use, and the high layer takes the buffer away while work on it is
//! outstanding. A slice that a [`Scope`] lends lies in the same domain and is taken back by the call that lent it, before
//! it returns. Everything else is copied in and out, never behind a Rust reference (CONTRIBUTING.md).

mod block;
mod buf;
mod bytes;
mod estate;
mod foreign;
mod lent;
mod loan;
mod memory;
mod piece;
mod scope;
mod tag;
mod window;

pub(crate) use block::Block;
pub use buf::Buf;
pub use foreign::Mr;
pub(crate) use lent::Lent;
pub use loan::Loan;
pub use memory::Memory;
pub use piece::Piece;
pub use scope::Scope;
pub use tag::Tag;
pub use window::Window;
