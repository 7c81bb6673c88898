//! The adapter's queue pair behind a C queue pair: a connected one or one for datagrams.
//! Types that the personality does not have are refused with `EOPNOTSUPP`.

use verbena::datagram::{UdOptions, UdQp};
use verbena::low::{
    BareCq, Limits, Pd, Personality, PostError, PostRecvError, Qp, QpOptions, QpState, QpType,
    RecvWr, Srq, Xrcd,
};
use verbena::unstable::{TargetElsewhere, TargetHandle};

use crate::abi::*;
use crate::errno::Errno;

/// The adapter's side of a queue pair.
pub(super) enum Transport {
    /// Connected, reliable or unreliable.
    Connected(Qp),
    /// For datagrams.
    Datagram(UdQp),
    /// An XRC target of another process.
    Elsewhere(TargetElsewhere),
}

/// Parameters of a queue pair to create.
pub(super) struct TransportParams<'a> {
    pub(super) kind: u32,
    pub(super) personality: Personality,
    pub(super) managed: bool,
    pub(super) pd: &'a Pd,
    pub(super) send: &'a BareCq,
    pub(super) recv: &'a BareCq,
    pub(super) srq: Option<&'a Srq>,
    pub(super) limits: Limits,
}

impl Transport {
    pub(super) fn new(asked: &TransportParams<'_>) -> Result<Transport, Errno> {
        let roce = asked.personality == Personality::Roce;
        let TransportParams { pd, send, recv, .. } = asked;
        if roce && asked.kind == IBV_QPT_UD {
            let options = UdOptions::default().limits(asked.limits);
            let ud = match asked.srq {
                Some(srq) => UdQp::with_srq(pd, send, recv, srq, options),
                None => UdQp::new(pd, send, recv, options),
            };
            return Ok(Transport::Datagram(ud?));
        }
        let qp_type = match asked.kind {
            IBV_QPT_RC => QpType::Rc,
            IBV_QPT_UC if roce => QpType::Uc,
            IBV_QPT_XRC_SEND => QpType::XrcSend,
            _ => return Err(Errno::NOSUPP),
        };
        let options = QpOptions::default()
            .personality(asked.personality)
            .qp_type(qp_type)
            .limits(asked.limits)
            // RoCE queue pairs are connected by the program, out of band; iWARP's by the connection manager.
            .oob(roce && !asked.managed);
        let qp = match asked.srq {
            Some(srq) => Qp::with_srq(pd, send, recv, srq, options),
            None => Qp::new(pd, send, recv, options),
        };
        Ok(Transport::Connected(qp?))
    }

    /// An XRC target.
    pub(super) fn target(
        xrcd: &Xrcd,
        personality: Personality,
        managed: bool,
    ) -> Result<Transport, Errno> {
        let options = QpOptions::default()
            .personality(personality)
            .oob(personality == Personality::Roce && !managed);
        Ok(Transport::Connected(Qp::xrc_target(xrcd, options)?))
    }

    /// Another handle of the same queue pair, if it is an XRC target.
    pub(super) fn open_target(&self) -> Option<Transport> {
        match self {
            Transport::Connected(qp) => qp.open_target().map(Transport::Connected),
            Transport::Datagram(_) | Transport::Elsewhere(_) => None,
        }
    }

    /// A handle of a target of another process.
    pub(super) fn open_elsewhere(xrcd: &Xrcd, number: u32) -> Option<Transport> {
        let target = xrcd.engine_domain().open_target(number);
        target.map(Transport::Elsewhere)
    }

    /// The number that peers connect to.
    pub(super) fn number(&self) -> u32 {
        match self {
            Transport::Connected(qp) => qp.endpoint().map_or(qp.number(), |name| name.number),
            Transport::Datagram(ud) => ud.number(),
            Transport::Elsewhere(target) => target.number(),
        }
    }

    /// The number of the queue pair in events of the adapter.
    pub(super) fn event_number(&self) -> u32 {
        match self {
            Transport::Connected(qp) => qp.number(),
            Transport::Datagram(ud) => ud.event_number(),
            // It has no events here.
            Transport::Elsewhere(_) => 0,
        }
    }

    pub(super) fn state(&self) -> QpState {
        match self {
            Transport::Connected(qp) => qp.state(),
            Transport::Datagram(ud) => ud.view().state,
            Transport::Elsewhere(target) => target.state(),
        }
    }

    pub(super) fn modify(&self, to: QpState) -> Result<(), verbena::Error> {
        match self {
            Transport::Connected(qp) => qp.modify(to),
            Transport::Datagram(ud) => ud.modify(to),
            Transport::Elsewhere(_) => Ok(()),
        }
    }

    /// Sends that have not completed.
    pub(super) fn pending_sends(&self) -> usize {
        match self {
            Transport::Connected(qp) => qp.view().sends,
            Transport::Datagram(ud) => ud.view().sends,
            Transport::Elsewhere(_) => 0,
        }
    }

    /// Sends and receives that have not completed.
    pub(super) fn pending(&self) -> (usize, usize) {
        match self {
            Transport::Connected(qp) => {
                let view = qp.view();
                (view.sends, view.receives)
            }
            Transport::Datagram(ud) => {
                let view = ud.view();
                (view.sends, view.receives)
            }
            Transport::Elsewhere(_) => (0, 0),
        }
    }

    pub(super) fn post_recv(&self, list: &[RecvWr<'_>]) -> Result<(), PostRecvError> {
        match self {
            Transport::Connected(qp) => qp.post_recv(list),
            Transport::Datagram(ud) => ud.post_recv(list),
            Transport::Elsewhere(_) => Err(PostRecvError {
                posted: 0,
                source: PostError::State(QpState::Reset),
            }),
        }
    }
}

/// Kept for another process that has opened the target.
impl TargetHandle for Transport {
    fn state(&self) -> QpState {
        Transport::state(self)
    }
}
