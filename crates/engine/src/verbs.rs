//! The objects that a program creates on an engine: queue pairs, shared receive and send queues, XRC domains, control queues
//! and virtual functions.
//! Completion queues are in `poll`, and datagram queue pairs in `datagram`.

pub mod control;
pub(crate) mod function_handle;
pub(crate) mod queue_pair;
pub(crate) mod shared_receive_queue;
pub(crate) mod shared_send_queue;
pub(crate) mod ssq_driver;
pub(crate) mod xrc;
