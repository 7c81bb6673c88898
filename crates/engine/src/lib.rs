//! The hands of the adapter: the system calls that move its bytes and the settings it follows; shards and connections stand on them.
//! It promises that nothing under a lock waits, logs, or can be cancelled half-way, and that every setting names its origin.
//! It refuses protocol decisions: those are made in the inner rings (docs/ARCHITECTURE.md), from bytes and times handed in here.
//!
//! Reading order: [`sys`] (the operating system, the only island of `unsafe`) and [`config`] (what can be set, and who set it).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod config;
#[allow(
    unsafe_code,
    reason = "system calls on raw spans, signal masks and fork handlers"
)]
pub mod sys;

pub use config::Config;
