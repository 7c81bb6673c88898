//! Control queue pairs of a function (V5): posting requests, and executing them one by one.
//! A rejected request changes nothing, and a request that fails when it is executed leaves nothing of what it was to create.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::{Access, Misuse, Pd, Reserved, Tpt, WindowType};
use verbena_wire::{Stag, To};

use super::Function;
use super::qps::NewQp;
use super::users::Use;
use crate::control::{Control, ControlError, ControlResult, Request, Task, Work};
use crate::cq::CqOptions;
use crate::error::Error;
use crate::wc::ControlOp;

/// A control queue pair and its use of its completion queue.
#[derive(Debug)]
pub(super) struct ControlRow {
    control: Arc<Control>,
    _cq: Option<Use>,
}

impl Function {
    /// A control queue pair for `depth` requests. Its requests complete in `cq`; without one, only the caller of `run_control` gets the results.
    pub fn create_control(&self, depth: usize, cq: Option<u32>) -> Result<Arc<Control>, Error> {
        let (cq, used) = match cq {
            Some(number) => {
                let (cq, used) = self.use_cq(number)?;
                (Some(cq), Some(used))
            }
            None => (None, None),
        };
        let make = |number| {
            Ok(ControlRow {
                control: Arc::new(Control::new(number, depth, cq)?),
                _cq: used,
            })
        };
        self.controls.add(make, |row| row.control.clone())
    }

    /// The control queue pair with this number.
    pub fn control(&self, number: u32) -> Result<Arc<Control>, Error> {
        self.controls.with(number, |row| row.control.clone())
    }

    /// Destroys a control queue pair, after the request that is being executed has ended. Queued requests are dropped without a
    /// completion: pending regions fail, and so does the work that waits for them, which is woken from the outbox; nothing is
    /// created or removed.
    pub fn destroy_control(&self, number: u32, out: &mut Outbox) -> Result<(), Error> {
        let control = self.control(number)?;
        self.end_control(&control, out);
        control.quiesce();
        self.controls.remove(number, |_| 0).map(drop)
    }

    /// Queues the registration of a region; its STag can be used at once, by work that then waits for it.
    ///
    /// `reserve` reserves the region in the table: memory of the caller needs `unsafe`, whose justification belongs where the
    /// memory is known. The domain is kept meanwhile.
    pub fn post_register(
        &self,
        control: u32,
        id: u64,
        pd: Pd,
        reserve: impl FnOnce(&Arc<Tpt>) -> Result<Reserved, Misuse>,
    ) -> Result<Stag, Error> {
        let _used = self.use_pd(pd)?;
        self.control(control)?.post(id, || {
            let reserved = reserve(&self.tpt)?;
            let stag = reserved.stag();
            Ok((Work::Register(reserved), stag))
        })
    }

    /// Queues another registration of a region's memory (M5); the region may be pending on the same control queue pair.
    pub fn post_register_shared(
        &self,
        control: u32,
        id: u64,
        of: Stag,
        (start, pd, access): (To, Pd, Access),
    ) -> Result<Stag, Error> {
        self.post_register(control, id, pd, |tpt| {
            tpt.reserve_shared(of, start, pd, access)
        })
    }

    /// Queues the allocation of a window (M8); a bind of it waits for it.
    pub fn post_allocate_window(
        &self,
        control: u32,
        id: u64,
        ty: WindowType,
        pd: Pd,
    ) -> Result<Stag, Error> {
        let _used = self.use_pd(pd)?;
        self.control(control)?.post(id, || {
            let reserved = self.tpt.reserve_window(ty, pd)?;
            let stag = reserved.stag();
            Ok((Work::AllocateWindow(reserved), stag))
        })
    }

    /// Queues the removal of a region or window, which may be pending itself. It can be used until the request is executed.
    pub fn post_deregister(&self, control: u32, id: u64, stag: Stag) -> Result<(), Error> {
        self.control(control)?.post(id, || {
            if self.tpt.contains(stag) {
                Ok((Work::Deregister(stag), ()))
            } else {
                Err(Misuse::Stag(stag).into())
            }
        })
    }

    /// Queues the creation of a queue pair; its parts must exist when the request is executed.
    pub fn post_create_qp(&self, control: u32, id: u64, new: NewQp) -> Result<u32, Error> {
        self.control(control)?.post(id, || {
            self.attributes.check_qp(&new.limits)?;
            let number = self.qps.reserve()?;
            Ok((Work::CreateQp(number, Box::new(new)), number))
        })
    }

    /// Queues the destruction of a queue pair, in any state.
    pub fn post_destroy_qp(&self, control: u32, id: u64, number: u32) -> Result<(), Error> {
        self.control(control)?.post(id, || {
            self.qps.check_known(number)?;
            Ok((Work::DestroyQp(number), ()))
        })
    }

    /// Queues the creation of a completion queue.
    pub fn post_create_cq(&self, control: u32, id: u64, entries: usize) -> Result<u32, Error> {
        self.control(control)?.post(id, || {
            crate::cq::check_size(entries)?;
            let number = self.cqs.reserve()?;
            Ok((Work::CreateCq(number, entries), number))
        })
    }

    /// Queues the destruction of a completion queue; it fails if it is still in use when the request is executed.
    pub fn post_destroy_cq(&self, control: u32, id: u64, number: u32) -> Result<(), Error> {
        self.control(control)?.post(id, || {
            self.cqs.check_known(number)?;
            Ok((Work::DestroyCq(number), ()))
        })
    }

    /// Queues a request that `task` executes, such as the creation of an object that the code around the function serves. The task
    /// returns whether it succeeded, for the status of the completion; it must not wait for a later request. If the control queue
    /// pair ends before, the task is dropped.
    pub fn post_task(
        &self,
        control: u32,
        id: u64,
        op: ControlOp,
        task: Box<dyn FnOnce() -> bool + Send>,
    ) -> Result<(), Error> {
        let work = Work::Task(op, Task(task));
        self.control(control)?.post(id, || Ok((work, ())))
    }

    /// Executes the oldest request of a control queue pair; `None` if there is none. The time is not bounded: a
    /// registration touches every page. The caller holds no lock and no grant, and settles the outbox afterwards:
    /// work that waits is woken from there.
    pub fn run_control(
        &self,
        control: u32,
        out: &mut Outbox,
    ) -> Result<Option<ControlResult>, Error> {
        let control = self.control(control)?;
        let Some((Request { id, work }, turn)) = control.take() else {
            return Ok(None);
        };
        let (op, subject) = (work.op(), work.subject());
        let mut last_words = Vec::new();
        let outcome = match work {
            Work::Register(reserved) | Work::AllocateWindow(reserved) => {
                let settled = reserved.complete();
                out.wake_for_memory(settled.waiters);
                settled.outcome.map_err(Error::from)
            }
            Work::Deregister(stag) => self.deregister(stag),
            Work::CreateQp(number, new) => {
                let made = self.make_qp(*new, Some(number)).map(drop);
                made.inspect_err(|_| self.qps.cancel_reservation(number))
            }
            Work::DestroyQp(number) => self.destroy_qp(number, out).map(|last| last_words = last),
            Work::CreateCq(number, entries) => {
                let made = self
                    .make_cq(entries, Some(number), CqOptions::default())
                    .map(drop);
                made.inspect_err(|_| self.cqs.cancel_reservation(number))
            }
            Work::DestroyCq(number) => self.destroy_cq(number),
            Work::Task(_, Task(task)) => match task() {
                true => Ok(()),
                false => Err(ControlError::Failed.into()),
            },
        };
        let done = ControlResult {
            id,
            op,
            subject,
            outcome,
            final_bytes: last_words,
        };
        let completed = control.complete(&done, out);
        drop(turn);
        if !completed {
            // The completion is lost, so the program cannot know the results any more.
            self.end_control(&control, out);
        }
        Ok(Some(done))
    }

    fn end_control(&self, control: &Control, out: &mut Outbox) {
        for request in control.end() {
            match request.work {
                Work::Register(reserved) | Work::AllocateWindow(reserved) => {
                    out.wake_for_memory(reserved.fail());
                }
                Work::CreateQp(number, _) => self.qps.cancel_reservation(number),
                Work::CreateCq(number, _) => self.cqs.cancel_reservation(number),
                Work::Deregister(_) | Work::DestroyQp(_) | Work::DestroyCq(_) => {}
                // Dropped with no lock held: it may own objects.
                Work::Task(..) => {}
            }
        }
    }
}
