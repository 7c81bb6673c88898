//! A deterministic world for Verbena: virtual clock, byte links with faults, workloads, and checkers that judge the outcome.
//! It promises that one seed decides a whole run, the same on every machine and for ever.
//! It refuses to touch sockets, threads and real time; whatever implements [`Actor`] can live in it.
//!
//! Reading order: [`work`] and [`actor`] (the contract) → [`peer`] (a small adapter that keeps it) → [`plan`] and
//! [`workload`] (what programs intend) → [`link`], [`clock`], [`world`] (the run) → [`checker`] (the verdict) → [`run`].
//! Whole adapters live in a [`fabric`]; [`adapters`] has worlds of them, [`notices`] those of what they tell. [`split`] has
//! worlds of hosts and I/O units whose cells go through switches.

#![forbid(unsafe_code)]

pub mod actor;
pub mod adapters;
pub mod capture;
pub mod checker;
pub mod clock;
pub mod fabric;
pub mod link;
pub mod notices;
pub mod peer;
pub mod plan;
pub mod rng;
pub mod run;
pub mod session;
pub mod split;
pub mod work;
pub mod workload;
pub mod world;

pub use actor::Actor;
pub use fabric::Fabric;
pub use peer::{Peer, Profile};
pub use plan::Plan;
pub use rng::{Ratio, Rng};
pub use session::Session;
pub use workload::Workload;
pub use world::{Transcript, World};
