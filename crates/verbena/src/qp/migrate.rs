//! Migration of a queue pair's connection to another function while it is in use (V1, docs/migration.md).
//! A failed migration leaves everything as it was, including the connection. Only an unsplit queue pair can migrate.

use core::fmt;
use std::sync::Arc;

use verbena_engine::{Destination, ExportedConnection, SendQueue};

use super::{Qp, QpInner, QpResources};
use crate::cq::BareCq;
use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;
use crate::srq::{Srq, SrqInner};
use crate::ssq::Ssq;

/// A queue pair that could not be migrated, and the reason; its connection continues.
///
/// ```
/// # use verbena::Device;
/// # use verbena::low::{Qp, QpOptions};
/// # let device = Device::open()?;
/// # let (pd, cq) = (device.pd()?, device.cq(64)?);
/// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
/// let unmoved = qp.migrate(&pd, &cq, &cq, None).unwrap_err();
/// println!("{unmoved}"); // queue pair 2 cannot be moved: it is in Reset, without an established connection; …
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
    /// # use verbena::function::FunctionOptions;
    /// # use verbena::low::{Data, Flags, Qp, QpOptions, SendOp, SendWr, Wc};
    /// # use verbena::{Access, Device, Status};
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
        self.move_to(QpResources::destination(pd, send, recv, srq))
    }

    /// Like [`migrate`](Qp::migrate), to a channel of a shared send queue (V6): its requests are posted there from then on. It must have no
    /// sends that have not completed or were not polled. A channel migrates in both ways, once it is [detached](Ssq::detach) and its
    /// requests have completed.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::function::FunctionOptions;
    /// # use verbena::low::{Qp, QpOptions, SsqOptions};
    /// let adapter = Device::open()?;
    /// let (pd, cq) = (adapter.pd()?, adapter.cq(64)?);
    /// let ssq = pd.ssq(&cq, SsqOptions::default())?;
    /// let channel = Qp::with_ssq(&ssq, &cq, None, QpOptions::default())?;
    /// let listener = adapter.listen("127.0.0.1:0")?;
    /// let joining = channel.connect(listener.local_addr()?, b"")?;
    /// let peer = listener.accept().wait()?;
    /// joining.wait()?;
    ///
    /// let tenant = adapter.function(&FunctionOptions::default())?;
    /// let done = tenant.cq(64)?;
    /// let other = tenant.pd()?.ssq(&done, SsqOptions::default())?;
    /// let refused = channel.migrate_to_channel(&other, &done, None).unwrap_err();
    /// println!("{refused}"); // … detach it there, and try again when they have completed
    /// ssq.detach(refused.qp.number())?;
    /// let channel = refused.qp.migrate_to_channel(&other, &done, None)?;
    /// assert!(other.query_channel(channel.number())?.open);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn migrate_to_channel(
        self,
        ssq: &Ssq,
        recv: &BareCq,
        srq: Option<&Srq>,
    ) -> Result<Qp, MigrateError> {
        self.move_to(QpResources::channel_destination(ssq, recv, srq))
    }

    fn move_to(
        self,
        destination: Result<(QpResources, Destination<'_>), Error>,
    ) -> Result<Qp, MigrateError> {
        let (mut held, to) = match destination {
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
        let stock = srq.map(|srq| &srq.0);
        if !Arc::ptr_eq(&send.device, &pd.0.device) {
            return Err(Error::Foreign);
        }
        let to = destination(&pd.0, SendQueue::Own(&send.queue), recv, stock)?;
        Ok((QpResources::new(&pd.0, stock, None), to))
    }

    /// The same for a channel of a shared send queue (V6).
    pub(crate) fn channel_destination<'a>(
        ssq: &'a Ssq,
        recv: &'a BareCq,
        srq: Option<&'a Srq>,
    ) -> Result<(QpResources, Destination<'a>), Error> {
        let (domain, stock) = (&ssq.0.domain, srq.map(|srq| &srq.0));
        let to = destination(domain, SendQueue::Shared(&ssq.0.queue), recv, stock)?;
        let shared = Some(ssq.0.clone());
        Ok((QpResources::new(domain, stock, shared), to))
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

/// Where a connection continues; all parts must be of one device.
fn destination<'a>(
    domain: &'a Domain,
    send: SendQueue<'a>,
    recv: &'a BareCq,
    stock: Option<&Arc<SrqInner>>,
) -> Result<Destination<'a>, Error> {
    let device = &domain.device;
    let shared = stock.is_none_or(|stock| Arc::ptr_eq(&stock.domain.device, device));
    if !Arc::ptr_eq(&recv.device, device) || !shared {
        return Err(Error::Foreign);
    }
    Ok(Destination {
        engine: &device.engine,
        pd: domain.pd,
        send,
        recv: &recv.queue,
        srq: stock.map(|stock| stock.queue.number()),
    })
}
