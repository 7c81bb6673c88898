//! Whole engines over loopback: their operations, their events and handlers, and what scripted peers say to them.
//! One program, since its tests need no process of their own; those that count descriptors or processor time are beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod captures;
mod control;
mod failing;
mod handlers;
mod last_words;
mod loopback;
mod notification;
