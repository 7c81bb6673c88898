//! The successor's side of a handover: the objects received are unpacked one by one and taken all at once.
//! Connections are not touched before this process owns them. If they are not taken they stay with the running process, which is told
//! the reason; a part cannot be taken.

use core::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use verbena_engine::sys::{Claims, FdChannel};
use verbena_engine::{Destination, ImportedConnection, MigrationState, QueuePair};

use super::message::{CLAIMED, Hello, OFFERED, Payload, RegionRecord, Reply, WindowRecord};
use super::{HandoverError, HandoverStep, TIMEOUT};
use crate::cq::BareCq;
use crate::device::Device;
use crate::error::Error;
use crate::listener::{BoundListener, Listener};
use crate::mr::{Memory, Window};
use crate::pd::Pd;
use crate::qp::{Qp, QpResources};
use crate::srq::Srq;
use crate::ssq::Ssq;

/// The objects that a running process hands over to this one.
///
/// ```no_run
/// use verbena::Device;
/// use verbena::handover::IncomingHandover;
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(256)?);
/// let mut inheritance = IncomingHandover::connect("/run/user/1000/kv/successor".as_ref())?;
/// let memory = inheritance.memory(1, &pd)?;
/// let qp = inheritance.qp(1, &pd, &cq, &cq, None)?;
/// let listeners = inheritance.accept(&device, |_| ())?;
/// // From here on `qp` flows, where it stopped in the other process.
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct IncomingHandover {
    channel: FdChannel,
    claims: Claims,
    user_data: Vec<u8>,
    memories: Vec<(u64, RegionRecord, OwnedFd)>,
    windows: Vec<(u64, WindowRecord)>,
    qps: Vec<(u64, MigrationState, Vec<OwnedFd>)>,
    listeners: Vec<(u64, OwnedFd)>,
    /// Unpacked memory, for the windows that are bound to it.
    unpacked: Vec<(u64, Memory)>,
    /// Unpacked connections, to be started.
    arriving: Vec<(u64, Qp, ImportedConnection)>,
    /// The first object that failed to unpack; [`accept`](Self::accept) then fails, since it would take a part.
    first_failed: Option<(&'static str, u64)>,
    /// The first error, to be sent to the running process.
    first_error: Option<String>,
    is_claimed: bool,
}

impl IncomingHandover {
    /// Connects to the [`HandoverListener`](crate::handover::HandoverListener) at this path and waits until it has sent everything. Fails if no process listens there.
    ///
    /// ```
    /// let refused = verbena::handover::IncomingHandover::connect("/nonexistent/successor".as_ref());
    /// assert!(refused.is_err());
    /// ```
    pub fn connect(path: &Path) -> Result<IncomingHandover, Error> {
        let mut fd_channel = FdChannel::connect(path).map_err(HandoverError::from)?;
        fd_channel.set_timeouts(TIMEOUT, TIMEOUT);
        fd_channel
            .send(&Hello::LOCAL.emit(), &[])
            .map_err(HandoverError::from)?;
        let (bytes, _) = fd_channel.receive().map_err(HandoverError::from)?;
        Hello::check(&bytes)?;
        let (bytes, fds) = fd_channel.receive().map_err(HandoverError::from)?;
        let nonsense = HandoverError::InvalidMessage;
        let goods: Payload =
            postcard::from_bytes(&bytes).map_err(|_| nonsense("the payload cannot be decoded"))?;
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(nonsense("fewer descriptors than objects"));
        let claims =
            Claims::adopt(next()?).map_err(|why| HandoverError::SharedWord(why.to_string()))?;
        let mut memories = Vec::new();
        for (tag, land) in goods.memories {
            memories.push((tag, land, next()?));
        }
        let mut qps = Vec::new();
        for (tag, state) in goods.qps {
            let lines = (0..state.descriptors()).map(|_| next());
            let lines = lines.collect::<Result<_, _>>()?;
            qps.push((tag, state, lines));
        }
        let mut listeners = Vec::new();
        for tag in goods.listeners {
            listeners.push((tag, next()?));
        }
        Ok(IncomingHandover {
            channel: fd_channel,
            claims,
            user_data: goods.user_data,
            memories,
            windows: goods.windows,
            qps,
            listeners,
            unpacked: Vec::new(),
            arriving: Vec::new(),
            first_failed: None,
            first_error: None,
            is_claimed: false,
        })
    }

    /// The bytes that the running program added with [`Handover::user_data`](crate::handover::Handover::user_data).
    ///
    /// ```
    /// # fn read(inheritance: &verbena::handover::IncomingHandover) {
    /// println!("{:?}", inheritance.user_data());
    /// # }
    /// ```
    pub fn user_data(&self) -> &[u8] {
        &self.user_data
    }

    /// The tags of connections that were received and are not unpacked yet.
    ///
    /// ```
    /// # fn list(inheritance: &verbena::handover::IncomingHandover) {
    /// for tag in inheritance.qps() {
    ///     println!("a connection {tag}");
    /// }
    /// # }
    /// ```
    pub fn qps(&self) -> Vec<u64> {
        self.qps.iter().map(|(tag, ..)| *tag).collect()
    }

    /// The tags of windows that were received and are not unpacked yet.
    ///
    /// ```
    /// # fn list(inheritance: &verbena::handover::IncomingHandover) {
    /// for tag in inheritance.windows() {
    ///     println!("a window {tag}");
    /// }
    /// # }
    /// ```
    pub fn windows(&self) -> Vec<u64> {
        self.windows.iter().map(|(tag, ..)| *tag).collect()
    }

    /// Unpacks memory into a protection domain of this process: with the same STag, addresses and contents.
    ///
    /// ```
    /// # fn take(inheritance: &mut verbena::handover::IncomingHandover, pd: &verbena::low::Pd) -> Result<(), verbena::Error> {
    /// let memory = inheritance.memory(1, pd)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(&mut self, tag: u64, pd: &Pd) -> Result<Memory, Error> {
        let what = "memory";
        let at = self.memories.iter().position(|(t, ..)| *t == tag);
        let at = at.ok_or(HandoverError::NotFound { what, tag })?;
        let (_, land, fd) = self.memories.remove(at);
        let adopted = land
            .to_region_export()
            .map_err(Error::from)
            .and_then(|export| Memory::adopt(&pd.0, fd, export));
        match &adopted {
            Ok(memory) => self.unpacked.push((tag, memory.clone())),
            Err(_) => {
                self.first_failed.get_or_insert((what, tag));
            }
        }
        self.record_failure(adopted)
    }

    /// Unpacks a window into a protection domain of this process: with the same STag, and bound to the same bytes with the same rights, if
    /// it was bound. Its memory and the queue pair that it belongs to are unpacked first, the memory into the same domain.
    ///
    /// ```
    /// # fn take(inheritance: &mut verbena::handover::IncomingHandover, pd: &verbena::low::Pd, cq: &verbena::low::Cq) -> Result<(), verbena::Error> {
    /// let memory = inheritance.memory(1, pd)?;
    /// let qp = inheritance.qp(1, pd, cq, cq, None)?;
    /// let window = inheritance.window(1, pd)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn window(&mut self, tag: u64, pd: &Pd) -> Result<Window, Error> {
        let what = "window";
        let at = self.windows.iter().position(|(t, _)| *t == tag);
        let at = at.ok_or(HandoverError::NotFound { what, tag })?;
        let record = self.windows[at].1;
        // Fails before the window is removed, so that the caller can unpack what it is bound to.
        let (memory, qp) = self.bound_objects(tag, &record, pd)?;
        self.windows.remove(at);
        let region = memory.as_ref().map(Memory::stag);
        let unpacked = record
            .to_window_state(region, qp)
            .map_err(Error::from)
            .and_then(|state| Window::import(pd, &state, memory));
        if unpacked.is_err() {
            self.first_failed.get_or_insert((what, tag));
        }
        self.record_failure(unpacked)
    }

    /// The memory that a window is bound to, and the number of the queue pair that it belongs to.
    fn bound_objects(
        &self,
        tag: u64,
        record: &WindowRecord,
        pd: &Pd,
    ) -> Result<(Option<Memory>, Option<u32>), Error> {
        let Some(binding) = record.binding() else {
            return Ok((None, None));
        };
        let missing = |needs, needed| HandoverError::UnpackFirst { tag, needs, needed };
        let memory = self.unpacked.iter().find(|(tag, _)| *tag == binding.memory);
        let (_, memory) = memory.ok_or(missing("memory", binding.memory))?;
        if !memory.is_in(&pd.0) {
            return Err(Error::Foreign);
        }
        let Some(owner) = binding.qp else {
            return Ok((Some(memory.clone()), None));
        };
        let qp = self.arriving.iter().find(|(tag, ..)| *tag == owner);
        let (_, qp, _) = qp.ok_or(missing("connection", owner))?;
        if !Arc::ptr_eq(qp.0.device(), &pd.0.device) {
            return Err(Error::Foreign);
        }
        Ok((Some(memory.clone()), Some(qp.number())))
    }

    /// Unpacks a connection as a queue pair of this process. Requests can be posted to it after [`accept`](Self::accept).
    ///
    /// ```
    /// # fn take(inheritance: &mut verbena::handover::IncomingHandover, pd: &verbena::low::Pd, cq: &verbena::low::Cq) -> Result<(), verbena::Error> {
    /// let qp = inheritance.qp(1, pd, cq, cq, None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn qp(
        &mut self,
        tag: u64,
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        srq: Option<&Srq>,
    ) -> Result<Qp, Error> {
        let destination = QpResources::destination(pd, send, recv, srq);
        self.unpack_qp(tag, destination)
    }

    /// Unpacks a connection as a channel of a shared send queue of this process (V6). It must have no sends that have not completed or were
    /// not polled.
    ///
    /// ```
    /// # fn take(inheritance: &mut verbena::handover::IncomingHandover, ssq: &verbena::low::Ssq, cq: &verbena::low::Cq) -> Result<(), verbena::Error> {
    /// let channel = inheritance.channel(1, ssq, cq, None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn channel(
        &mut self,
        tag: u64,
        ssq: &Ssq,
        recv: &BareCq,
        srq: Option<&Srq>,
    ) -> Result<Qp, Error> {
        let destination = QpResources::channel_destination(ssq, recv, srq);
        self.unpack_qp(tag, destination)
    }

    fn unpack_qp(
        &mut self,
        tag: u64,
        destination: Result<(QpResources, Destination<'_>), Error>,
    ) -> Result<Qp, Error> {
        let what = "connection";
        let at = self.qps.iter().position(|(t, ..)| *t == tag);
        let at = at.ok_or(HandoverError::NotFound { what, tag })?;
        // Fails before the connection is removed, so that the caller can try again with other queues.
        let (held, to) = destination?;
        let (_, state, fds) = self.qps.remove(at);
        let unpacked = unpack(held, &to, state, fds);
        if unpacked.is_err() {
            self.first_failed.get_or_insert((what, tag));
        }
        let (qp, arriving) = self.record_failure(unpacked)?;
        self.arriving.push((tag, Qp(qp.0.clone()), arriving));
        Ok(qp)
    }

    /// Takes everything: from now on this process owns it, and the running one releases it. `on` is called at each step. Returns the
    /// listeners with their tags, listening on this device.
    ///
    /// Fails, and takes nothing, if something was not unpacked or the running process has taken it back.
    ///
    /// ```
    /// # fn take(inheritance: verbena::handover::IncomingHandover, device: &verbena::Device) -> Result<(), verbena::Error> {
    /// let listeners = inheritance.accept(device, |step| println!("{step:?}"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(
        mut self,
        device: &Device,
        mut on: impl FnMut(HandoverStep),
    ) -> Result<Vec<(u64, Listener)>, Error> {
        on(HandoverStep::Received);
        let left = (self.memories.first().map(|(tag, ..)| ("memory", *tag)))
            .or(self.qps.first().map(|(tag, ..)| ("connection", *tag)))
            .or(self.windows.first().map(|(tag, _)| ("window", *tag)))
            .or(self.first_failed);
        if let Some((what, tag)) = left {
            let left: Error = HandoverError::NotUnpacked { what, tag }.into();
            return self.record_failure(Err(left));
        }
        let listening: Result<Vec<(u64, BoundListener)>, Error> =
            core::mem::take(&mut self.listeners)
                .into_iter()
                .map(|(tag, fd)| Ok((tag, BoundListener::adopt(device.clone(), fd)?)))
                .collect();
        let listening = self.record_failure(listening)?;
        let all: Vec<_> = (self.arriving.iter())
            .map(|(_, qp, arriving)| (&qp.0.qp, arriving))
            .collect();
        let fit = QueuePair::check_start(&all).map_err(Error::from);
        self.record_failure(fit)?;
        on(HandoverStep::Unpacked);
        if self.claims.take(0, OFFERED, CLAIMED).is_err() {
            return Err(HandoverError::Withdrawn.into());
        }
        self.is_claimed = true;
        on(HandoverStep::Claimed);
        let mut begun = Ok(());
        for (_, qp, arriving) in core::mem::take(&mut self.arriving) {
            // A connection that cannot start does not affect the others.
            begun = begun.and(qp.0.qp.start(arriving));
        }
        on(HandoverStep::Started);
        // If this is lost, the running process reads the same from the word.
        let _ = self.send_reply(&Reply::Accepted);
        begun?;
        let listeners = listening
            .into_iter()
            .map(|(tag, bound)| Ok((tag, bound.listen(Listener::BACKLOG)?)));
        listeners.collect()
    }

    fn send_reply(&mut self, answer: &Reply) -> Result<(), HandoverError> {
        let bytes = postcard::to_allocvec(answer)
            .map_err(|_| HandoverError::InvalidMessage("the reply cannot be encoded"))?;
        Ok(self.channel.send(&bytes, &[])?)
    }

    /// Keeps the first error for the answer to the running process.
    fn record_failure<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(why) = &result {
            self.first_error.get_or_insert_with(|| why.to_string());
        }
        result
    }
}

/// Unpacks a connection.
fn unpack(
    held: QpResources,
    to: &Destination<'_>,
    state: MigrationState,
    fds: Vec<OwnedFd>,
) -> Result<(Qp, ImportedConnection), Error> {
    let (qp, arriving) = QueuePair::import(to, state, fds)?;
    Ok((held.attach(qp), arriving))
}

impl Drop for IncomingHandover {
    fn drop(&mut self) {
        for (.., arriving) in core::mem::take(&mut self.arriving) {
            arriving.cancel_import();
        }
        if !self.is_claimed {
            let why = self.first_error.take();
            let why =
                why.unwrap_or_else(|| "the handover was dropped before it was claimed".to_owned());
            // If this is lost, the running process takes everything back when its time limit has passed.
            let _ = self.send_reply(&Reply::Refused(why));
        }
    }
}

impl fmt::Debug for IncomingHandover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingHandover")
            .field("memories", &self.memories.len())
            .field("windows", &self.windows.len())
            .field("qps", &self.qps.len())
            .field("listeners", &self.listeners.len())
            .finish_non_exhaustive()
    }
}
