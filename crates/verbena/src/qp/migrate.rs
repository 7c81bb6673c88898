//! Migration of a queue pair's connection to another function while it is in use (V1, docs/migration.md).
//! A failed migration leaves everything as it was, including the connection. Only an unsplit queue pair can migrate.

use core::fmt;
use std::sync::Arc;

use verbena_engine::{Destination, ExportedConnection};

use super::{Qp, QpInner, QpResources};
use crate::cq::BareCq;
use crate::error::Error;
use crate::pd::Pd;
use crate::srq::Srq;

/// A queue pair that could not be migrated, and the reason; its connection continues.
///
/// ```
/// # use verbena::{Device, Qp, QpOptions};
/// # let device = Device::open()?;
/// # let (pd, cq) = (device.pd()?, device.cq(64)?);
/// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
/// let unmoved = qp.migrate(&pd, &cq, &cq, None).unwrap_err();
/// println!("{unmoved}"); // queue pair 2 cannot be moved: it is in Reset, without an established connection
/// let qp = unmoved.qp;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct MigrateError {
    /// The queue pair.
    pub qp: Qp,
    /// The reason.
    pub source: Error,
}

impl fmt::Debug for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MigrateError")
            .field("qp", &self.qp)
            .field("why", &self.source)
            .finish()
    }
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl core::error::Error for MigrateError {}

impl Qp {
    /// Moves the connection to the function of this domain and these queues: another one of the adapter, or the same.
    ///
    /// Outstanding requests and completions that were not polled move along; both end in the new
    /// queues, with the new queue pair's [`number`](Qp::number). The peer notices only a short pause. Memory does not move:
    /// the connection still accesses that of its old domain, by the same STags, and that domain is kept until the
    /// connection has ended.
    ///
    /// ```
    /// # use verbena::{Access, Device, FunctionOptions, Qp, QpOptions, Status};
    /// # use verbena::low::{Wc, Data, Flags, SendOp, SendWr};
    /// let adapter = Device::open()?;
    /// let (pd, cq) = (adapter.pd()?, adapter.cq(64)?);
    /// let listener = adapter.listen("127.0.0.1:0")?;
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// let joining = qp.connect(listener.local_addr()?, b"")?;
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
    /// qp.post_send(&[wr])?;
    /// assert_eq!(&receiving.wait().1[..], b"from elsewhere");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn migrate(
        self,
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        srq: Option<&Srq>,
    ) -> Result<Qp, MigrateError> {
        let (mut held, to) = match QpResources::destination(pd, send, recv, srq) {
            Ok(place) => place,
            Err(why) => {
                return Err(MigrateError {
                    qp: self,
                    source: why,
                });
            }
        };
        let QpInner {
            qp,
            resources: before,
        } = self.into_sole_owner()?;
        match qp.migrate(to) {
            Ok(qp) => {
                held.keep_domains_of(before);
                Ok(held.attach(qp))
            }
            Err(unmoved) => Err(MigrateError {
                qp: before.attach(unmoved.qp),
                source: unmoved.source.into(),
            }),
        }
    }

    /// Takes the connection out of service, for another process.
    pub(crate) fn export(self) -> Result<(ExportedConnection, QpResources), MigrateError> {
        let QpInner {
            qp,
            resources: held,
        } = self.into_sole_owner()?;
        match qp.export() {
            Ok(departed) => Ok((departed, held)),
            Err(unmoved) => Err(MigrateError {
                qp: held.attach(unmoved.qp),
                source: unmoved.source.into(),
            }),
        }
    }

    /// Takes the only handle. Fails while a listener that is about to connect it holds another one.
    fn into_sole_owner(self) -> Result<QpInner, MigrateError> {
        Arc::try_unwrap(self.0).map_err(|held| MigrateError {
            qp: Qp(held),
            source: Error::QpInUse,
        })
    }
}

impl QpResources {
    /// The destination of a connection, and what its queue pair must hold.
    pub(crate) fn destination<'a>(
        pd: &'a Pd,
        send: &'a BareCq,
        recv: &'a BareCq,
        srq: Option<&'a Srq>,
    ) -> Result<(QpResources, Destination<'a>), Error> {
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
        Ok((QpResources::new(&pd.0, stock, None), to))
    }

    /// Keeps the domains that the connection was in before, since it still accesses their memory.
    fn keep_domains_of(&mut self, before: QpResources) {
        self.previous_domains = before.previous_domains;
        if !self
            .previous_domains
            .iter()
            .any(|known| Arc::ptr_eq(known, &before.domain))
        {
            self.previous_domains.push(before.domain);
        }
    }
}
