//! A queue pair as a channel of a shared send queue (V6).
//! The shared queue lives as long as its channels. All objects must be of one device, and of one protection domain.

use std::sync::Arc;

use super::{Qp, QpOptions, QpResources};
use crate::cq::BareCq;
use crate::error::Error;
use crate::srq::Srq;
use crate::ssq::Ssq;

impl Qp {
    /// Creates a channel of a shared send queue, in the same domain (V6): its requests are posted there with its
    /// [`number`](Qp::number), and at most `limits.sends` of them are outstanding. It must be reliable, and cannot be used for out-of-band
    /// connections.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions, SsqOptions};
    /// # let device = Device::open()?;
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let ssq = pd.ssq(&cq, SsqOptions::default())?;
    /// let channel = Qp::with_ssq(&ssq, &cq, None, QpOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn with_ssq(
        ssq: &Ssq,
        recv: &BareCq,
        srq: Option<&Srq>,
        options: QpOptions,
    ) -> Result<Qp, Error> {
        let domain = &ssq.0.domain;
        let device = &domain.device;
        let stock = srq.map(|srq| &srq.0);
        let shared = stock.is_none_or(|stock| Arc::ptr_eq(&stock.domain.device, device));
        if !Arc::ptr_eq(&recv.device, device) || !shared {
            return Err(Error::Foreign);
        }
        let options = options.engine_options(domain, stock);
        let queue = &ssq.0.queue;
        let qp = device.engine.create_channel(queue, &recv.queue, options)?;
        Ok(QpResources::new(domain, stock, Some(ssq.0.clone())).attach(qp))
    }
}
