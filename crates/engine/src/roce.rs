//! RoCEv2 in the engine: the connection manager of QP 1 and what connects queue pairs by it. Packets arrive and leave through the UDP port
//! of `datagram`; the state machines are those of `verbena_roce`.

pub(crate) mod cm;
