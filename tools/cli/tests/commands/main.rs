//! The `verbena` command as a user runs it: transfers, watching and explaining, metrics, decoding, programs on the drop-in libraries, and labs.
//! One program for all of these; tests that measure time or need targets, and those of the split driver, are beside this folder.

mod check;
mod decode;
mod dropin;
mod events;
mod faults;
mod generated;
mod lab;
mod metrics;
mod pcap;
mod plots;
mod run;
mod running;
mod top;
mod trace;
mod transfers;
mod web;
mod why;
