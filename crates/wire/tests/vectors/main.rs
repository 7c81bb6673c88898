//! Worked frames, byte by byte: figures of the RFCs and frames verified with an independent
//! dissector. Each is checked as bytes to value and as value to bytes. Malformed input is tested
//! beside each header.

mod data;
mod extensions;
mod markers;
mod roce;
mod rxe;
mod startup;
mod support;
mod terminate;
