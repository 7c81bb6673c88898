//! A queue pair whose connection moves to another function while it is used (V1, docs/migration.md).
//! It promises that a move which is refused leaves everything as it was, connection included.
//! It refuses to move half a queue pair: who was split stays where it is.

use core::fmt;
use std::sync::Arc;

use verbena_engine::Destination;

use super::{Pair, Qp};
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
        let device = &pd.0.device;
        let stock = srq.map(|srq| &srq.0);
        let shared = stock.is_none_or(|stock| Arc::ptr_eq(&stock.domain.device, device));
        let own = Arc::ptr_eq(&send.device, device) && Arc::ptr_eq(&recv.device, device);
        if !own || !shared {
            return Err(Unmoved {
                qp: self,
                why: Error::Foreign,
            });
        }
        let to = Destination {
            engine: &device.engine,
            pd: pd.0.pd,
            send: &send.queue,
            recv: &recv.queue,
            srq: stock.map(|stock| stock.queue.number()),
        };
        // Only a listener that is about to answer holds another handle of it, and then it is not connected.
        let Pair {
            qp,
            _stock,
            _shared,
            domain,
            mut _past,
        } = match Arc::try_unwrap(self.0) {
            Ok(pair) => pair,
            Err(held) => {
                return Err(Unmoved {
                    qp: Qp(held),
                    why: Error::Held,
                });
            }
        };
        let (qp, stock, domain, why) = match qp.migrate(to) {
            Ok(qp) => {
                if !_past.iter().any(|known| Arc::ptr_eq(known, &domain)) {
                    _past.push(domain);
                }
                (qp, stock.cloned(), pd.0.clone(), None)
            }
            Err(unmoved) => (unmoved.qp, _stock, domain, Some(unmoved.why)),
        };
        let qp = Qp(Arc::new(Pair {
            qp,
            _stock: stock,
            _shared,
            domain,
            _past,
        }));
        match why {
            None => Ok(qp),
            Some(why) => Err(Unmoved {
                qp,
                why: why.into(),
            }),
        }
    }
}
