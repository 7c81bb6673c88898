//! Where received payload goes: memory of a Write, the claimed receive, the sink of a read.
//! Rights are checked anew for every run (M6, M7), and a refusal is attributed to the peer, the receive or the request at fault.
//! The same code serves bytes copied from a stage and bytes read directly from the carrier.

use verbena_events::event::Outbox;
use verbena_mem::{Access, MemAccess, Placement, Refusal, Targets};
use verbena_stream::{Place, Run, Stream, Violation};
use verbena_wire::Stag;
use verbena_wire::rdmap::Opcode;

use super::QpInit;
use super::failure::FailureKind;
use super::inner::Inner;
use super::memory::{Right, access_violation, places};
use super::receive_state::{BlockReason, MAX_REFUSALS};
use super::target::Selected;
use super::touch::Touching;
use super::wait::wait_for_entry;
use super::wqe::Payload;
use crate::state::QpType;
use crate::wc::Status;

/// Why payload cannot be placed.
#[derive(Clone, Copy)]
enum PlaceError {
    /// The peer accessed memory that it may not, or the memory of the receive is invalid.
    Violation(Violation),
    /// The sink of the request at this position is invalid.
    Sink(usize, Refusal),
    /// This entry is pending; if it is not registered in time, that is a violation (V5).
    Pending(Stag, Violation),
}

impl PlaceError {
    /// The violation of a refusal, unless the entry is merely pending.
    fn of(refusal: &Refusal, violation: Violation) -> PlaceError {
        match refusal {
            Refusal::Pending { stag } => PlaceError::Pending(*stag, violation),
            _ => PlaceError::Violation(violation),
        }
    }
}

/// Result of placing payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// It was placed, or discarded for good reason.
    Done,
    /// It was taken, and the stream is held until more can be sent to the process of its queue.
    Paused,
    /// Nothing of it was placed: its memory is pending or needed by a response, and the stream is held.
    Held,
    /// Memory refused it, and the stream is over.
    StreamEnded,
}

impl Inner {
    /// Grants on the `len` bytes at a place, one after the other until `each` returns false. Returns the new state of
    /// one-touch memory, if it changes (M9).
    fn resolve<'a>(
        &self,
        init: &'a QpInit,
        place: Place,
        len: u32,
        mut each: impl FnMut(Placement<'a>) -> bool,
    ) -> Result<Option<Touching>, PlaceError> {
        match place {
            Place::Discard => Ok(None),
            Place::Write { stag, to } => {
                if !self.attributes.enabled.write {
                    let violation = Violation::NotEnabled(Opcode::Write);
                    return Err(PlaceError::Violation(violation));
                }
                let reach = MemAccess {
                    stag,
                    at: to.get(),
                    len: u64::from(len),
                    pd: init.pd,
                    qp: init.number,
                    needs: Access::REMOTE_WRITE,
                };
                let refused = |r: Refusal| {
                    self.cause.note_refused(&reach);
                    PlaceError::of(&r, access_violation(Opcode::Write, stag, &r))
                };
                let place = init.tpt.place_remote(&reach).map_err(refused)?;
                if place.is_one_touch() {
                    drop(place);
                    let last = self.wire.stream().is_some_and(Stream::in_last_segment);
                    let touching = self.receive.touching();
                    return touching.grant(init, &reach, last, each).map_err(refused);
                }
                each(place);
                Ok(None)
            }
            Place::Receive { offset } => match self.receive.claimed() {
                Some(receive) => {
                    let (range, right) = ((offset, len), Right::Local);
                    places(init, &receive.scatter, range, right, each)
                        .map(|()| None)
                        .map_err(|refusal| PlaceError::of(&refusal, Violation::ReceiveBuffer))
                }
                None => Ok(None),
            },
            Place::Sink { offset } => match self.sink() {
                Some((at, Payload::Gather(sges))) => {
                    let right = Right::of_sink(init, !self.wire.peer_features().read_v2);
                    places(init, sges, (offset, len), right, each)
                        .map(|()| None)
                        .map_err(|refusal| PlaceError::Sink(at, refusal))
                }
                _ => Ok(None),
            },
        }
    }

    /// Whether memory still allows a run that is placed already; what it refuses is a violation as if it arrived now.
    pub(super) fn check_placed(&self, init: &QpInit, run: Run) -> Result<(), Violation> {
        if !matches!(run.place, Place::Write { .. }) {
            return Ok(());
        }
        match self.resolve(init, run.place, run.len, |_| false) {
            Ok(_) | Err(PlaceError::Sink(..)) => Ok(()),
            Err(PlaceError::Violation(violation) | PlaceError::Pending(_, violation)) => {
                Err(violation)
            }
        }
    }

    /// The request whose response is being received, and its sink.
    fn sink(&self) -> Option<(usize, &Payload)> {
        let head = self.wire.stream()?.accounting().reads_out.head()?;
        let at = self.sends.find(head.rsn)?;
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
        if let Place::Write { .. } = run.place {
            match self.select_srq(init, out) {
                Selected::Ready | Selected::Elsewhere => {}
                Selected::Held => return Placed::Held,
                Selected::Refused => return Placed::StreamEnded,
            }
        }
        if bytes.is_empty() {
            return Placed::Done;
        }
        if init.xrcd.is_some() && self.relays(run.place) {
            return self.relay_run(init, run, bytes, out);
        }
        let parts = self.receive.target_parts();
        let init = parts.as_deref().unwrap_or(init);
        if self.has_responses() && !self.preserve_run(init, run.place, bytes.len() as u32) {
            return Placed::Held;
        }
        self.receive.note_run(run.len >= init.transfer.direct_min);
        loop {
            let (mut rest, mut copied) = (bytes, Ok(0));
            // The whole run is checked, however little of it is here: a run that exceeds its buffer is not placed in part.
            let verdict = self.resolve(init, run.place, run.len, |place| {
                copied = place.write(0, rest);
                rest = &rest[copied.unwrap_or(0)..];
                copied.is_ok() && !rest.is_empty()
            });
            match verdict {
                Ok(_) if copied.is_err() => {
                    self.fail_unmapped_target(init, out);
                    return Placed::StreamEnded;
                }
                Ok(touching) => {
                    self.set_touching(touching);
                    self.placed(bytes.len());
                    return Placed::Done;
                }
                Err(PlaceError::Pending(stag, violation)) => {
                    if wait_for_entry(init, stag) {
                        self.block_for_memory(init, stag, violation);
                        return Placed::Held;
                    }
                    // The registration ended meanwhile, and is never pending again: try once more.
                }
                Err(astray) if self.handle_place_error(init, astray, bytes.len(), out) => {
                    return Placed::Done;
                }
                Err(_) => return Placed::StreamEnded,
            }
        }
    }

    /// Adds the places of a run that is long enough to be read directly into them; returns their bytes.
    ///
    /// `None` if memory refused it, with all consequences, is pending, or is needed by a response.
    pub(super) fn add_targets<'a>(
        &mut self,
        init: &'a QpInit,
        targets: &mut Targets<'a>,
        out: &mut Outbox,
    ) -> Option<DirectRead> {
        let run = self.wire.stream_mut().and_then(Stream::pending);
        // The end of a long run, where the carrier stopped inside it, is read directly like the rest of it.
        let least = if self.receive.expects_bulk() {
            1
        } else {
            init.transfer.direct_min
        };
        let long = |run: &Run| run.len >= least && run.place != Place::Discard;
        let Some(run) = run.filter(long) else {
            return Some(DirectRead::default());
        };
        if init.xrcd.is_some() && self.relays(run.place) {
            return Some(DirectRead::default());
        }
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
                self.set_touching(touching);
                Some(DirectRead {
                    bytes,
                    all: bytes == run.len as usize,
                })
            }
            Err(PlaceError::Pending(stag, violation)) => {
                // If the registration ended meanwhile, the next attempt finds it.
                if wait_for_entry(init, stag) {
                    self.block_for_memory(init, stag, violation);
                }
                None
            }
            Err(astray) => {
                // A refused message is discarded from here on, so nothing of it is left for the next read.
                self.handle_place_error(init, astray, 0, out);
                None
            }
        }
    }

    /// Records the new state of one-touch memory. Nothing is invalidated here: grants may be held.
    fn set_touching(&mut self, touching: Option<Touching>) {
        if let Some(touching) = touching {
            self.receive.set_touching(touching);
        }
    }

    /// Tells the stream that payload was placed.
    pub(super) fn placed(&mut self, n: usize) {
        if let Some(stream) = self.wire.stream_mut() {
            stream.placed(n as u32);
        }
    }

    /// Memory refused `len` bytes; false if the stream is over.
    fn handle_place_error(
        &mut self,
        init: &QpInit,
        astray: PlaceError,
        len: usize,
        out: &mut Outbox,
    ) -> bool {
        let violation = match astray {
            PlaceError::Violation(violation) | PlaceError::Pending(_, violation) => violation,
            PlaceError::Sink(at, refusal) => {
                self.cause.record(FailureKind::LocalMemory, || {
                    format!("the sink of a read: {refusal}")
                });
                self.fail_request(init, at, Status::LocProtErr, out);
                return false;
            }
        };
        let Some(stream) = self.wire.stream_mut() else {
            return false;
        };
        // An unreliable connection silently drops a message that memory refuses; a receive that the local program
        // posted with invalid memory is another matter, and must end.
        if init.qp_type == QpType::Uc && violation != Violation::ReceiveBuffer {
            // A peer that names a pending entry has not guessed it.
            let guessed = matches!(astray, PlaceError::Violation(_));
            if guessed && !self.count_refusal(init, &violation, out) {
                return false;
            }
            if let Some(stream) = self.wire.stream_mut() {
                stream.drop_message();
                stream.placed(len as u32);
            }
            return true;
        }
        stream.fail(violation);
        self.handle_violation(init, &violation, out);
        false
    }

    /// Memory refused a message of an unreliable peer, which is dropped silently; false if the limit is reached, and the stream
    /// is over. Otherwise a peer could try STags until one of them is right.
    pub(super) fn count_refusal(
        &mut self,
        init: &QpInit,
        violation: &Violation,
        out: &mut Outbox,
    ) -> bool {
        if self.receive.count_refusal() {
            return true;
        }
        self.cause.record(FailureKind::Access, || {
            format!(
                "the peer violated the protocol: memory refused {MAX_REFUSALS} messages, the last: {violation}"
            )
        });
        if let Some(stream) = self.wire.stream_mut() {
            stream.fail(*violation);
        }
        self.handle_violation(init, violation, out);
        false
    }

    /// The stream's next bytes need this entry: it is not read further.
    pub(super) fn block_for_memory(&mut self, init: &QpInit, stag: Stag, violation: Violation) {
        let until = self.now + init.transfer.memory_wait;
        self.receive
            .block(until, BlockReason::Memory(stag, violation));
    }

    /// The memory that the stream waited for was not registered in time; false if the stream is over.
    pub(super) fn fail_pending_expired(
        &mut self,
        init: &QpInit,
        (stag, violation): (Stag, Violation),
        out: &mut Outbox,
    ) -> bool {
        self.handle_place_error(init, PlaceError::Pending(stag, violation), 0, out)
    }

    /// A target passed to the carrier is not mapped: its owner unmapped registered memory.
    pub(super) fn fail_unmapped_target(&mut self, init: &QpInit, out: &mut Outbox) {
        let place = self.wire.stream_mut().and_then(Stream::pending);
        let sink = self.sink().map(|(at, _)| at);
        match (place.map(|run| run.place), sink) {
            (Some(Place::Receive { .. }), _) => {
                let violation = Violation::ReceiveBuffer;
                self.handle_place_error(init, PlaceError::Violation(violation), 0, out);
            }
            (Some(Place::Sink { .. }), Some(at)) => {
                self.cause.record(FailureKind::LocalMemory, || {
                    "the sink of a read is not mapped".to_owned()
                });
                self.fail_request(init, at, Status::LocProtErr, out);
            }
            _ => {
                self.cause.record(FailureKind::LocalMemory, || {
                    "registered memory is not mapped".to_owned()
                });
                self.fail_fatal(init, out);
            }
        }
    }
}

/// How much of a read goes directly to its place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DirectRead {
    pub(super) bytes: usize,
    /// That is the whole run: bytes that follow it may be read with it.
    pub(super) all: bool,
}
