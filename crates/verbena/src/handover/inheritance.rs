//! The successor's side of a handover: the objects received are unpacked one by one and taken all at once.
//! Connections are not touched before this process owns them. If they are not taken they stay with the running process, which is told
//! the reason; a part cannot be taken.

use core::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use verbena_engine::sys::{Claims, Courier};
use verbena_engine::{Arriving, Destination, Parcel, QueuePair};

use super::word::{Answer, Goods, Hello, Land, OFFERED, TAKEN};
use super::{HandoverError, PATIENCE, Step};
use crate::cq::BareCq;
use crate::device::Device;
use crate::error::Error;
use crate::listener::{Berth, Listener};
use crate::mr::Memory;
use crate::pd::Pd;
use crate::qp::{Held, Qp};
use crate::srq::Srq;

/// The objects that a running process hands over to this one.
///
/// ```no_run
/// use verbena::{Device, Inheritance};
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(256)?);
/// let mut inheritance = Inheritance::from("/run/user/1000/kv/successor".as_ref())?;
/// let memory = inheritance.memory(1, &pd)?;
/// let qp = inheritance.qp(1, &pd, &cq, &cq, None)?;
/// let listeners = inheritance.accept(&device, |_| ())?;
/// // From here on `qp` flows, where it stopped in the other process.
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Inheritance {
    courier: Courier,
    claims: Claims,
    note: Vec<u8>,
    memories: Vec<(u64, Land, OwnedFd)>,
    qps: Vec<(u64, Parcel, Vec<OwnedFd>)>,
    listeners: Vec<(u64, OwnedFd)>,
    /// Unpacked connections, to be started.
    arriving: Vec<(Qp, Arriving)>,
    /// The first object that failed to unpack; [`accept`](Self::accept) then fails, since it would take a part.
    spoilt: Option<(&'static str, u64)>,
    /// The first error, to be sent to the running process.
    why: Option<String>,
    taken: bool,
}

impl Inheritance {
    /// Connects to the [`Hatch`](crate::Hatch) at this path and waits until it has sent everything. Fails if no process listens there.
    ///
    /// ```
    /// let refused = verbena::Inheritance::from("/nonexistent/successor".as_ref());
    /// assert!(refused.is_err());
    /// ```
    pub fn from(path: &Path) -> Result<Inheritance, Error> {
        let mut courier = Courier::connect(path).map_err(HandoverError::from)?;
        courier.set_patience(PATIENCE, PATIENCE);
        courier
            .send(&Hello::OURS.emit(), &[])
            .map_err(HandoverError::from)?;
        let (bytes, _) = courier.receive().map_err(HandoverError::from)?;
        Hello::check(&bytes)?;
        let (bytes, fds) = courier.receive().map_err(HandoverError::from)?;
        let nonsense = HandoverError::Nonsense;
        let goods: Goods =
            postcard::from_bytes(&bytes).map_err(|_| nonsense("goods that are none"))?;
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(nonsense("fewer descriptors than goods"));
        let claims = Claims::adopt(next()?).map_err(|why| HandoverError::Word(why.to_string()))?;
        let mut memories = Vec::new();
        for (tag, land) in goods.memories {
            memories.push((tag, land, next()?));
        }
        let mut qps = Vec::new();
        for (tag, parcel) in goods.qps {
            let lines = (0..parcel.descriptors()).map(|_| next());
            let lines = lines.collect::<Result<_, _>>()?;
            qps.push((tag, parcel, lines));
        }
        let mut listeners = Vec::new();
        for tag in goods.listeners {
            listeners.push((tag, next()?));
        }
        Ok(Inheritance {
            courier,
            claims,
            note: goods.note,
            memories,
            qps,
            listeners,
            arriving: Vec::new(),
            spoilt: None,
            why: None,
            taken: false,
        })
    }

    /// The bytes that the running program added with [`Handover::note`](crate::Handover::note).
    ///
    /// ```
    /// # fn read(inheritance: &verbena::Inheritance) {
    /// println!("{:?}", inheritance.note());
    /// # }
    /// ```
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// The tags of connections that were received and are not unpacked yet.
    ///
    /// ```
    /// # fn list(inheritance: &verbena::Inheritance) {
    /// for tag in inheritance.qps() {
    ///     println!("a connection {tag}");
    /// }
    /// # }
    /// ```
    pub fn qps(&self) -> Vec<u64> {
        self.qps.iter().map(|(tag, ..)| *tag).collect()
    }

    /// Unpacks memory into a protection domain of this process: with the same STag, addresses and contents.
    ///
    /// ```
    /// # fn take(inheritance: &mut verbena::Inheritance, pd: &verbena::Pd) -> Result<(), verbena::Error> {
    /// let memory = inheritance.memory(1, pd)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory(&mut self, tag: u64, pd: &Pd) -> Result<Memory, Error> {
        let what = "memory";
        let at = self.memories.iter().position(|(t, ..)| *t == tag);
        let at = at.ok_or(HandoverError::NoSuch { what, tag })?;
        let (_, land, fd) = self.memories.remove(at);
        let adopted = land
            .estate()
            .map_err(Error::from)
            .and_then(|estate| Memory::adopt(&pd.0, fd, estate));
        if adopted.is_err() {
            self.spoilt.get_or_insert((what, tag));
        }
        self.note_failure(adopted)
    }

    /// Unpacks a connection as a queue pair of this process. Requests can be posted to it after [`accept`](Self::accept).
    ///
    /// ```
    /// # fn take(inheritance: &mut verbena::Inheritance, pd: &verbena::Pd, cq: &verbena::Cq) -> Result<(), verbena::Error> {
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
        let what = "connection";
        let at = self.qps.iter().position(|(t, ..)| *t == tag);
        let at = at.ok_or(HandoverError::NoSuch { what, tag })?;
        // Fails before the connection is removed, so that the caller can try again with other queues.
        let (held, to) = Held::place(pd, send, recv, srq)?;
        let (_, parcel, fds) = self.qps.remove(at);
        let unpacked = unpack(held, &to, parcel, fds);
        if unpacked.is_err() {
            self.spoilt.get_or_insert((what, tag));
        }
        let (qp, arriving) = self.note_failure(unpacked)?;
        self.arriving.push((Qp(qp.0.clone()), arriving));
        Ok(qp)
    }

    /// Takes everything: from now on this process owns it, and the running one releases it. `on` is called at each step. Returns the
    /// listeners with their tags, listening on this device.
    ///
    /// Fails, and takes nothing, if something was not unpacked or the running process has taken it back.
    ///
    /// ```
    /// # fn take(inheritance: verbena::Inheritance, device: &verbena::Device) -> Result<(), verbena::Error> {
    /// let listeners = inheritance.accept(device, |step| println!("{step:?}"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(
        mut self,
        device: &Device,
        mut on: impl FnMut(Step),
    ) -> Result<Vec<(u64, Listener)>, Error> {
        on(Step::Received);
        let left = (self.memories.first().map(|(tag, ..)| ("memory", *tag)))
            .or(self.qps.first().map(|(tag, ..)| ("connection", *tag)))
            .or(self.spoilt);
        if let Some((what, tag)) = left {
            let left: Error = HandoverError::Left { what, tag }.into();
            return self.note_failure(Err(left));
        }
        let berths: Result<Vec<(u64, Berth)>, Error> = core::mem::take(&mut self.listeners)
            .into_iter()
            .map(|(tag, fd)| Ok((tag, Berth::adopt(device.clone(), fd)?)))
            .collect();
        let berths = self.note_failure(berths)?;
        let all: Vec<_> = (self.arriving.iter())
            .map(|(qp, arriving)| (&qp.0.qp, arriving))
            .collect();
        let fit = QueuePair::check_start(&all).map_err(Error::from);
        self.note_failure(fit)?;
        on(Step::Unpacked);
        if self.claims.take(0, OFFERED, TAKEN).is_err() {
            return Err(HandoverError::TakenBack.into());
        }
        self.taken = true;
        on(Step::Claimed);
        let mut begun = Ok(());
        for (qp, arriving) in core::mem::take(&mut self.arriving) {
            // A connection that cannot start does not affect the others.
            begun = begun.and(qp.0.qp.start(arriving));
        }
        on(Step::Begun);
        // If this is lost, the running process reads the same from the word.
        let _ = self.answer(&Answer::Taken);
        begun?;
        let listeners = berths
            .into_iter()
            .map(|(tag, berth)| Ok((tag, berth.listen(Listener::BACKLOG)?)));
        listeners.collect()
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), HandoverError> {
        let bytes = postcard::to_allocvec(answer)
            .map_err(|_| HandoverError::Nonsense("an answer without a form"))?;
        Ok(self.courier.send(&bytes, &[])?)
    }

    /// Keeps the first error for the answer to the running process.
    fn note_failure<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(why) = &result {
            self.why.get_or_insert_with(|| why.to_string());
        }
        result
    }
}

/// Unpacks a connection.
fn unpack(
    held: Held,
    to: &Destination<'_>,
    parcel: Parcel,
    fds: Vec<OwnedFd>,
) -> Result<(Qp, Arriving), Error> {
    let (qp, arriving) = QueuePair::unpack(to, parcel, fds)?;
    Ok((held.hold(qp), arriving))
}

impl Drop for Inheritance {
    fn drop(&mut self) {
        for (_, arriving) in core::mem::take(&mut self.arriving) {
            arriving.forgo();
        }
        if !self.taken {
            let why = self.why.take();
            let why = why.unwrap_or_else(|| "it was dropped without being taken".to_owned());
            // If this is lost, the running process takes everything back when its time limit has passed.
            let _ = self.answer(&Answer::Refused(why));
        }
    }
}

impl fmt::Debug for Inheritance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inheritance")
            .field("memories", &self.memories.len())
            .field("qps", &self.qps.len())
            .field("listeners", &self.listeners.len())
            .finish_non_exhaustive()
    }
}
