//! The port spaces of datagrams: no connections, but questions at a UDP port and answers that say where a queue pair is.
//! It promises one event for every question and one end to each that is asked. It refuses to disconnect: there is no connection.

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

/// The status of a refusal, as InfiniBand has it for datagram services.
const REFUSED: c_int = 2;

/// What an identifier has for datagrams.
#[derive(Default)]
pub(crate) struct Side {
    /// Where it was bound to, and where it listens.
    pub(crate) desks: Vec<Desk>,
    listens: bool,
    /// Who came, until it is answered.
    pub(crate) question: Option<Question>,
    asking: Option<Asking>,
    /// Groups that it is in, or wants to be in as soon as it has a queue pair.
    pub(crate) groups: Vec<Group>,
}

/// Its port space is one of datagrams.
///
/// # Safety
/// `id` was made here.
pub(crate) unsafe fn is_for_datagrams(id: *const rdma_cm_id) -> bool {
    // SAFETY: the caller's word; a field that is written once.
    unsafe { (*id).ps != RDMA_PS_TCP }
}

/// Where a question came in, as its program knows it.
pub(crate) fn desk_of(question: &Question) -> Result<SocketAddr, Errno> {
    let at = question.local();
    let ip = if at.ip().is_unspecified() {
        // A desk at all addresses: the one that leads back to who asks.
        towards(question.peer())?
    } else {
        at.ip()
    };
    Ok(SocketAddr::new(ip, spoken_port(at.port())))
}

/// The device's address to meet a peer at, and its place in the table: the one that the program named if the device has it.
fn ours(home: &Home, named: Option<IpAddr>, peer: IpAddr) -> Result<(u8, IpAddr), Errno> {
    let all = home.device.addresses()?;
    let at = all.iter().position(|ip| Some(*ip) == named);
    // On one host, peers that know each other by another address meet at the device's all the same.
    let at = at.or_else(|| all.iter().position(|ip| ip.is_ipv4() == peer.is_ipv4()));
    let at = at.unwrap_or(0);
    let address = all.get(at).copied().ok_or(Errno::NODEV)?;
    let index = gids::index_of(all, address).unwrap_or(0);
    Ok((u8::try_from(index).unwrap_or(0), address))
}

/// The way to a peer or a group.
pub(super) fn way(home: &Home, named: Option<IpAddr>, peer: IpAddr) -> Result<ibv_ah_attr, Errno> {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = gid_of(peer);
    attr.grh.sgid_index = ours(home, named, peer)?.0;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = PORT;
    Ok(attr)
}

/// What a program said.
pub(super) struct Words {
    pub(super) private_data: Vec<u8>,
    /// A queue pair of its own.
    pub(super) number: u32,
}

impl Id {
    /// Takes a UDP port, so that it is known and nobody else's; returns the address with it.
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
            // Whoever else has the port for IPv4 keeps it.
            let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            inner.datagrams.desks.extend(device.desk(v4).ok());
        }
        Ok(SocketAddr::new(at.ip(), spoken_port(port)))
    }

    /// Everybody who asks is an event from now on.
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

    /// Asks the peer that was resolved.
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
        // SAFETY: the caller's word.
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

    /// Answers who came with where the queue pair is.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(super) unsafe fn answer(&self, id: *mut rdma_cm_id, words: &Words) -> Result<(), Errno> {
        // SAFETY: the caller's word; a queue pair that is there.
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
        // There is no event to wait for: nobody says that the answer arrived.
        // SAFETY: the caller's word.
        unsafe { self.forget_step(id) };
        Ok(())
    }
}

/// Tells of somebody who asks.
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

/// Tells how a question ended.
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

/// A question without an answer, or with one that is no.
fn unanswered(link: &Arc<Link>, error: &Error) {
    crate::log::info(|| error.to_string());
    let (status, private_data) = match (error.rejection(), error.os_error()) {
        // InfiniBand's datagram services know no other word for it.
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

/// The attributes for the next state of a queue pair that the program moves itself; the mask of those that count.
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

/// What an identifier has, if it is one for datagrams.
///
/// # Safety
/// `id` was made here.
pub(super) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Id, Errno> {
    // SAFETY: the caller's word.
    unsafe {
        let own = id::of(id)?;
        is_for_datagrams(id).then_some(own).ok_or(Errno::INVAL)
    }
}
