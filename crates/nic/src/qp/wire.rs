//! What the messages of a queue pair travel on: a byte stream (iWARP), packets (RoCEv2), or nothing yet. There is one of them at most.
//! Work requests, receives, memory checks and completions are the same for all. What differs is asked here, apart from how bytes or packets
//! arrive and leave: that is in [`super::receive`] and [`super::send`], and in [`super::roce`].

use serde::{Deserialize, Serialize};

use verbena_stream::{Stream, Time};
use verbena_wire::ext::Features;

use super::receive_state::MessageProgress;
use super::roce::wire::RoceWire;
use super::wqe::PeerFeatures;

/// The wire of a queue pair.
#[expect(
    clippy::large_enum_variant,
    reason = "a stream is used for every byte, without a pointer to follow"
)]
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) enum Wire {
    /// It is not connected.
    #[default]
    None,
    /// A byte stream.
    Stream(Stream),
    /// The machines of RoCEv2. Not moved: a queue pair that has them is not migrated.
    #[serde(skip)]
    Roce(Box<RoceWire>),
}

impl Wire {
    /// The stream, if it is one.
    #[inline]
    pub(super) fn stream(&self) -> Option<&Stream> {
        match self {
            Wire::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn stream_mut(&mut self) -> Option<&mut Stream> {
        match self {
            Wire::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// The machines of RoCEv2, if it has them.
    #[inline]
    pub(super) fn roce(&self) -> Option<&RoceWire> {
        match self {
            Wire::Roce(roce) => Some(roce),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn roce_mut(&mut self) -> Option<&mut RoceWire> {
        match self {
            Wire::Roce(roce) => Some(roce),
            _ => None,
        }
    }

    /// There is a connection, or was one until the queue pair is reset.
    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        !matches!(self, Wire::None)
    }

    /// The features of the peer that affect messages.
    #[inline]
    pub(super) fn peer_features(&self) -> PeerFeatures {
        let has = |feature| match self {
            Wire::None => false,
            Wire::Stream(stream) => stream.has(feature),
            // Both are part of the protocol.
            Wire::Roce(_) => true,
        };
        PeerFeatures {
            read_v2: has(Features::READ_V2),
            send_imm: has(Features::SEND_IMM),
        }
    }

    /// When its timers are to be looked at; `flushes`: the queue pair has failed.
    #[inline]
    pub(super) fn deadline(&self, flushes: bool) -> Option<Time> {
        match self {
            Wire::None => None,
            Wire::Stream(stream) => stream.deadline(),
            Wire::Roce(roce) => roce.deadline().filter(|_| !flushes),
        }
    }

    /// How far the peer's message is that is arriving.
    pub(super) fn progress(&self) -> Option<MessageProgress> {
        match self {
            Wire::None => None,
            Wire::Stream(stream) => stream.send_progress().map(MessageProgress::Stream),
            Wire::Roce(roce) => Some(MessageProgress::Packets(roce.executed())),
        }
    }

    /// Its connection can be moved to another host.
    pub(super) fn is_movable(&self) -> bool {
        !matches!(self, Wire::Roce(_))
    }

    /// Its parts fit together.
    pub(super) fn invariants(&self) -> bool {
        self.roce().is_none_or(RoceWire::invariants)
    }
}
