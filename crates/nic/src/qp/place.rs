//! Where received payload goes: memory of a Write, the claimed receive, the sink of a read.
//! It promises that rights are looked up anew for every run (M6, M7) and that a refusal strikes whom it should.
//! It refuses to know how the bytes get there: copied from a stage, or read straight from the carrier.

use verbena_mem::{Access, Placement, Reach, Refusal, Targets};
use verbena_stream::{Place, Run, Stream, Violation};
use verbena_wire::rdmap::{Cause, Opcode, RdmapError};
use verbena_wire::{Rsn, Stag};

use super::QpInit;
use super::answer::access;
use super::inner::Inner;
use super::memory::{Right, places};
use super::touch::Touching;
use super::wait::waits;
use super::wqe::Payload;
use crate::event::{Event, Outbox};
use crate::state::{QpEvent, QpType};
use crate::wc::Status;

/// Short runs after which a stream of long ones counts as over: the end of a long message is often one.
pub(super) const BULK: u8 = 3;

/// Messages of an unreliable peer that memory refuses before its connection ends (docs/connections.md).
const MAX_REFUSALS: u8 = 16;

/// Why payload cannot go where it should.
#[derive(Clone, Copy)]
pub(super) enum Astray {
    /// The peer reached for what it may not have, or our receive is bad.
    Violation(Violation),
    /// The sink of the request at this position is bad.
    Sink(usize, Refusal),
    /// This entry is not there yet; if it does not come in time, that is a violation (V5).
    Pending(Stag, Violation),
}

impl Astray {
    /// A refusal that means this violation, unless the entry is merely pending.
    fn of(refusal: &Refusal, violation: Violation) -> Astray {
        match refusal {
            Refusal::Pending { stag } => Astray::Pending(*stag, violation),
            _ => Astray::Violation(violation),
        }
    }
}

/// What became of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// It is in its place, or thrown away for good reason.
    Done,
    /// Nothing of it: its memory is not there yet or wanted by a response, and the stream is held.
    Held,
    /// Memory refused, and the stream is over.
    Over,
}

impl Inner {
    /// Grants on the `len` bytes at a place, one after the other until `each` has had enough. Returns what is new about
    /// one-touch memory, if anything is (M9).
    fn resolve<'a>(
        &self,
        init: &'a QpInit,
        place: Place,
        len: u32,
        mut each: impl FnMut(Placement<'a>) -> bool,
    ) -> Result<Option<Touching>, Astray> {
        match place {
            Place::Discard => Ok(None),
            Place::Write { stag, to } => {
                if !self.enabled.write {
                    let violation = Violation::NotEnabled(Opcode::Write);
                    return Err(Astray::Violation(violation));
                }
                let reach = Reach {
                    stag,
                    at: to.get(),
                    len: u64::from(len),
                    pd: init.pd,
                    qp: init.number,
                    needs: Access::REMOTE_WRITE,
                };
                let refused = |r: Refusal| Astray::of(&r, access(Opcode::Write, stag, &r));
                let place = init.tpt.place_remote(&reach).map_err(refused)?;
                if place.is_one_touch() {
                    drop(place);
                    return self.touch_run(init, &reach, each).map_err(refused);
                }
                each(place);
                Ok(None)
            }
            Place::Receive { offset } => match &self.claimed {
                Some(receive) => {
                    let (range, right) = ((offset, len), Right::Local);
                    places(init, &receive.scatter, range, right, each)
                        .map(|()| None)
                        .map_err(|refusal| Astray::of(&refusal, Violation::ReceiveBuffer))
                }
                None => Ok(None),
            },
            Place::Sink { offset } => match self.sink() {
                Some((at, Payload::Gather(sges))) => {
                    let right = Right::of_sink(init, !self.manner().read_v2);
                    places(init, sges, (offset, len), right, each)
                        .map(|()| None)
                        .map_err(|refusal| Astray::Sink(at, refusal))
                }
                _ => Ok(None),
            },
        }
    }

    /// The request whose answer is being received, and where that goes.
    fn sink(&self) -> Option<(usize, &Payload)> {
        let head = self.stream.as_ref()?.ledger().reads_out.head()?;
        let at = self.find(head.rsn)?;
        Some((at, &self.sends[at].payload))
    }

    /// Copies bytes to their place.
    pub(super) fn place(
        &mut self,
        init: &QpInit,
        run: Run,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Placed {
        if bytes.is_empty() {
            return Placed::Done;
        }
        if self.has_responses() && !self.preserve_run(init, run.place, bytes.len() as u32) {
            return Placed::Held;
        }
        self.note_run(init, run.len);
        loop {
            let (mut rest, mut copied) = (bytes, Ok(0));
            // The whole run is judged, however little of it is here: what leaves its buffer is not placed in part.
            let verdict = self.resolve(init, run.place, run.len, |place| {
                copied = place.write(0, rest);
                rest = &rest[copied.unwrap_or(0)..];
                copied.is_ok() && !rest.is_empty()
            });
            match verdict {
                Ok(_) if copied.is_err() => {
                    self.fault(init, out);
                    return Placed::Over;
                }
                Ok(touching) => {
                    self.note(touching);
                    self.placed(bytes.len());
                    return Placed::Done;
                }
                Err(Astray::Pending(stag, violation)) => {
                    if waits(init, stag) {
                        self.hold(init, stag, violation);
                        return Placed::Held;
                    }
                    // It was settled a moment ago, and never is pending again: look once more.
                }
                Err(astray) if self.stray(init, astray, bytes.len(), out) => return Placed::Done,
                Err(_) => return Placed::Over,
            }
        }
    }

    /// Names the places of a run that is long enough to be read straight into them; returns their bytes.
    ///
    /// `None` if memory refused, with all that follows from it, is not there yet, or is wanted by a response.
    pub(super) fn name_places<'a>(
        &mut self,
        init: &'a QpInit,
        targets: &mut Targets<'a>,
        out: &mut Outbox,
    ) -> Option<Direct> {
        let run = self.stream.as_mut().and_then(Stream::pending);
        // The end of a long run, where the carrier stopped inside it, goes where the rest of it went.
        let least = if self.bulk > 0 {
            1
        } else {
            init.transfer.direct_min
        };
        let long = |run: &Run| run.len >= least && run.place != Place::Discard;
        let Some(run) = run.filter(long) else {
            return Some(Direct::default());
        };
        if self.has_responses() && !self.preserve_run(init, run.place, run.len) {
            return None;
        }
        let mut bytes = 0;
        let verdict = self.resolve(init, run.place, run.len, |place| {
            let granted = place.len() as usize;
            let n = targets.place(place);
            bytes += n;
            n == granted
        });
        match verdict {
            Ok(touching) => {
                self.note(touching);
                Some(Direct {
                    bytes,
                    all: bytes == run.len as usize,
                })
            }
            Err(Astray::Pending(stag, violation)) => {
                // If it was settled a moment ago, the next attempt finds it so.
                if waits(init, stag) {
                    self.hold(init, stag, violation);
                }
                None
            }
            Err(astray) => {
                // What memory refuses is thrown away from here on, so nothing of it is in the way of the next read.
                self.stray(init, astray, 0, out);
                None
            }
        }
    }

    /// Something is new about one-touch memory. Nothing is taken away by it: grants may be held.
    fn note(&mut self, touching: Option<Touching>) {
        if let Some(touching) = touching {
            self.touches.write = touching;
        }
    }

    /// Payload reached its place.
    pub(super) fn placed(&mut self, n: usize) {
        if let Some(stream) = &mut self.stream {
            stream.placed(n as u32);
        }
    }

    /// Memory refused `len` bytes; false if the stream is over.
    fn stray(&mut self, init: &QpInit, astray: Astray, len: usize, out: &mut Outbox) -> bool {
        let violation = match astray {
            Astray::Violation(violation) | Astray::Pending(_, violation) => violation,
            Astray::Sink(at, refusal) => {
                self.cause
                    .get_or_insert_with(|| format!("the sink of a read: {refusal}"));
                self.strike(init, at, Status::LocProtErr, out);
                return false;
            }
        };
        let Some(stream) = &mut self.stream else {
            return false;
        };
        // An unreliable connection drops what memory refuses a peer and tells nobody; a receive that its own side
        // put into bad memory is another matter, and must end.
        if init.qp_type == QpType::Uc && violation != Violation::ReceiveBuffer {
            // Who names an entry that is pending has not guessed it.
            let guessed = matches!(astray, Astray::Violation(_));
            if guessed && !self.overlook(init, &violation, out) {
                return false;
            }
            if let Some(stream) = &mut self.stream {
                stream.drop_message();
                stream.placed(len as u32);
            }
            return true;
        }
        stream.fail(violation);
        self.violated(init, &violation, out);
        false
    }

    /// Memory refused a message of an unreliable peer, which is dropped in silence; false if it was one too many, and the stream
    /// is over. Otherwise a peer could try STags until one of them is right.
    pub(super) fn overlook(
        &mut self,
        init: &QpInit,
        violation: &Violation,
        out: &mut Outbox,
    ) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals < MAX_REFUSALS {
            return true;
        }
        self.cause.get_or_insert_with(|| {
            format!(
                "the peer's fault: memory refused {MAX_REFUSALS} messages, the last: {violation}"
            )
        });
        if let Some(stream) = &mut self.stream {
            stream.fail(*violation);
        }
        self.violated(init, violation, out);
        false
    }

    /// The memory that the stream waited for did not come in time; false if the stream is over.
    pub(super) fn forgo(
        &mut self,
        init: &QpInit,
        (stag, violation): (Stag, Violation),
        out: &mut Outbox,
    ) -> bool {
        self.stray(init, Astray::Pending(stag, violation), 0, out)
    }

    /// The carrier says that a place it was given is not memory: its owner unmapped what it had registered.
    pub(super) fn fault(&mut self, init: &QpInit, out: &mut Outbox) {
        let place = self.stream.as_mut().and_then(Stream::pending);
        let sink = self.sink().map(|(at, _)| at);
        match (place.map(|run| run.place), sink) {
            (Some(Place::Receive { .. }), _) => {
                let violation = Violation::ReceiveBuffer;
                self.stray(init, Astray::Violation(violation), 0, out);
            }
            (Some(Place::Sink { .. }), Some(at)) => {
                self.cause
                    .get_or_insert_with(|| "the sink of a read is not mapped".to_owned());
                self.strike(init, at, Status::LocProtErr, out);
            }
            _ => {
                self.cause
                    .get_or_insert_with(|| "registered memory is not mapped".to_owned());
                if let Some(stream) = &mut self.stream {
                    stream.abort(Cause::Rdmap(RdmapError::LocalCatastrophic));
                }
                out.push(Event::QpFatal { qp: init.number });
                self.end(init, QpEvent::Failed, out);
            }
        }
    }

    /// The request whose part has this number.
    pub(super) fn find(&self, rsn: Rsn) -> Option<usize> {
        self.sends
            .iter()
            .take(self.begun)
            .position(|w| w.rsn.contains(&Some(rsn)))
    }
}

/// How much of a read goes straight to its place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Direct {
    pub(super) bytes: usize,
    /// That is the whole run: what follows it may be read along.
    pub(super) all: bool,
}
