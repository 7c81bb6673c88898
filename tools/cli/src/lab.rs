//! `verbena lab` and `verbena switch` (M17): hosts in namespaces, joined by the network of `verbena-fabric`. A lab has two processes: the
//! holder, which made the namespaces, and the supervisor, which moves frames; when one of them ends for any reason, the other ends what
//! runs in the hosts, removes the control socket and ends too.

pub mod capture;
pub mod control;
pub mod draw;
pub mod enter;
pub mod error;
pub mod fault;
pub mod holder;
mod namespaces;
pub mod network;
pub mod order;
pub mod plan;
pub mod pump;
pub mod snapshot;
pub mod socket;
pub mod supervisor;
mod sweep;
pub mod switch;
