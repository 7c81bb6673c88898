//! The running process's side of a handover: what it gives, and what it keeps if the handover fails.
//! What cannot be handed over is refused before a connection is taken out of service; connections that were not taken are in service again
//! when [`HandoverSender::send`] returns. If the successor does not answer, the word that both processes have mapped decides.

use core::fmt;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use verbena_engine::ExportedConnection;
use verbena_engine::sys::{Claims, FdChannel};

use super::message::{OFFERED, Payload, Reply, WITHDRAWN, WindowRecord};
use super::{HandoverError, HandoverStep};
use crate::device::Inner;
use crate::error::Error;
use crate::listener::Listener;
use crate::mr::{Memory, Window};
use crate::qp::{Qp, QpResources};

/// The objects to hand over, each with a tag that the program chooses.
///
/// ```
/// use verbena::handover::Handover;
/// use verbena::{Access, Device};
/// let memory = Device::open()?.shared_memory(4096, Access::ALL)?;
/// let mut handover = Handover::default();
/// handover.user_data(b"sessions: 1").memory(7, memory);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Default)]
pub struct Handover {
    user_data: Vec<u8>,
    memories: Vec<(u64, Memory)>,
    windows: Vec<(u64, Window)>,
    qps: Vec<(u64, Qp)>,
    listeners: Vec<(u64, Listener)>,
}

impl Handover {
    /// Adds bytes for the program's own use.
    ///
    /// ```
    /// verbena::handover::Handover::default().user_data(b"counted to 17");
    /// ```
    pub fn user_data(&mut self, bytes: &[u8]) -> &mut Handover {
        self.user_data = bytes.to_vec();
        self
    }

    /// Adds memory, which must be [shared](crate::Device::shared_memory). The running process may continue to read and write it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let memory = device.shared_memory(64, verbena::Access::ALL)?;
    /// verbena::handover::Handover::default().memory(1, memory);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory(&mut self, tag: u64, memory: Memory) -> &mut Handover {
        self.memories.push((tag, memory));
        self
    }

    /// Adds a window. If it is bound, its memory and, if it is of type 2, its queue pair must be handed over, too; its requests must have
    /// completed. One-touch bindings of windows of type 1 cannot be handed over.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let window = device.pd()?.window(verbena::mr::WindowType::TwoB)?;
    /// verbena::handover::Handover::default().window(1, window);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn window(&mut self, tag: u64, window: Window) -> &mut Handover {
        self.windows.push((tag, window));
        self
    }

    /// Adds a connected queue pair. A channel of a shared send queue must be [detached](crate::low::Ssq::detach), and have no requests there. Memory used by its posted requests or known to its peer must be handed over, too.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(8)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// verbena::handover::Handover::default().qp(1, qp);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn qp(&mut self, tag: u64, qp: Qp) -> &mut Handover {
        self.qps.push((tag, qp));
        self
    }

    /// Adds a listener. It is paused; see [`Listener::pause`] for requests that it has accepted before.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// verbena::handover::Handover::default().listener(1, device.listen("127.0.0.1:0")?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listener(&mut self, tag: u64, listener: Listener) -> &mut Handover {
        listener.pause();
        self.listeners.push((tag, listener));
        self
    }

    /// Returns the windows with their tags.
    ///
    /// ```
    /// assert!(verbena::handover::Handover::default().take_windows().is_empty());
    /// ```
    pub fn take_windows(&mut self) -> Vec<(u64, Window)> {
        core::mem::take(&mut self.windows)
    }

    /// Returns the memory, queue pairs and listeners with their tags. Windows that were not [taken](Handover::take_windows) before are
    /// dropped.
    ///
    /// ```
    /// let (memories, qps, listeners) = verbena::handover::Handover::default().into_parts();
    /// assert!(memories.is_empty() && qps.is_empty() && listeners.is_empty());
    /// ```
    #[expect(clippy::type_complexity, reason = "three lists of the same form")]
    pub fn into_parts(self) -> (Vec<(u64, Memory)>, Vec<(u64, Qp)>, Vec<(u64, Listener)>) {
        (self.memories, self.qps, self.listeners)
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover")
            .field("memories", &self.memories.len())
            .field("windows", &self.windows.len())
            .field("qps", &self.qps.len())
            .field("listeners", &self.listeners.len())
            .finish_non_exhaustive()
    }
}

/// A failed handover: connections are in service and listeners accept again.
#[derive(Debug)]
pub struct FailedHandover {
    /// Everything that was to be handed over.
    pub handover: Handover,
    /// The reason.
    pub source: Error,
    /// The successor, if nothing was sent to it and it still waits: an object could not be moved, perhaps only for now.
    pub sender: Option<HandoverSender>,
}

impl fmt::Display for FailedHandover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl core::error::Error for FailedHandover {}

/// A process that connected to take over.
///
/// See [`HandoverListener`](crate::handover::HandoverListener).
#[derive(Debug)]
pub struct HandoverSender {
    pub(super) channel: FdChannel,
}

/// A queue pair that is handed over, as windows refer to it: its tag, its number and its device.
type QpName = (u64, u32, Arc<Inner>);

/// Connections taken out of service, with what their queue pairs need to continue.
type ExportedQps = Vec<(u64, ExportedConnection, QpResources)>;

impl HandoverSender {
    /// Sets the time limit of the successor, after which everything is taken back; 5 s by default. Peers have to wait as
    /// long.
    ///
    /// ```
    /// # fn patient(mut successor: verbena::handover::HandoverSender) {
    /// successor.set_timeout(std::time::Duration::from_secs(1));
    /// # }
    /// ```
    pub fn set_timeout(&mut self, patience: Duration) {
        self.channel.set_timeouts(patience, patience);
    }

    /// Hands everything over; `on` is called at each step. When this returns, the successor owns all of it, or none.
    ///
    /// ```
    /// # fn give(successor: verbena::handover::HandoverSender, handover: verbena::handover::Handover) {
    /// match successor.send(handover, |step| println!("{step:?}")) {
    ///     Ok(()) => std::process::exit(0),
    ///     Err(kept) => println!("still here: {kept}"),
    /// }
    /// # }
    /// ```
    pub fn send(
        mut self,
        handover: Handover,
        mut on: impl FnMut(HandoverStep),
    ) -> Result<(), Box<FailedHandover>> {
        let Handover {
            user_data: note,
            memories,
            windows,
            qps,
            listeners,
        } = handover;
        let name = |(tag, qp): &(u64, Qp)| (*tag, qp.number(), qp.0.device().clone());
        let names: Vec<QpName> = qps.iter().map(name).collect();
        // What does not move is refused while all connections are in service.
        let (out, unmoved) = match describe(&memories, &windows, &names) {
            Ok(_) => export_all(qps),
            Err(why) => (ExportedQps::new(), Some((qps, why))),
        };
        let offered = match unmoved {
            Some((left, why)) => Err((left, why, Some(self))),
            None => {
                on(HandoverStep::Exported);
                match pack(&memories, &windows, &names, &out) {
                    Err(why) => Err((Vec::new(), why, Some(self))),
                    Ok((goods, fds)) => {
                        let user_data = note.clone();
                        let goods = Payload { user_data, ..goods };
                        let offered = self.offer(goods, fds, &listeners, &mut on);
                        offered.map_err(|why| (Vec::new(), why, None))
                    }
                }
            }
        };
        let Err((left, why, next_process)) = offered else {
            for (_, listener) in listeners {
                listener.close_handed_over();
            }
            on(HandoverStep::Completed);
            return Ok(());
        };
        let qps = restore_all(out).into_iter().chain(left).collect();
        for (_, listener) in &listeners {
            listener.resume();
        }
        let handover = Handover {
            user_data: note,
            memories,
            windows,
            qps,
            listeners,
        };
        Err(Box::new(FailedHandover {
            handover,
            source: why,
            sender: next_process,
        }))
    }

    /// Offers what was packed, with its descriptors, and the listeners, and waits for the outcome.
    fn offer(
        &mut self,
        mut goods: Payload,
        packed: Vec<BorrowedFd<'_>>,
        listeners: &[(u64, Listener)],
        on: &mut impl FnMut(HandoverStep),
    ) -> Result<(), Error> {
        let claims = Claims::new(1).map_err(|why| HandoverError::SharedWord(why.to_string()))?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![claims.fd()];
        fds.extend(packed);
        let sockets: Vec<OwnedFd> = listeners
            .iter()
            .map(|(_, listener)| listener.duplicate())
            .collect::<Result<_, Error>>()?;
        goods.listeners = listeners.iter().map(|(tag, _)| *tag).collect();
        fds.extend(sockets.iter().map(AsFd::as_fd));
        let bytes = postcard::to_allocvec(&goods)
            .map_err(|_| HandoverError::InvalidMessage("the payload cannot be encoded"))?;
        let sent = self.channel.send(&bytes, &fds);
        if sent.is_ok() {
            on(HandoverStep::Sent);
        }
        // The word decides, whatever the answer is.
        let answer = sent
            .map_err(HandoverError::from)
            .and_then(|()| self.receive_reply());
        match claims.take(0, OFFERED, WITHDRAWN) {
            Err(_) => Ok(()),
            Ok(()) => Err(match answer {
                Err(why) => why.into(),
                Ok(Reply::Refused(why)) => HandoverError::Refused(why).into(),
                Ok(Reply::Accepted) => {
                    HandoverError::InvalidMessage("it reports success without a claim").into()
                }
            }),
        }
    }

    fn receive_reply(&mut self) -> Result<Reply, HandoverError> {
        let (bytes, _) = self.channel.receive()?;
        postcard::from_bytes(&bytes)
            .map_err(|_| HandoverError::InvalidMessage("the reply cannot be decoded"))
    }
}

/// Memory and windows as the successor gets them, and the descriptors of the memory. Fails if one of them cannot move.
fn describe<'a>(
    memories: &'a [(u64, Memory)],
    windows: &[(u64, Window)],
    qps: &[QpName],
) -> Result<(Payload, Vec<BorrowedFd<'a>>), Error> {
    let mut goods = Payload::default();
    let mut bound = Vec::new();
    for (tag, window) in windows {
        let (state, domain) = (window.export()?, window.domain());
        let (window, device) = (state.stag, &domain.device);
        let memory_tag = |region| {
            let under =
                |(_, memory): &&(u64, Memory)| memory.stag() == region && memory.is_in(domain);
            let found = memories.iter().find(under).map(|(tag, _)| *tag);
            found.ok_or(HandoverError::WindowMemory { window, region })
        };
        let qp_tag = |qp| {
            let owner = |(_, number, of): &&QpName| *number == qp && Arc::ptr_eq(of, device);
            let found = qps.iter().find(owner).map(|(tag, ..)| *tag);
            found.ok_or(HandoverError::WindowQp { window, qp })
        };
        let record = WindowRecord::new(&state, memory_tag, qp_tag)?;
        bound.extend(record.binding().map(|binding| binding.memory));
        goods.windows.push((*tag, record));
    }
    let mut fds = Vec::new();
    for (tag, memory) in memories {
        let windows = bound.iter().filter(|memory| *memory == tag).count();
        let (region_export, fd) = memory.export_region(windows as u32)?;
        goods.memories.push((*tag, region_export.into()));
        fds.push(fd);
    }
    Ok((goods, fds))
}

/// Everything but the listeners as the successor gets it, and its descriptors. Connections are out of service, so that nothing changes
/// any more; peers may have invalidated windows before.
fn pack<'a>(
    memories: &'a [(u64, Memory)],
    windows: &[(u64, Window)],
    names: &[QpName],
    out: &'a ExportedQps,
) -> Result<(Payload, Vec<BorrowedFd<'a>>), Error> {
    let (mut goods, mut fds) = describe(memories, windows, names)?;
    for (tag, departed, _) in out {
        goods.qps.push((*tag, departed.migration_state()?));
        fds.extend(departed.descriptors());
    }
    Ok((goods, fds))
}

/// Takes connections out of service. If one cannot move: that one, the rest, and the reason.
#[expect(clippy::type_complexity, reason = "said in the sentence above")]
fn export_all(qps: Vec<(u64, Qp)>) -> (ExportedQps, Option<(Vec<(u64, Qp)>, Error)>) {
    let mut out = ExportedQps::new();
    let mut qps = qps.into_iter();
    while let Some((tag, qp)) = qps.next() {
        match qp.export() {
            Ok((departed, held)) => out.push((tag, departed, held)),
            Err(unmoved) => {
                let left = core::iter::once((tag, unmoved.qp)).chain(qps).collect();
                return (out, Some((left, unmoved.source)));
            }
        }
    }
    (out, None)
}

fn restore_all(out: ExportedQps) -> Vec<(u64, Qp)> {
    out.into_iter()
        .map(|(tag, departed, held)| (tag, held.attach(departed.restore())))
        .collect()
}
