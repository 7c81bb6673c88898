//! Connections that move from one function to another (V1): creating the queue pair in the next function.
//! A queue pair that was moved still reaches the memory of the domain it came from, which stays until the connection ends. The
//! connection's state is moved by the queue pair's [`Image`](crate::Image).

use std::sync::Arc;

use super::users::Use;
use super::{Function, NewQp};
use crate::error::Error;
use crate::memory_scope::{FormerFunction, MemoryScope};
use crate::qp::{MigrateRefusal, Qp};

impl Function {
    /// A queue pair in `Reset` for the connection of a queue pair of another function, or of this one; a channel of the shared send
    /// queue `ssq`, if one is given (V6).
    pub fn create_moved(
        &self,
        new: NewQp,
        ssq: Option<u32>,
        from: &Function,
        number: u32,
    ) -> Result<Arc<Qp>, Error> {
        self.attributes().check_qp(&new.limits)?;
        let (past, _latest) = from.former_functions(number)?;
        let uses = match ssq {
            None => self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?,
            Some(ssq) => self.use_channel_parts(ssq, &new)?,
        };
        let uses =
            uses.with_former_domains(past.iter().filter_map(FormerFunction::domain).collect());
        let scope = MemoryScope::new(&self.tpt, new.pd, past);
        let qp = self.add_qp(new, uses, None, scope)?;
        if let Some(ssq) = ssq {
            self.ssq(ssq)?.join(&qp, new.limits.sends);
        }
        Ok(qp)
    }

    /// If the queue pair is a channel (V6): fails unless its shared send queue has no requests for it and accepts none.
    pub fn check_channel_idle(&self, number: u32) -> Result<(), Error> {
        let shared = self.qps.with(number, |pair| pair.uses.ssq.clone())?;
        let Some(ssq) = shared else {
            return Ok(());
        };
        let channel = ssq.channel(number);
        match channel.filter(|channel| channel.open || channel.waiting > 0) {
            None => Ok(()),
            Some(channel) => Err(Error::NotMigratable {
                number,
                why: MigrateRefusal::Channel {
                    ssq: ssq.number(),
                    attached: channel.open,
                    requests: channel.waiting,
                },
            }),
        }
    }

    /// The former functions of a queue pair of this function once it has left, and the use of the last of these domains.
    fn former_functions(&self, number: u32) -> Result<(Vec<FormerFunction>, Arc<Use>), Error> {
        let qp = self.qp(number)?;
        let init = qp.init();
        let domain = Arc::new(self.use_pd(init.pd)?);
        let stay = FormerFunction::new(&self.tpt, init.pd, &domain, number);
        let why = MigrateRefusal::TooManyMoves;
        let past = init.tpt.former_after_move(stay);
        Ok((past.ok_or(Error::NotMigratable { number, why })?, domain))
    }
}
