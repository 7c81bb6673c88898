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
    /// A queue pair in `Reset` for the connection of a queue pair of another function, or of this one.
    pub fn create_moved(&self, new: NewQp, from: &Function, number: u32) -> Result<Arc<Qp>, Error> {
        self.attributes().check_qp(&new.limits)?;
        let (past, _latest) = from.former_functions(number)?;
        let uses = self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?;
        let uses =
            uses.with_former_domains(past.iter().filter_map(FormerFunction::domain).collect());
        let scope = MemoryScope::new(&self.tpt, new.pd, past);
        self.add_qp(new, uses, None, scope)
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
