//! `verbena decode` from the outside: real captures, captures made here, and files that are none. Each module tests one property of the
//! command; the helpers build inputs and parse outputs. Only public modules of the decoder are used.

mod captures;
mod extensions;
mod faults;
mod inputs;
mod iscsi;
mod listing;
mod net;
mod peer;
mod readme;
mod reencode;
mod roce;
mod support;
mod transport;
mod tshark;
