//! RoCEv2 in the engine: connections of queue pairs over the UDP port of [`datagram`](crate::datagram), and the connection manager of QP 1
//! that connects them. The state machines are those of `verbena_roce`; packets of a queue pair are made and executed by `verbena_nic`.

pub(crate) mod cm;
pub(crate) mod connection;
pub(crate) mod loss;
