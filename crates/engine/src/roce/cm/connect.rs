//! The active side: a REQ with what the queue pair offers, and after the peer's REP the machines of the queue pair and an RTU.
//! `done` is called once, on the shard of the connection manager. A queue pair is attached before its RTU leaves, so that the peer's first
//! packet finds it ready.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use verbena_roce::Settings;
use verbena_roce::cm::{Accepted, CmTimers, CommunicationId};
use verbena_wire::roce::cm::{CmPath, CmaHeader, Req};
use verbena_wire::roce::{DEFAULT_PKEY, Psn, Qpn};

use super::entry::{Ends, OutgoingRequest};
use super::{RoceCm, terms};
use crate::connection::{Done, Options};
use crate::core::Core;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::sys;

/// Bytes of private data for the program in a REQ.
const MAX_PRIVATE_DATA: usize = Req::PRIVATE_LEN - CmaHeader::LEN;
/// The local identifier of every RoCE port.
const PERMISSIVE_LID: u16 = 0xffff;
/// How long a connection manager may take to answer, as an exponent: 1.07 s.
const RESPONSE_TIMEOUT: u8 = 18;
/// Repetitions of a message: the largest number that the field holds.
const CM_RETRIES: u8 = 15;
const HOP_LIMIT: u8 = 64;
/// The ports of which a connection names one as its source (RFC 6335); no socket is bound to it.
pub(super) const FIRST_DYNAMIC_PORT: u16 = 49_152;

impl RoceCm {
    /// Asks the peer for a connection of this queue pair, and waits for the answer until `limit`; `done` is called with the result unless
    /// this fails at once.
    pub(crate) fn connect(
        core: &Arc<Core>,
        to: SocketAddr,
        options: Options,
        (qpn, limit): (Qpn, Duration),
        done: Done,
    ) -> Result<(), Error> {
        let (got, most) = (options.private_data.len(), MAX_PRIVATE_DATA);
        if got > most {
            return Err(Error::PrivateData { got, limit: most });
        }
        let service = terms::service_of(options.qp.init().qp_type)?;
        core.security.check_roce(to)?;
        let local = local_address(core, options.source, to)?;
        let random = sys::random_u64()?;
        let port = FIRST_DYNAMIC_PORT | random as u16;
        let ends = Ends {
            local: SocketAddr::new(local, port),
            peer: to,
        };
        core.check_owner(ends.local, Some(to))?;
        let mtu = terms::path_mtu(local, to)?;
        core.roce_ports.at(core, local)?;
        let cm = RoceCm::of(core)?;
        let (ird, ord) = options.depths((core.config.ird, core.config.ord));
        let attr = *options.attr.lock();
        let outgoing = OutgoingRequest {
            service,
            mtu,
            receive_psn: Psn::wrapping((random >> 16) as u32),
            ird: terms::depth(ird),
            ord: terms::depth(ord),
            timeout: terms::ack_timeout(attr.peer_timeout),
            options,
            qpn,
            done,
        };
        let header = CmaHeader {
            port,
            src: local,
            dst: to.ip(),
        };
        let mut private = header.emit().to_vec();
        private.extend_from_slice(&outgoing.options.private_data);
        let (now, transaction) = (sys::now(), sys::random_u64()?);
        cm.with_table(core, |table| {
            let req = Req {
                local_id: cm.new_id(core, |id| table.contains(id))?,
                service: CmaHeader::service_id(CmaHeader::PS_TCP, to.port()),
                ca_guid: cm.ca_guid,
                qkey: 0,
                qpn,
                responder_resources: outgoing.ird,
                initiator_depth: outgoing.ord,
                remote_response_timeout: RESPONSE_TIMEOUT,
                transport: terms::transport_of(service),
                flow_control: false,
                starting_psn: outgoing.receive_psn,
                local_response_timeout: RESPONSE_TIMEOUT,
                retry_count: terms::RETRY_COUNT,
                pkey: DEFAULT_PKEY,
                mtu: mtu.code(),
                rnr_retry_count: terms::rnr_code(attr.rnr_retry),
                max_cm_retries: CM_RETRIES,
                srq: outgoing.options.qp.init().srq.is_some(),
                primary: CmPath {
                    local_lid: PERMISSIVE_LID,
                    remote_lid: PERMISSIVE_LID,
                    local_gid: gid_of(local),
                    remote_gid: gid_of(to.ip()),
                    traffic_class: attr.traffic_class.unwrap_or(0),
                    hop_limit: HOP_LIMIT,
                    ack_timeout: terms::timeout_code(outgoing.timeout),
                    ..CmPath::default()
                },
                alternate: CmPath::default(),
                private: &private,
            };
            let id = CommunicationId::connect(&req, transaction, CmTimers::default(), now);
            table.ask(id, ends, transaction, outgoing, (now, now + limit));
            Ok(())
        })
    }

    /// The peer has accepted.
    pub(super) fn attach(&self, core: &Arc<Core>, local_id: u32, rep: Accepted) {
        let begun = self.with_table(core, |table| table.begin_attach(local_id));
        let Some((ends, outgoing)) = begun else {
            return;
        };
        let settings = Settings {
            service: outgoing.service,
            mtu: outgoing.mtu,
            dest_qpn: rep.qpn,
            send_psn: rep.starting_psn,
            receive_psn: outgoing.receive_psn,
            initiator_depth: outgoing.ord.min(rep.responder_resources),
            responder_resources: outgoing.ird,
            timeout: outgoing.timeout,
            retry_count: terms::RETRY_COUNT,
            is_lossy: !core.config.roce_lossless,
            rnr_retry: rep.rnr_retry_count,
        };
        let OutgoingRequest {
            options, qpn, done, ..
        } = outgoing;
        let attached = super::attach_qp(core, &options, qpn, ends, &settings);
        let now = sys::now();
        let is_connected = self.with_table(core, |table| {
            table.finish_attach(local_id, &options.qp, attached.is_ok(), now)
        });
        let result = match attached {
            Ok(()) if is_connected => Ok(rep.private),
            // It has ended meanwhile.
            Ok(()) => Err(super::failures::gone(ends.peer)),
            Err(error) => Err(error),
        };
        catch_panic(|| done(result));
    }
}

/// The address from which a peer is reached: the one that was asked for, else the one that routing selects if it
/// is one of the device's own or a loopback address, else the first of the device's own.
pub(super) fn local_address(
    core: &Core,
    from: Option<IpAddr>,
    to: SocketAddr,
) -> Result<IpAddr, Error> {
    if let Some(from) = from.filter(|from| !from.is_unspecified()) {
        return Ok(from);
    }
    let unreachable = |cause| Error::Unreachable { peer: to, cause };
    let routed = sys::route_to(None, to).map_err(unreachable)?.local;
    let own = core.local_addresses.all()?;
    let mut same_family = own.iter().filter(|ip| ip.is_ipv4() == to.is_ipv4());
    let is_usable = own.contains(&routed) || core.local_addresses.loopback()?.contains(&routed);
    Ok(match is_usable {
        true => routed,
        false => same_family.next().copied().unwrap_or(routed),
    })
}

/// The GID of an address.
fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4).octets(),
        IpAddr::V6(v6) => Ipv6Addr::octets(&v6),
    }
}
