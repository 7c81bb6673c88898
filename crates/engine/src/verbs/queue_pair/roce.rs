//! Connecting a queue pair over RoCEv2: with the numbers of the program (out of band), or those of the connection manager.
//! The program's timeout and retries are kept, but a peer that is silent is waited for at least as long as the setting `dead_after` says:
//! usual values for adapters are too short for processes.

use core::net::IpAddr;
use core::time::Duration;

use verbena_nic::{QpState, QpType};
use verbena_roce::Settings;
use verbena_stream::RnrRetry;
use verbena_wire::number::{Psn, Qpn};
use verbena_wire::roce::Service;

use super::{QpAttr, QueuePair};
use crate::config::Config;
use crate::error::Error;
use crate::roce::cm::RoceCm;
use crate::roce::connection::RoceConnection;

/// Repetitions, for programs that set none.
const RETRY_COUNT: u8 = 7;
/// The largest depth that fits the protocol's messages.
const MAX_DEPTH: u16 = 255;

impl QueuePair {
    /// Its number in packets: the one that it has for out-of-band connections, or one that is allocated at the first call.
    pub(crate) fn roce_qpn(&self) -> Result<Qpn, Error> {
        match self.oob_qpn() {
            Some(number) => Ok(number),
            None => self.roce_number.get(&self.core),
        }
    }

    /// Connects it over RoCEv2, from this local address.
    pub(crate) fn attach_roce(
        &self,
        local: IpAddr,
        peer: IpAddr,
        settings: Settings,
    ) -> Result<(), Error> {
        let qpn = self.roce_qpn()?;
        let options = self.options(&[]);
        RoceConnection::attach(&self.core, &options, (qpn, local), peer, &settings)?;
        Ok(())
    }

    /// What a connection with this peer begins with, by the attributes that the program has set so far.
    pub(crate) fn roce_settings(&self, dest_qpn: Qpn) -> Settings {
        let attr = *self.attr.lock();
        attr.roce_settings(&self.core.config, self.qp.init().qp_type, dest_qpn)
    }

    /// The queue pair is about to be moved to `Rts`: its requester begins with the attributes that were set by then.
    pub(super) fn prepare_roce_sends(&self, to: QpState) {
        if to != QpState::Rts || self.state() != QpState::Rtr {
            return;
        }
        // The connection manager has agreed on the numbers with the peer.
        if RoceCm::has_qp(&self.core, self.number()) {
            return;
        }
        if let Some(connection) = self.slot.roce()
            && let Some(begun) = connection.settings()
        {
            connection.restart_requester(&self.roce_settings(begun.dest_qpn));
        }
    }

    /// Closes the connection over RoCEv2, if it has one.
    pub(super) fn close_roce(&self) {
        if let Some(connection) = self.slot.take_roce() {
            connection.close();
        }
    }
}

impl QpAttr {
    /// What a connection of such a queue pair with this peer begins with.
    pub(crate) fn roce_settings(
        &self,
        config: &Config,
        qp_type: QpType,
        dest_qpn: Qpn,
    ) -> Settings {
        let depth = |own: Option<u16>, usual: u16| own.unwrap_or(usual).min(MAX_DEPTH) as u8;
        let zero = Psn::wrapping(0);
        let (send_psn, receive_psn) = self
            .psns
            .map_or((zero, zero), |psns| (psns.send, psns.receive));
        Settings {
            service: match qp_type {
                QpType::Uc => Service::Uc,
                _ => Service::Rc,
            },
            mtu: self.path_mtu.unwrap_or_default(),
            dest_qpn,
            send_psn,
            receive_psn,
            initiator_depth: depth(self.ord, config.ord),
            responder_resources: depth(self.ird, config.ird),
            timeout: self.ack_timeout(config.dead_after),
            retry_count: self.retry_count.unwrap_or(RETRY_COUNT),
            is_lossy: !config.roce_lossless,
            rnr_retry: match self.rnr_retry {
                RnrRetry::Never => 0,
                RnrRetry::Times(times) => times.min(Settings::RNR_FOREVER - 1),
                RnrRetry::Forever => Settings::RNR_FOREVER,
            },
        }
    }

    /// How long a request may be unanswered before it is repeated: as the program says, but all repetitions together take at least
    /// `dead_after`.
    fn ack_timeout(&self, dead_after: Duration) -> Option<Duration> {
        // Without a limit for the peer there is none for a request.
        self.peer_timeout?;
        let tries = u32::from(self.retry_count.unwrap_or(RETRY_COUNT)) + 1;
        let least = dead_after / tries;
        Some(self.ack_timeout.map_or(least, |timeout| timeout.max(least)))
    }
}
