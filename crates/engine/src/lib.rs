//! The hands of the adapter: the system calls that move its bytes; shards and connections stand on them.
//! It promises that nothing under a lock waits, logs, or can be cancelled half-way.
//! It refuses protocol decisions: those are made in the inner rings (docs/ARCHITECTURE.md), from bytes and times handed in here.
//!
//! Reading order: [`sys`] (the operating system, the only island of `unsafe`).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[allow(
    unsafe_code,
    reason = "system calls on raw spans, signal masks and fork handlers"
)]
pub mod sys;
