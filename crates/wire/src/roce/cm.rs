//! Messages of InfiniBand's connection manager (IBTA volume 1, chapter 12), and the header that `rdma_cm` puts in front of
//! private data. Reserved bits are ignored when read and zero when written; numbers are checked for what a field can hold, not for their meaning.

mod alternate_path;
mod cma_header;
mod disconnect;
mod message;
mod mra;
mod path;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr;

pub use alternate_path::{Apr, Lap};
pub use cma_header::CmaHeader;
pub use disconnect::{Drep, Dreq};
pub use message::CmMessage;
pub use mra::Mra;
pub use path::CmPath;
pub use rej::{Rej, RejReason};
pub use rep::Rep;
pub use req::{CmTransport, Req};
pub use rtu::Rtu;
pub use sidr::{SidrRep, SidrReq};

/// Bytes of a message behind the header of its management datagram.
const BODY: usize = 232;

/// Copies `private` into a field; what does not fit is cut off, and the rest of the field is zero.
fn field<const N: usize>(private: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(private) {
        *to = *from;
    }
    field
}

/// The upper 24 bits of a word whose lower eight are another field.
const fn upper_24(word: u32) -> u32 {
    word >> 8
}

#[cfg(test)]
mod tests;
