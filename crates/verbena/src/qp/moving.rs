//! A queue pair whose connection moves to another function while it is used (V1, docs/migration.md).
//! It promises that a move which is refused leaves everything as it was, connection included.
//! It refuses to move half a queue pair: who was split stays where it is.

use core::fmt;
use std::sync::Arc;

use verbena_engine::{Departed, Destination};

use super::{Held, Pair, Qp};
use crate::cq::BareCq;
use crate::error::Error;
use crate::pd::Pd;
use crate::srq::Srq;

/// A queue pair that did not move, and why; its connection flows as before.
///
/// ```
/// # use verbena::{Device, Qp, QpOptions};
/// # let device = Device::open()?;
/// # let (pd, cq) = (device.pd()?, device.cq(64)?);
/// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
/// let unmoved = qp.migrate(&pd, &cq, &cq, None).unwrap_err();
/// println!("{unmoved}"); // queue pair 2 does not move: it is in Reset, without a connection that flows
/// let qp = unmoved.qp;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Unmoved {
    /// The queue pair.
    pub qp: Qp,
    /// Why.
    pub why: Error,
}

impl fmt::Debug for Unmoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unmoved")
            .field("qp", &self.qp)
            .field("why", &self.why)
            .finish()
    }
}

impl fmt::Display for Unmoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl core::error::Error for Unmoved {}

impl Qp {
    /// Moves the connection into the function of this domain and these queues: another one of the adapter, or the same.
    ///
    /// Whatever was posted and is not done goes along, and so do completions that nobody has taken; both end in the new
    /// queues, under the new queue pair's [`number`](Qp::number). The peer sees nothing but a short pause. Memory does not move:
    /// the connection still reaches that of the domain it came from, by the same STags, and that domain stays until the
    /// connection has ended.
    ///
    /// ```
    /// # use verbena::{Access, Device, FunctionOptions, Qp, QpOptions, Status};
    /// # use verbena::low::{BLANK, Data, Flags, SendOp, SendWr};
    /// let adapter = Device::open()?;
    /// let (pd, cq) = (adapter.pd()?, adapter.cq(64)?);
    /// let listener = adapter.listen("127.0.0.1:0")?;
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// let joining = qp.connect(listener.local()?, b"")?;
    /// let peer = listener.accept().wait()?;
    /// joining.wait()?;
    ///
    /// let tenant = adapter.function(&FunctionOptions::default())?;
    /// let (home, done) = (tenant.pd()?, tenant.cq(64)?);
    /// let qp = qp.migrate(&home, &done, &done, None)?;
    ///
    /// let receiving = peer.recv(adapter.buffer(16)?);
    /// let op = SendOp::Send { invalidate: None, immediate: None };
    /// let wr = SendWr { id: 1, op, flags: Flags::SIGNALED, data: Data::Inline(b"from elsewhere") };
    /// qp.post_send(&[wr]).map_err(|(_, error)| error)?;
    /// assert_eq!(&receiving.wait().1[..], b"from elsewhere");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn migrate(
        self,
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        srq: Option<&Srq>,
    ) -> Result<Qp, Unmoved> {
        let (mut held, to) = match Held::place(pd, send, recv, srq) {
            Ok(place) => place,
            Err(why) => return Err(Unmoved { qp: self, why }),
        };
        let Pair { qp, held: before } = self.alone()?;
        match qp.migrate(to) {
            Ok(qp) => {
                held.come_from(before);
                Ok(held.hold(qp))
            }
            Err(unmoved) => Err(Unmoved {
                qp: before.hold(unmoved.qp),
                why: unmoved.why.into(),
            }),
        }
    }

    /// Takes the connection out, for another process.
    pub(crate) fn depart(self) -> Result<(Departed, Held), Unmoved> {
        let Pair { qp, held } = self.alone()?;
        match qp.depart() {
            Ok(departed) => Ok((departed, held)),
            Err(unmoved) => Err(Unmoved {
                qp: held.hold(unmoved.qp),
                why: unmoved.why.into(),
            }),
        }
    }

    /// The only handle of it. A listener that is about to connect it has another one, for a moment.
    fn alone(self) -> Result<Pair, Unmoved> {
        Arc::try_unwrap(self.0).map_err(|held| Unmoved {
            qp: Qp(held),
            why: Error::Held,
        })
    }
}

impl Held {
    /// What a connection that comes to this domain and these queues needs.
    pub(crate) fn place<'a>(
        pd: &'a Pd,
        send: &'a BareCq,
        recv: &'a BareCq,
        srq: Option<&'a Srq>,
    ) -> Result<(Held, Destination<'a>), Error> {
        let device = &pd.0.device;
        let stock = srq.map(|srq| &srq.0);
        let shared = stock.is_none_or(|stock| Arc::ptr_eq(&stock.domain.device, device));
        let own = Arc::ptr_eq(&send.device, device) && Arc::ptr_eq(&recv.device, device);
        if !own || !shared {
            return Err(Error::Foreign);
        }
        let to = Destination {
            engine: &device.engine,
            pd: pd.0.pd,
            send: &send.queue,
            recv: &recv.queue,
            srq: stock.map(|stock| stock.queue.number()),
        };
        Ok((Held::new(&pd.0, stock, None), to))
    }

    /// The connection was there before, and still reaches the memory of that domain.
    fn come_from(&mut self, before: Held) {
        self.past = before.past;
        if !self
            .past
            .iter()
            .any(|known| Arc::ptr_eq(known, &before.domain))
        {
            self.past.push(before.domain);
        }
    }
}
