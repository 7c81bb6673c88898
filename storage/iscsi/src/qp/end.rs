//! The end of requests and of the queue pair: completions, flushing, removal of registrations. Everything posted completes once, no table
//! entry outlives its command, and the first cause is kept. The connection is closed by its owner, which checks the state.

use parking_lot::Mutex;
use verbena_nic::{Event, Flags, Outbox, QpState, Status, Wc, WcOp};

use super::Init;
use super::command::Command;
use super::inner::Inner;
use super::intake::state::Intake;
use super::queues::{Queues, Request};

impl Inner {
    /// Completes a request of the send queue, which the queues have accounted for already. `told`: whether to raise a completion.
    pub(super) fn complete_send(
        &self,
        init: &Init,
        id: u64,
        status: Status,
        raise: bool,
        out: &mut Outbox,
    ) {
        if raise {
            let wc = Wc {
                id,
                qpn: init.ulp.number,
                status,
                op: WcOp::Send,
                ..Wc::default()
            };
            // On overflow the completion queue puts an event into `out`; the caller then fails the queue pairs that use it.
            init.ulp.send_cq.push(wc, out);
        }
    }

    /// An executed command ends successfully.
    pub(super) fn finish_command(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        command: &Command,
        out: &mut Outbox,
    ) {
        let signaled = command.flags.contains(Flags::SIGNALED);
        self.release(init, command);
        let ended = queues.lock().end_command();
        self.complete_send(init, command.id, Status::Success, ended && signaled, out);
    }

    /// An executed command ends without a response.
    pub(super) fn fail_command(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        command: &Command,
        status: Status,
        out: &mut Outbox,
    ) {
        self.release(init, command);
        let ended = queues.lock().end_command();
        self.complete_send(init, command.id, status, ended, out);
    }

    /// Flushes a request that was not started.
    pub(super) fn flush(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        request: &Request,
        out: &mut Outbox,
    ) {
        let ended = match request {
            Request::Command(_) => queues.lock().end_command(),
            Request::Pdu(_) => queues.lock().end_send(),
        };
        self.complete_send(init, request.id(), Status::WrFlushErr, ended, out);
    }

    /// M12: removes the table entry.
    fn release(&mut self, init: &Init, command: &Command) {
        if let Some(stag) = command.stag {
            // Fails only if the consumer, which sees the tag in every header, has removed the entry itself.
            let _ = init.ulp.tpt.deregister(stag);
        }
    }

    /// The connection ended.
    pub(super) fn handle_disconnect(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        cause: &str,
        out: &mut Outbox,
    ) {
        if !self.ended {
            out.push(Event::Disconnected {
                qp: init.ulp.number,
            });
        }
        self.end(init, queues, cause, out);
    }

    /// Moves to `Err` and flushes everything.
    pub(super) fn end(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        cause: &str,
        out: &mut Outbox,
    ) {
        if core::mem::replace(&mut self.ended, true) {
            return;
        }
        let (before, sends, urgent, mut receives, retired) = {
            let mut queues = queues.lock();
            let before = core::mem::replace(&mut queues.state, QpState::Err);
            let none = verbena_nic::ReceiveQueue::new(0, 0);
            (
                before,
                core::mem::take(&mut queues.sends),
                core::mem::take(&mut queues.immediate),
                core::mem::replace(&mut queues.receives, none),
                queues.retired,
            )
        };
        // In `Sqe` the recorded cause is what stopped the send queue; it stays.
        if before != QpState::Sqe {
            self.cause = Some(cause.to_owned());
        }
        self.frames.clear();
        self.bursts.clear();
        self.intake = Intake::new();
        let commands: Vec<Command> = self.commands.drain().collect();
        for command in &commands {
            self.fail_command(init, queues, command, Status::WrFlushErr, out);
        }
        for request in sends {
            self.flush(init, queues, &request, out);
        }
        for pdu in urgent {
            let ended = queues.lock().end_send();
            self.complete_send(init, pdu.id, Status::WrFlushErr, ended, out);
        }
        let claimed = self.claimed.take();
        let rest = core::iter::from_fn(|| receives.take());
        for receive in claimed.into_iter().chain(rest) {
            if !retired {
                self.flush_receive(init, receive.id, out);
            }
        }
        if !retired {
            out.push(Event::QpFatal {
                qp: init.ulp.number,
            });
        }
    }

    fn flush_receive(&self, init: &Init, id: u64, out: &mut Outbox) {
        let wc = Wc {
            id,
            qpn: init.ulp.number,
            status: Status::WrFlushErr,
            op: WcOp::Receive,
            ..Wc::default()
        };
        init.ulp.recv_cq.push(wc, out);
    }
}
