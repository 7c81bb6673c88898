//! Both layers of the interface between devices of one process: what connections, memory and queues do, and how they end.
//! One program, since its tests need no process of their own; those that do are beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod by_hand;
mod connection;
mod depths;
mod endpoint;
mod functions;
mod handlers;
mod low;
mod scope;
mod srq;
mod ssq;
mod tasks;
mod touch;
mod unmoved;
mod windows;
