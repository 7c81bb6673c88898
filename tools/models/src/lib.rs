//! Modules with loom models whose crates are expensive to build for loom, because of what else is in them: each is compiled here alone.
//! Such a module uses `verbena_sync::primitives` and nothing of its crate. Without `--cfg loom` this crate is empty.

#![forbid(unsafe_code)]

#[cfg(loom)]
#[allow(dead_code, reason = "the engine uses all of it, the models a part")]
#[path = "../../../crates/engine/src/poll/owner.rs"]
mod owner;
