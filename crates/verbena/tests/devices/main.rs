//! Both layers of the API between devices of one process: connections, memory and queues, how they end, and how they migrate.
//! The examples and the handover between processes are tested here, too, by processes that the tests start.

#[path = "../common/mod.rs"]
mod common;

mod connection;
mod control;
mod depths;
mod endpoint;
mod examples;
mod faults;
mod functions;
mod futures;
mod handlers;
mod handover;
mod link;
mod low;
mod migrate_errors;
mod migrate_objects;
mod migration;
mod one_touch;
mod oob;
mod port;
mod regions;
mod roce;
mod same_host;
mod scope;
mod srq;
mod ssq;
mod steering;
mod windows;
mod xrc;
