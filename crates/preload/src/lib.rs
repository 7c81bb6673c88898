//! A library for `LD_PRELOAD` under which the TCP sockets of a program are rsockets (`verbena run --rsockets`, docs/rsockets.md).
//! Everything else is passed on unchanged: other families and types, files, pipes, and `errno`. What an rsocket does not support fails
//! with an error: `dup`, `epoll_ctl` and `sendfile`. A socket does not survive `fork`.
//!
//! Reading order: `next` (the function that a call is passed on to) → `mine` (the descriptors that are rsockets) → `plain` (calls with
//! one descriptor) → `life`, `wait`, `flags`.

#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod flags;
mod life;
mod mine;
mod next;
mod plain;
mod wait;

#[cfg(test)]
mod tests;
