//! A connection whose stream passes through a port: the port hands segments in, in the order in which they arrive, and tells what happens.
//! A segment reaches the queue pair only while the stream is attached: the port's gate is closed before another connection can have it.

use std::sync::Arc;

use verbena_nic::qp::{Segment, SegmentTaken};
use verbena_nic::{Outbox, Receiving};
use verbena_stream::Time;

use super::Connection;
use crate::error::Error;
use crate::sys::{self, LineOwner};

impl Connection {
    /// The stream's segments will go to the queue pair.
    pub(super) fn takes_segments(&self) -> bool {
        self.transport.socket().line().is_some() && !self.transport.has_tls()
    }

    /// Takes the connection of a port over; returns what was read with the startup if there is none.
    pub(super) fn take_over_line(&self, early: Vec<u8>, markers: bool) -> Result<Vec<u8>, Error> {
        match self.transport.socket().line() {
            Some(line) if self.takes_segments() => {
                if self.transport.take_over(line, early, markers) {
                    Ok(Vec::new())
                } else {
                    Err(Error::Closed)
                }
            }
            _ => Ok(early),
        }
    }

    /// The queue pair takes segments from now on.
    pub(super) fn start_segments(&self, out: &mut Outbox) {
        if let Some(line) = self.transport.line() {
            line.start(sys::now(), out);
        }
    }

    /// Continues with what could not be processed when it arrived.
    pub(super) fn resume_segments(&self, out: &mut Outbox) {
        if let Some(line) = self.transport.line() {
            line.resume(sys::now(), out);
        }
    }
}

impl LineOwner for Connection {
    fn line_changed(self: Arc<Self>) {
        if self.is_starting() {
            return self.startup_ready();
        }
        let mut out = Outbox::new();
        self.full_turn(&mut out);
        self.core.deliver(&mut out);
    }

    fn take_segment(&self, segment: &Segment<'_>, now: Time, out: &mut Outbox) -> SegmentTaken {
        let Some(bound) = self.bound.get() else {
            // The port starts after it is bound.
            return SegmentTaken {
                receiving: Receiving::Ended,
                taken: segment.bytes.len(),
                processed: segment.position + segment.bytes.len() as u64,
            };
        };
        self.begin_packet(out);
        let mut taken = bound.qp.receive_segment(segment, now, out);
        // A receive may have been posted by a thread that still saw input watched: try again.
        while taken.receiving == Receiving::Held && self.watch_input(bound, false) {
            let here = Segment {
                position: taken.processed,
                bytes: &[],
                ..*segment
            };
            let again = bound.qp.receive_segment(&here, now, out);
            (taken.receiving, taken.processed) = (again.receiving, again.processed);
        }
        if matches!(taken.receiving, Receiving::Some(_)) {
            self.watch_input(bound, true);
            bound.group.note_data();
        }
        out.end_packet();
        taken
    }

    fn segments_taken(&self, out: &mut Outbox) {
        self.send_now(out);
        self.core.deliver(out);
    }
}
