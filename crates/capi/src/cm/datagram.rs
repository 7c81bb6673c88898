//! Identifiers of the datagram port spaces: there is no connection, but a request at a UDP port and a reply with the queue pair number
//! (InfiniBand's SIDR). Each request received is one event, and each request sent ends with one event. Disconnecting is `EINVAL`.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use verbena::low::Qpn;
use verbena::{Asking, Desk, Error, Question, Whereabouts};

use super::address::towards;
use super::id::{self, Id};
use super::link::{Comer, Link, Param};
use super::multicast::Group;
use super::resolve::{spoken_port, taken, wire_port};
use crate::abi::*;
use crate::errno::Errno;
use crate::gids;
use crate::home::{Home, home};
use crate::port::{PORT, gid_of};

/// The status of a rejection: SIDR's code.
const REFUSED: c_int = 2;

/// The state of an identifier for datagrams.
#[derive(Default)]
pub(crate) struct Side {
    /// The UDP ports that it is bound to and listens at.
    pub(crate) desks: Vec<Desk>,
    listens: bool,
    /// A received request, until it is answered.
    pub(crate) question: Option<Question>,
    asking: Option<Asking>,
    /// Groups that it has joined, or will join when it has a queue pair.
    pub(crate) groups: Vec<Group>,
}

/// Whether the port space of an identifier is one of datagrams.
///
/// # Safety
/// `id` was created by this library.
pub(crate) unsafe fn is_for_datagrams(id: *const rdma_cm_id) -> bool {
    // SAFETY: the caller guarantees that `id` was created by this library; the field is written once.
    unsafe { (*id).ps != RDMA_PS_TCP }
}

/// The local address of a request, as its program sees it.
pub(crate) fn desk_of(question: &Question) -> Result<SocketAddr, Errno> {
    let at = question.local();
    let ip = if at.ip().is_unspecified() {
        // Received at a wildcard address: the address from which the peer is reached.
        towards(question.peer())?
    } else {
        at.ip()
    };
    Ok(SocketAddr::new(ip, spoken_port(at.port())))
}

/// The index and address of the device that are used with a peer: the address that the program named, if the device has it.
fn ours(home: &Home, named: Option<IpAddr>, peer: IpAddr) -> Result<(u8, IpAddr), Errno> {
    let all = home.device.addresses()?;
    let at = all.iter().position(|ip| Some(*ip) == named);
    // On one host, peers may know each other by an address that is not the device's; they use the device's all the same.
    let at = at.or_else(|| all.iter().position(|ip| ip.is_ipv4() == peer.is_ipv4()));
    let at = at.unwrap_or(0);
    let address = all.get(at).copied().ok_or(Errno::NODEV)?;
    let index = gids::index_of(all, address).unwrap_or(0);
    Ok((u8::try_from(index).unwrap_or(0), address))
}

/// The address attributes for a peer or a group.
pub(super) fn way(home: &Home, named: Option<IpAddr>, peer: IpAddr) -> Result<ibv_ah_attr, Errno> {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = gid_of(peer);
    attr.grh.sgid_index = ours(home, named, peer)?.0;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = PORT;
    Ok(attr)
}

/// Parameters of a request or reply.
pub(super) struct Words {
    pub(super) private_data: Vec<u8>,
    /// The number of a queue pair that the program created itself.
    pub(super) number: u32,
}

impl Id {
    /// Binds a UDP port, which is then known and reserved; returns the address with it.
    pub(super) fn take_desk(&self, at: SocketAddr) -> Result<SocketAddr, Errno> {
        let device = home()?.device.clone();
        let wire = SocketAddr::new(at.ip(), wire_port(at.port())?);
        let desk = device
            .desk(wire)
            .map_err(|error| taken("UDP", wire, error))?;
        let port = desk.local().port();
        let mut inner = self.inner.lock();
        let both = at.ip() == IpAddr::from([0; 16]) && !inner.options.family_only;
        inner.datagrams.desks.push(desk);
        if both {
            // If the port is taken for IPv4, only IPv6 is bound.
            let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            inner.datagrams.desks.extend(device.desk(v4).ok());
        }
        Ok(SocketAddr::new(at.ip(), spoken_port(port)))
    }

    /// Reports each received request as an event from now on.
    pub(super) fn hear_questions(&self, backlog: usize) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        if inner.datagrams.listens {
            return Err(Errno::INVAL);
        }
        for desk in &inner.datagrams.desks {
            let link = self.link.clone();
            desk.open(backlog, move |question| came(&link, question))?;
        }
        inner.datagrams.listens = true;
        Ok(())
    }

    /// Sends a request to the peer that was resolved.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(super) unsafe fn ask(&self, id: *mut rdma_cm_id, words: &Words) -> Result<(), Errno> {
        let home = home()?;
        let asked = {
            let mut inner = self.inner.lock();
            let peer = inner.peer.ok_or(Errno::INVAL)?;
            let before = inner.datagrams.asking.as_ref();
            if before.is_some_and(|asking| !asking.is_over()) {
                return Err(Errno::INVAL);
            }
            let to = SocketAddr::new(peer.ip(), wire_port(peer.port())?);
            let (source, link, place) = (inner.source, self.link.clone(), home.clone());
            let done = move |answer| answered(&link, &place, source, answer);
            let asked = home.device.ask(source, to, &words.private_data, done);
            asked.map(|asking| {
                let local = asking.local();
                inner.datagrams.asking = Some(asking);
                local
            })
        };
        match &asked {
            Err(error) if error.os_error().is_some() => unanswered(&self.link, error),
            Err(error) => return Err(error.clone().into()),
            Ok(_) => {}
        }
        // SAFETY: `id` is this identifier, which the caller does not destroy during the call.
        unsafe {
            self.complete(id)?;
            if let Ok(local) = asked
                && self.sync.load(core::sync::atomic::Ordering::Acquire)
            {
                self.place(id, Some(local), None);
            }
        }
        Ok(())
    }

    /// Answers a request with the number of the queue pair.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(super) unsafe fn answer(&self, id: *mut rdma_cm_id, words: &Words) -> Result<(), Errno> {
        // SAFETY: `id` is this identifier; its queue pair is null or exists.
        let number = unsafe { (*id).qp.as_ref() }.map_or(words.number, |qp| qp.qp_num);
        let home = home()?;
        let (question, source) = {
            let mut inner = self.inner.lock();
            let question = inner.datagrams.question.take();
            (question.ok_or(Errno::INVAL)?, inner.source)
        };
        let (_, address) = ours(&home, source, question.peer().ip())?;
        let at = Whereabouts {
            number: Qpn::new(number).ok_or(Errno::INVAL)?,
            qkey: RDMA_UDP_QKEY,
            address,
        };
        question.accept(at, &words.private_data)?;
        // There is no event to wait for: a reply is not acknowledged.
        // SAFETY: `id` is this identifier, which the caller does not destroy during the call.
        unsafe { self.forget_step(id) };
        Ok(())
    }
}

/// Reports a received request.
fn came(link: &Arc<Link>, question: Question) {
    let param = Param::Datagram {
        private_data: question.private_data().to_vec(),
        address: ibv_ah_attr::zeroed(),
        number: 0,
        key: 0,
    };
    let comer = Some(Comer::Question(question));
    link.put(RDMA_CM_EVENT_CONNECT_REQUEST, 0, param, comer);
}

/// Reports the result of a sent request.
fn answered(
    link: &Arc<Link>,
    home: &Home,
    source: Option<IpAddr>,
    answer: Result<(Whereabouts, Vec<u8>), Error>,
) {
    match answer {
        Ok((at, private_data)) => match way(home, source, at.address) {
            Ok(address) => {
                let param = Param::Datagram {
                    private_data,
                    address,
                    number: at.number.get(),
                    key: at.qkey,
                };
                link.tell(RDMA_CM_EVENT_ESTABLISHED, 0, param);
            }
            Err(Errno(code)) => link.tell(RDMA_CM_EVENT_UNREACHABLE, -code, Param::NONE),
        },
        Err(error) => unanswered(link, &error),
    }
}

/// Reports a request without a reply, or with a rejection.
fn unanswered(link: &Arc<Link>, error: &Error) {
    crate::log::info(|| error.to_string());
    let (status, private_data) = match (error.rejection(), error.os_error()) {
        // SIDR has no other status for it.
        (Some(said), _) => (REFUSED, said.to_vec()),
        (None, Some(code)) => (-code, Vec::new()),
        (None, None) => (-libc::ETIMEDOUT, Vec::new()),
    };
    let param = Param::Datagram {
        private_data,
        address: ibv_ah_attr::zeroed(),
        number: 0,
        key: 0,
    };
    link.tell(RDMA_CM_EVENT_UNREACHABLE, status, param);
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
    // SAFETY: the caller guarantees that `id` is null or was created by this library; it is not null where its field is read.
    unsafe {
        let own = id::of(id)?;
        is_for_datagrams(id).then_some(own).ok_or(Errno::INVAL)
    }
}
