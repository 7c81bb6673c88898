//! Identifiers of the datagram port spaces: there is no connection, but a request at a UDP port and a reply with the queue pair number
//! (InfiniBand's SIDR). Each request received is one event, and each request sent ends with one event. Disconnecting is `EINVAL`.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use verbena::Error;
use verbena::datagram::{SidrRequest, UdEndpoint};
use verbena::low::Qpn;

use super::address::{program_port, wire_port};
use super::id::{self, Id};
use super::link::{IncomingRequest, Link, Param};
use super::resolve::bind_error;
use crate::abi::*;
use crate::caller::{handle, this_id};
use crate::errno::Errno;
use crate::function::{AdapterFunction, first_function};
use crate::gids;
use crate::port::{PORT, gid_of};

/// The status of a rejection: SIDR's code.
const SIDR_REJECTED: c_int = 2;

/// Whether the port space of an identifier is one of datagrams.
///
/// # Safety
/// `id` was created by this library.
pub(crate) unsafe fn is_for_datagrams(id: *const rdma_cm_id) -> bool {
    // SAFETY: the caller guarantees that `id` was created by this library; the field is written once.
    unsafe { (*id).ps != RDMA_PS_TCP }
}

/// The index and address of the device that are used with a peer: the address that the program named, if the device has it.
fn local_gid(
    function: &AdapterFunction,
    named: Option<IpAddr>,
    peer: IpAddr,
) -> Result<(u8, IpAddr), Errno> {
    let all = function.device.addresses()?;
    let at = all.iter().position(|ip| Some(*ip) == named);
    // On one host, peers may know each other by an address that is not the device's; they use the device's all the same.
    let at = at.or_else(|| all.iter().position(|ip| ip.is_ipv4() == peer.is_ipv4()));
    let at = at.unwrap_or(0);
    let address = all.get(at).copied().ok_or(Errno::NODEV)?;
    let index = gids::index_of(all, address).unwrap_or(0);
    Ok((u8::try_from(index).unwrap_or(0), address))
}

/// The address attributes for a peer or a group.
pub(super) fn ah_attr(
    function: &AdapterFunction,
    named: Option<IpAddr>,
    peer: IpAddr,
) -> Result<ibv_ah_attr, Errno> {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = gid_of(peer);
    attr.grh.sgid_index = local_gid(function, named, peer)?.0;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = PORT;
    Ok(attr)
}

/// Parameters of a request or reply.
pub(super) struct SidrParam {
    pub(super) private_data: Vec<u8>,
    /// The number of a queue pair that the program created itself.
    pub(super) qp_num: u32,
}

impl Id {
    /// Binds a UDP port, which is then known and reserved; returns the address with it.
    pub(super) fn bind_sidr_port(&self, at: SocketAddr) -> Result<SocketAddr, Errno> {
        let device = first_function()?.device.clone();
        let wire = SocketAddr::new(at.ip(), wire_port(at.port())?);
        let listener = device
            .bind_sidr_listener(wire)
            .map_err(|error| bind_error("UDP", wire, error))?;
        let port = listener.local_addr().port();
        let mut inner = self.inner.lock();
        let both = at.ip() == IpAddr::from([0; 16]) && !inner.options.family_only;
        inner.datagrams.listeners.push(listener);
        if both {
            // If the port is taken for IPv4, only IPv6 is bound.
            let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            inner
                .datagrams
                .listeners
                .extend(device.bind_sidr_listener(v4).ok());
        }
        Ok(SocketAddr::new(at.ip(), program_port(port)))
    }

    /// Reports each received request as an event from now on.
    pub(super) fn listen_sidr(&self, backlog: usize) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        if inner.datagrams.is_listening {
            return Err(Errno::INVAL);
        }
        for listener in &inner.datagrams.listeners {
            let link = self.link.clone();
            listener.listen(backlog, move |inquiry| report_request(&link, inquiry))?;
        }
        inner.datagrams.is_listening = true;
        Ok(())
    }

    /// Sends a request to the peer that was resolved.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(super) unsafe fn send_sidr_request(
        &self,
        id: *mut rdma_cm_id,
        param: &SidrParam,
    ) -> Result<(), Errno> {
        let function = first_function()?;
        let asked = {
            let mut inner = self.inner.lock();
            let peer = inner.peer.ok_or(Errno::INVAL)?;
            let before = inner.datagrams.query.as_ref();
            if before.is_some_and(|sidr| !sidr.is_finished()) {
                return Err(Errno::INVAL);
            }
            let to = SocketAddr::new(peer.ip(), wire_port(peer.port())?);
            let (source, link, place) = (inner.source, self.link.clone(), function.clone());
            let done = move |answer| report_reply(&link, &place, source, answer);
            let asked = function
                .device
                .query_sidr(source, to, &param.private_data, done);
            asked.map(|sidr| {
                let local = sidr.local_addr();
                inner.datagrams.query = Some(sidr);
                local
            })
        };
        match &asked {
            Err(error) if error.os_error().is_some() => report_failure(&self.link, error),
            Err(error) => return Err(error.clone().into()),
            Ok(_) => {}
        }
        // SAFETY: `id` is this identifier, which the caller does not destroy during the call and uses on one thread if it is synchronous.
        unsafe {
            self.complete(id)?;
            if let Ok(local) = asked
                && self.sync.load(core::sync::atomic::Ordering::Acquire)
            {
                self.store_addresses(id, Some(local), None);
            }
        }
        Ok(())
    }

    /// Answers a request with the number of the queue pair.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(super) unsafe fn send_sidr_reply(
        &self,
        id: *mut rdma_cm_id,
        param: &SidrParam,
    ) -> Result<(), Errno> {
        // SAFETY: `id` is this identifier; its queue pair is null or exists.
        let number = unsafe { (*id).qp.as_ref() }.map_or(param.qp_num, |qp| qp.qp_num);
        let function = first_function()?;
        let (request, source) = {
            let mut inner = self.inner.lock();
            let request = inner.datagrams.request.take();
            (request.ok_or(Errno::INVAL)?, inner.source)
        };
        let (_, address) = local_gid(&function, source, request.peer_addr().ip())?;
        let at = UdEndpoint {
            number: Qpn::new(number).ok_or(Errno::INVAL)?,
            qkey: RDMA_UDP_QKEY,
            address,
        };
        request.accept(at, &param.private_data)?;
        // There is no event to wait for: a reply is not acknowledged.
        this_id!(self.finish_step(id));
        Ok(())
    }
}

/// Reports a received request.
fn report_request(link: &Arc<Link>, request: SidrRequest) {
    let param = Param::Datagram {
        private_data: request.private_data().to_vec(),
        address: ibv_ah_attr::zeroed(),
        number: 0,
        key: 0,
    };
    let incoming = Some(IncomingRequest::Sidr(request));
    link.queue_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, param, incoming);
}

/// Reports the result of a sent request.
fn report_reply(
    link: &Arc<Link>,
    function: &AdapterFunction,
    source: Option<IpAddr>,
    answer: Result<(UdEndpoint, Vec<u8>), Error>,
) {
    match answer {
        Ok((at, private_data)) => match ah_attr(function, source, at.address) {
            Ok(address) => {
                let param = Param::Datagram {
                    private_data,
                    address,
                    number: at.number.get(),
                    key: at.qkey,
                };
                link.report(RDMA_CM_EVENT_ESTABLISHED, 0, param);
            }
            Err(Errno(code)) => link.report(RDMA_CM_EVENT_UNREACHABLE, -code, Param::NONE),
        },
        Err(error) => report_failure(link, &error),
    }
}

/// Reports a request without a reply, or with a rejection.
fn report_failure(link: &Arc<Link>, error: &Error) {
    crate::log::info(|| error.to_string());
    let (status, private_data) = match (error.rejection(), error.os_error()) {
        // SIDR has no other status for it.
        (Some(said), _) => (SIDR_REJECTED, said.to_vec()),
        (None, Some(code)) => (-code, Vec::new()),
        (None, None) => (-libc::ETIMEDOUT, Vec::new()),
    };
    let param = Param::Datagram {
        private_data,
        address: ibv_ah_attr::zeroed(),
        number: 0,
        key: 0,
    };
    link.report(RDMA_CM_EVENT_UNREACHABLE, status, param);
}

/// The attributes for the next state of a queue pair that the program moves itself; returns their mask.
pub(super) fn init_attr(attr: &mut ibv_qp_attr) -> Result<u32, Errno> {
    match attr.qp_state {
        IBV_QPS_INIT => {
            attr.pkey_index = 0;
            attr.port_num = PORT;
            attr.qkey = RDMA_UDP_QKEY;
            Ok(IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
        }
        IBV_QPS_RTS => {
            attr.sq_psn = 0;
            Ok(IBV_QP_STATE | IBV_QP_SQ_PSN)
        }
        IBV_QPS_RTR | IBV_QPS_ERR => Ok(IBV_QP_STATE),
        _ => Err(Errno::INVAL),
    }
}

/// The library's part of an identifier, if its port space is one of datagrams.
///
/// # Safety
/// `id` was created by this library.
pub(super) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Id, Errno> {
    let own = handle!(id::of(id))?;
    this_id!(is_for_datagrams(id))
        .then_some(own)
        .ok_or(Errno::INVAL)
}
