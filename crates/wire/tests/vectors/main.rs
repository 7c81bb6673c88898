//! Worked frames, byte by byte: figures of the RFCs and frames that an independent dissector
//! agreed with. Each is checked both ways, as bytes to value and as value to bytes. What the
//! headers do with odd input is tested beside each header.

mod data;
mod extensions;
mod markers;
mod roce;
mod startup;
mod support;
mod terminate;
