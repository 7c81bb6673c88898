//! Whole engines over loopback: operations, events, handlers, and scripted peers.
//! One program, since these tests need no process of their own; those that count descriptors or processor time are separate programs.

#[path = "../common/mod.rs"]
mod common;

mod captures;
mod control;
mod failing;
mod handlers;
mod loopback;
mod notification;
mod terminate;
