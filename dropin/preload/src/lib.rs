//! A library for `LD_PRELOAD` under which the TCP sockets of a program are rsockets (`verbena run --rsockets`, docs/rsockets.md).
//! Everything else is passed on unchanged: other families and types, files, pipes, and `errno`. What an rsocket does not support fails
//! with an error: `dup`, `epoll_ctl` and `sendfile`. A socket does not survive `fork`.
//!
//! Reading order: `next` (the function that a call is passed on to) → `fd_table` (the descriptors that are rsockets) → `socket_calls` (calls with
//! one descriptor) → `lifecycle`, `wait`, `flags`.

#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod fd_table;
mod flags;
mod lifecycle;
mod socket_calls;
mod symbols;
mod wait;

#[cfg(test)]
mod tests;
