//! Requests that were posted and not started, behind a lock that is held only to add or remove one. Requests stay in posting order, and
//! their number is limited. Nothing is validated here.

use std::collections::VecDeque;

use verbena_nic::qp::Limits;
use verbena_nic::{Flags, QpState, ReceiveQueue};
use verbena_storage_wire::iscsi::Bhs;

use super::command::Command;

/// A PDU that is not a command.
#[derive(Debug)]
pub(super) struct Pdu {
    pub(super) id: u64,
    pub(super) flags: Flags,
    pub(super) bhs: Bhs,
    pub(super) data: Box<[u8]>,
}

/// A request of the send queue.
#[derive(Debug)]
pub(super) enum Request {
    Command(Command),
    Pdu(Pdu),
}

impl Request {
    pub(super) fn id(&self) -> u64 {
        match self {
            Request::Command(command) => command.id,
            Request::Pdu(pdu) => pdu.id,
        }
    }
}

#[derive(Debug)]
pub(super) struct Queues {
    pub(super) state: QpState,
    pub(super) retired: bool,
    pub(super) sends: VecDeque<Request>,
    /// PDUs for immediate delivery: not subject to the command window (RFC 7143 §4.2.2.1).
    pub(super) immediate: VecDeque<Pdu>,
    pub(super) receives: ReceiveQueue,
    /// Send requests that have not completed.
    pub(super) sends_outstanding: usize,
    /// Commands among them.
    pub(super) commands_outstanding: usize,
    /// Id of the next command.
    pub(super) next_command: u32,
}

impl Queues {
    pub(super) fn new(limits: &Limits) -> Queues {
        Queues {
            state: QpState::Reset,
            retired: false,
            sends: VecDeque::new(),
            immediate: VecDeque::new(),
            receives: ReceiveQueue::new(limits.receives, limits.max_sge),
            sends_outstanding: 0,
            commands_outstanding: 0,
            next_command: 0,
        }
    }

    /// A send request has completed. True if a completion may be raised, that is, if the queue pair was not destroyed.
    pub(super) fn end_send(&mut self) -> bool {
        self.sends_outstanding = self.sends_outstanding.saturating_sub(1);
        !self.retired
    }

    /// A command has completed; returns as [`Queues::end_send`].
    pub(super) fn end_command(&mut self) -> bool {
        self.commands_outstanding = self.commands_outstanding.saturating_sub(1);
        self.end_send()
    }
}
