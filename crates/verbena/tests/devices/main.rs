//! Both layers of the API between devices of one process: connections, memory and queues, and how they end.
//! One program for all tests that need no separate process; those that do are beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod connection;
mod depths;
mod endpoint;
mod functions;
mod futures;
mod handlers;
mod low;
mod migrate_errors;
mod one_touch;
mod oob;
mod scope;
mod srq;
mod ssq;
mod windows;
