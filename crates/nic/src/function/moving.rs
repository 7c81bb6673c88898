//! Connections that move from one function to another (V1): creating the queue pair in the next function.
//! A queue pair that was moved still reaches the memory of the domain it came from, which stays until the connection ends. The
//! connection's state is moved by the queue pair's [`Image`](crate::Image).

use std::sync::Arc;

use super::{Function, NewQp, Use};
use crate::error::Error;
use crate::grounds::{Grounds, Stay};
use crate::qp::{Qp, Stays};

impl Function {
    /// A queue pair in `Reset` for the connection of a queue pair of another function, or of this one.
    pub fn create_moved(&self, new: NewQp, from: &Function, number: u32) -> Result<Arc<Qp>, Error> {
        self.attributes().check_qp(&new.limits)?;
        let (past, _latest) = from.leaving(number)?;
        let uses = self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?;
        let uses = uses.and_past(past.iter().filter_map(Stay::domain).collect());
        self.add_qp(new, uses, None, Grounds::after(&self.tpt, past))
    }

    /// The former functions of a queue pair of this function once it has left, and the use of the last of these domains.
    fn leaving(&self, number: u32) -> Result<(Vec<Stay>, Arc<Use>), Error> {
        let qp = self.qp(number)?;
        let init = qp.init();
        let domain = Arc::new(self.use_pd(init.pd)?);
        let stay = Stay::new(&self.tpt, init.pd, &domain, number);
        let why = Stays::Wandered;
        let past = init.tpt.leaving(stay);
        Ok((past.ok_or(Error::Stays { number, why })?, domain))
    }
}
