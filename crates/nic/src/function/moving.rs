//! Connections that move from one function to another (V1): a place for one in its next function.
//! They promise that a queue pair which has moved still reaches the memory of the domain it came from, which stays until the
//! connection ends. They refuse to move anything themselves; the queue pair's [`Image`](crate::Image) does.

use std::sync::Arc;

use super::{Function, NewQp};
use crate::error::Error;
use crate::grounds::{Grounds, Stay};
use crate::qp::{Qp, Stays};

impl Function {
    /// A queue pair in `Reset` for the connection of a queue pair of another function, or of this one.
    pub fn create_moved(&self, new: NewQp, from: &Function, number: u32) -> Result<Arc<Qp>, Error> {
        self.attributes().check_qp(&new.limits)?;
        let past = from.leaving(number)?;
        let uses = self.use_parts(new.pd, (new.send_cq, new.recv_cq), new.srq)?;
        self.add_qp(new, uses, None, Grounds::after(&self.tpt, past))
    }

    /// Where a queue pair of this function will have been once it has left.
    fn leaving(&self, number: u32) -> Result<Vec<Stay>, Error> {
        let qp = self.qp(number)?;
        let init = qp.init();
        let domain = self.use_pd(init.pd)?;
        let stay = Stay::new(&self.tpt, init.pd, domain, number);
        let why = Stays::Wandered;
        init.tpt.leaving(stay).ok_or(Error::Stays { number, why })
    }
}
