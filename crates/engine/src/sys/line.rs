//! What stands behind a `Socket` that is one end of a local pair: a TCP connection of the adapter's own port.
//! During the startup its bytes pass through the pair. Once its owner takes it over, arrived segments go to the owner, in the order in
//! which they arrive, and the pair is not used any more. No call blocks.

use core::fmt::Debug;
use core::net::SocketAddr;
use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_mem::Sources;
use verbena_nic::qp::{Segment, SegmentTaken};
use verbena_nic::{IoOutcome, Outbox};
use verbena_stream::Time;

use super::{Result, TcpNumbers};

/// Reads from the near end of a pair.
pub type ReadNear<'a> = dyn Fn(&mut [u8]) -> IoOutcome + 'a;

/// A TCP connection of a port. It is released when this is dropped, and reset if it is abortive.
pub trait Line: Debug + Send + Sync {
    /// Whether the connection is established; false while connecting, an error if it failed.
    fn is_connected(&self) -> Result<bool>;

    /// Connects again after a refusal.
    fn reconnect(&self) -> Result<()>;

    /// Our address.
    fn local_addr(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// Sends FIN behind what was written; false if the owner has not taken it over, and the pair's end is to be shut down.
    fn shutdown_write(&self) -> bool;

    /// The connection is reset when it is released.
    fn set_abortive(&self);

    /// Sets the type of service or traffic class of sent packets.
    fn set_traffic_class(&self, class: u8);

    /// Probes the peer after `idle` of silence; zero turns it off.
    fn set_keepalive(&self, idle: Duration);

    /// Payload of a segment.
    fn mss(&self) -> Option<u32>;

    /// How long the peer has been silent although it owes an acknowledgement.
    fn silence(&self) -> Option<Duration>;

    /// Bytes written and not acknowledged.
    fn unsent(&self) -> u64;

    /// What its TCP has counted.
    fn numbers(&self) -> Option<TcpNumbers>;

    /// What is told of changes from now on.
    fn set_owner(&self, owner: Weak<dyn LineOwner>);

    /// The stream of a queue pair begins: `early` are its first bytes, which were read with the startup, and `read` reads further ones from
    /// the near end of the pair. What is written from now on are FPDUs, with markers or without. False if the connection has ended.
    fn take_over(&self, early: Vec<u8>, read: &ReadNear<'_>, markers: bool) -> bool;

    /// The owner takes segments from now on; those that have arrived are given to it.
    fn start(&self, now: Time, out: &mut Outbox);

    /// The owner is polled: reads what has arrived on the port.
    fn poll(&self);

    /// Continues where the owner could not process what has arrived.
    fn resume(&self, now: Time, out: &mut Outbox);

    /// The owner takes no more segments: what arrives is discarded.
    fn discard(&self);

    /// Queues bytes of the stream.
    fn write(&self, sources: &Sources<'_>) -> IoOutcome;

    /// The owner has stopped writing although there may be room: it is told soon, and goes on.
    fn ask_for_room(&self);

    /// How the peer's stream has ended, once everything before was processed or discarded.
    fn end(&self) -> Option<IoOutcome>;
}

/// Is told what happens to a line, and takes its segments.
pub trait LineOwner: Send + Sync {
    /// It is connected, has failed, has room again, or has ended. Called without a lock.
    fn line_changed(self: Arc<Self>);

    /// A part of a segment has arrived, ahead of a gap or not.
    fn take_segment(&self, segment: &Segment<'_>, now: Time, out: &mut Outbox) -> SegmentTaken;

    /// Segments were taken: sends what follows from them. Called without a lock.
    fn segments_taken(&self, out: &mut Outbox);
}
