//! Values computed from the settings for one peer: startup terms, frame length, use of RFC 7306.
//! The input is the settings and the peer's profile; the connection is not known here.

use core::net::IpAddr;

use verbena_nic::Transfer;
use verbena_stream::{AckPolicy, Terms};

use super::keywords::{Fpdu, Profile, Wire};
use super::settings::Settings;
use crate::notify::handler::MAX_HANDLERS;
use crate::sys;

impl Settings {
    /// What the peer at this address is expected to be.
    pub fn expected_profile(&self, peer: IpAddr) -> Profile {
        self.peers.find(peer).unwrap_or(self.profile)
    }

    /// The protocol for connections with the peer at this address.
    pub fn wire_to(&self, peer: IpAddr) -> Wire {
        match self.peers.find(peer) {
            Some(Profile::Roce) => Wire::Roce,
            Some(Profile::Verbena | Profile::Siw | Profile::Standard) => Wire::Tcp,
            None if self.profile == Profile::Roce => Wire::Roce,
            None => self.wire,
        }
    }

    /// The protocols at which listeners receive requests: `Auto` is both, RoCEv2 only where its port can be opened.
    pub fn wire_of_listeners(&self) -> Wire {
        match self.wire {
            _ if self.profile == Profile::Roce => Wire::Roce,
            Wire::Tcp if self.peers.have(Profile::Roce) => Wire::Auto,
            wire => wire,
        }
    }

    /// Some peers are reached over RoCEv2 only.
    pub fn uses_roce(&self) -> bool {
        self.wire == Wire::Roce || self.profile == Profile::Roce || self.peers.have(Profile::Roce)
    }

    /// All peers are reached over RoCEv2, so what RoCEv2 does not have is not available (docs/roce.md).
    pub fn uses_roce_only(&self) -> bool {
        let usual = self.wire == Wire::Roce || self.profile == Profile::Roce;
        let tcp = [Profile::Verbena, Profile::Siw, Profile::Standard];
        usual && !tcp.into_iter().any(|profile| self.peers.have(profile))
    }

    /// The profile after the startup: a peer that agreed to the extensions is a Verbena, one that did not is not.
    pub fn negotiated_profile(&self, expected: Profile, extensions: bool) -> Profile {
        match (extensions, expected) {
            (true, _) => Profile::Verbena,
            (false, Profile::Verbena) => Profile::Standard,
            (false, other) => other,
        }
    }

    /// The terms that this side offers to such a peer.
    pub fn terms(&self, expected: Profile, same_host: bool) -> Terms {
        Terms {
            revision: self.mpa_revision,
            crc: self.crc.resolve(!same_host),
            markers: self.markers,
            ird: self.ird,
            ord: self.ord,
            rtr: self.rtr,
            // The peer-to-peer model needs at least one ready-to-receive message (RFC 6581 §9.2).
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
    pub fn supports_rfc7306(&self, met: Profile) -> bool {
        // RFC 7306 has no negotiation, so support must be known from the profile.
        met == Profile::Verbena || self.rfc7306.resolve(false)
    }

    /// The maximum number of completion handlers (N2).
    pub fn handlers(&self) -> u16 {
        let usual = || default_handlers(sys::parallelism()).min(self.max_handlers());
        self.handlers.unwrap_or_else(usual)
    }

    /// When a peer's requests are acknowledged at the latest.
    pub fn ack_policy(&self) -> AckPolicy {
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

/// N2: one handler per processor, unless the setting gives a number.
pub(super) fn default_handlers(processors: usize) -> u16 {
    u16::try_from(processors).map_or(MAX_HANDLERS, |n| n.clamp(1, MAX_HANDLERS))
}
