//! The `verbena` command as a user runs it: transfers, watching, decoding, and programs on the drop-in libraries.
//! One program for all of these; tests that measure time or need network namespaces and targets are beside this folder.

mod decode;
mod dropin;
mod events;
mod run;
mod transfers;
