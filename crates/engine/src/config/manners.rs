//! What the settings mean towards one peer.
//! It promises one answer for each question that a connection asks, from the settings and the little that is known of the peer.
//! It refuses to know the connection itself.

use core::net::IpAddr;

use verbena_nic::Transfer;
use verbena_stream::{AckPolicy, Terms};

use super::settings::Settings;
use super::words::{Fpdu, Profile};
use crate::handler::MAX_HANDLERS;
use crate::sys;

impl Settings {
    /// What the peer at this address is expected to be.
    pub fn expected(&self, peer: IpAddr) -> Profile {
        self.peers.find(peer).unwrap_or(self.profile)
    }

    /// What the peer turned out to be: whoever agreed to the extensions is a Verbena, and whoever did not is none.
    pub fn met(&self, expected: Profile, extensions: bool) -> Profile {
        match (extensions, expected) {
            (true, _) => Profile::Verbena,
            (false, Profile::Verbena) => Profile::Standard,
            (false, other) => other,
        }
    }

    /// What we bring to the startup with such a peer.
    pub fn terms(&self, expected: Profile, same_host: bool) -> Terms {
        Terms {
            revision: self.mpa_revision,
            crc: self.crc.or(!same_host),
            markers: self.markers,
            ird: self.ird,
            ord: self.ord,
            rtr: self.rtr,
            // The peer-to-peer model without a message to open it would be a promise that nobody keeps (RFC 6581 §9.2).
            peer_to_peer: self.rtr.send || self.rtr.write || self.rtr.read,
            extensions: self.extensions && expected == Profile::Verbena,
            timeout: self.startup_timeout,
        }
    }

    /// Whether frames to such a peer may exceed a TCP segment.
    pub fn large_fpdus(&self, met: Profile) -> bool {
        match self.fpdu {
            Fpdu::Auto => met == Profile::Verbena,
            Fpdu::Mss => false,
            Fpdu::Large => true,
        }
    }

    /// Whether such a peer is sent the messages of RFC 7306.
    pub fn takes_rfc7306(&self, met: Profile) -> bool {
        // Nothing on the wire tells (RFC 7306 negotiates nothing), so a peer has to be known for it.
        met == Profile::Verbena || self.rfc7306.or(false)
    }

    /// How many completion handlers there can be (N2).
    pub fn handlers(&self) -> u16 {
        let usual = || usual_handlers(sys::parallelism());
        self.handlers.unwrap_or_else(usual)
    }

    /// When a peer's requests are acknowledged at the latest.
    pub fn acks(&self) -> AckPolicy {
        AckPolicy {
            requests: self.ack_requests,
            bytes: self.ack_bytes,
        }
    }

    /// How bytes are moved.
    pub fn transfer(&self) -> Transfer {
        Transfer {
            direct_min: self.direct_min,
            lookahead: self.lookahead,
            batch: self.batch,
            receive_wait: self.receive_wait,
            memory_wait: self.memory_wait,
            shared_receive_wait: self.shared_receive_wait,
            ..Transfer::default()
        }
    }
}

#[cfg(test)]
mod tests;

/// N2: one handler per processor, if nobody says how many.
pub(super) fn usual_handlers(processors: usize) -> u16 {
    u16::try_from(processors).map_or(MAX_HANDLERS, |n| n.clamp(1, MAX_HANDLERS))
}
