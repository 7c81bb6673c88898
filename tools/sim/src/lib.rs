//! A deterministic simulation of Verbena: virtual clock, byte links with faults, workloads, and checkers of the outcome.
//! One seed determines a whole run, the same on every machine. There are no sockets, threads or real time; any implementation of
//! [`Actor`] can be simulated.
//!
//! Reading order: [`work`], [`image`] and [`actor`] (the contract) → [`peer`] (a small adapter that implements it) → [`plan`] and
//! [`workload`] (what programs post) → [`link`], [`clock`], [`world`] (the run) → [`checker`] (the checks) → [`run`].
//! Whole adapters are connected by a [`fabric`]; [`adapters`] has simulations of them, [`notification`] those of their events. [`split`]
//! simulates hosts and I/O units whose cells go through switches.

#![forbid(unsafe_code)]

pub mod actor;
pub mod adapters;
pub mod capture;
pub mod checker;
pub mod clock;
pub mod fabric;
pub mod image;
pub mod link;
pub mod notification;
pub mod packet_link;
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
