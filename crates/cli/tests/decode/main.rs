//! `verbena decode` from the outside: real captures, captures made here, and files that are none.
//! Each module is one promise of the command; the helpers below them build and read what the promises are about.
//! Nothing here reaches into the decoder beyond its public modules.

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
mod support;
mod transport;
mod tshark;
