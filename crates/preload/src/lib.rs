//! A library for `LD_PRELOAD` under which the TCP sockets of a program are rsockets (`verbena run --rsockets`, docs/rsockets.md).
//! It promises to pass everything else on untouched: other families and types, files, pipes, and `errno`.
//! It refuses what an rsocket cannot do, loudly where a program looks: `dup`, `epoll` and `sendfile` on one fail. A socket
//! does not survive `fork`.
//!
//! Reading order: `next` (whom a call is passed on to) → `mine` (which descriptors are ours) → `plain` (calls with one
//! descriptor) → `life`, `wait`, `flags`.

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
