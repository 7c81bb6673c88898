//! The summary of a stream: its ends, negotiated parameters, counts, and how it ended. The counts agree with the records that were printed.

use core::fmt;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::agree::Terms;
use super::iscsi::digests::Digests;
use super::record::{Dir, Out};

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The capture ends first.
    Open,
    /// Both sides sent FIN.
    Closed,
    /// One side sent FIN, the other did not in this capture.
    HalfClosed(Dir),
    /// One side reset the connection.
    Reset(Dir),
    /// The responder rejected it.
    Rejected,
}

/// The summary of one stream.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its number.
    pub stream: usize,
    /// Initiator and responder.
    pub ends: [SocketAddr; 2],
    /// The revision of the Request.
    pub revision: Option<u8>,
    /// The result of the startup, if it was completed.
    pub terms: Option<Terms>,
    /// The digests in use, if it is an iSCSI connection and not an MPA stream.
    pub iscsi: Option<Digests>,
    /// Messages by kind, in each direction.
    pub messages: [BTreeMap<&'static str, u64>; 2],
    /// FPDUs or PDUs in each direction.
    pub fpdus: [u64; 2],
    /// TCP payload bytes in each direction.
    pub bytes: [u64; 2],
    /// The direction of a Terminate.
    pub terminated: Option<Dir>,
    /// Violations.
    pub violations: u64,
    /// Bytes that are not in the capture, and their direction.
    pub lost: Option<(Dir, u64)>,
    /// Bytes of an incomplete FPDU, PDU or startup frame at the end, in each direction.
    pub unfinished: [usize; 2],
    /// `verbena pcap` joined it in the middle: its messages are counted by no rule, and not decoded.
    pub joined: bool,
    /// How it ended.
    pub ending: Ending,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [initiator, responder] = self.ends;
        write!(f, "stream {}: {initiator} > {responder}", self.stream)?;
        if let Some(revision) = self.revision {
            write!(f, ", MPA revision {revision}")?;
        }
        if let Some(terms) = &self.terms {
            write!(f, ", crc {}", on_off(terms.crc))?;
            let markers = match terms.markers {
                [false, false] => "off",
                [true, true] => "both ways",
                [true, false] => ">",
                [false, true] => "<",
            };
            write!(
                f,
                ", markers {markers}, extensions {}",
                on_off(terms.extensions)
            )?;
        }
        if let Some(digests) = &self.iscsi {
            write!(f, ", iSCSI, digests {digests}")?;
        }
        let unit = if self.iscsi.is_some() {
            "PDUs"
        } else {
            "FPDUs"
        };
        for dir in [Dir::ToResponder, Dir::ToInitiator] {
            let at = dir.index();
            let arrow = dir.arrow();
            write!(
                f,
                "\n  {arrow} {} bytes, {} {unit}",
                self.bytes[at], self.fpdus[at]
            )?;
            for (kind, count) in &self.messages[at] {
                write!(f, ", {count} {kind}")?;
            }
            if self.unfinished[at] > 0 {
                write!(f, ", {} bytes unfinished", self.unfinished[at])?;
            }
        }
        write!(f, "\n  ended: {}", self.describe())
    }
}

impl Summary {
    /// A stream at its beginning.
    pub fn new(stream: usize, ends: [SocketAddr; 2]) -> Summary {
        Summary {
            stream,
            ends,
            revision: None,
            terms: None,
            iscsi: None,
            messages: Default::default(),
            fpdus: [0; 2],
            bytes: [0; 2],
            terminated: None,
            violations: 0,
            lost: None,
            unfinished: [0; 2],
            joined: false,
            ending: Ending::Open,
        }
    }

    /// Records the end, unless the stream was rejected.
    pub fn end(&mut self, ending: Ending) {
        if self.ending != Ending::Rejected {
            self.ending = ending;
        }
    }

    /// The sender of this direction has closed it; `both` if the other was closed before.
    pub fn fin(&mut self, dir: Dir, both: bool) {
        self.end(if both {
            Ending::Closed
        } else {
            Ending::HalfClosed(dir)
        });
    }

    /// The sender of this direction reset the connection.
    pub fn reset(&mut self, dir: Dir) {
        if !matches!(self.ending, Ending::Closed) {
            self.end(Ending::Reset(dir));
        }
    }

    /// A direction cannot be parsed further. Only the first violation of a stream is recorded: later ones may be its consequence.
    pub fn report_violation(&mut self, dir: Dir, offset: u64, message: String, out: &mut Out<'_>) {
        if self.violations > 0 {
            return;
        }
        self.violations += 1;
        out.trouble("Violation", (self.stream, dir), offset, message);
    }

    /// Sender and receiver of a direction.
    pub fn addresses(&self, dir: Dir) -> (SocketAddr, SocketAddr) {
        let [initiator, responder] = self.ends;
        match dir {
            Dir::ToResponder => (initiator, responder),
            Dir::ToInitiator => (responder, initiator),
        }
    }

    fn describe(&self) -> String {
        let mut words = match &self.ending {
            Ending::Open => "not in this capture".to_owned(),
            Ending::Closed => "FIN from both sides".to_owned(),
            Ending::HalfClosed(dir) => format!("FIN from the {} only", sender(*dir)),
            Ending::Reset(dir) => format!("RST from the {}", sender(*dir)),
            Ending::Rejected => "rejected by the responder".to_owned(),
        };
        if let Some(dir) = self.terminated {
            words = format!("Terminate from the {}, then {words}", sender(dir));
        }
        if let Some((dir, bytes)) = self.lost {
            let sender = sender(dir);
            words = format!("{words}; the capture lost {bytes} bytes of the {sender}");
        }
        if self.joined {
            words = format!("{words}; captured from its middle on, and not decoded");
        }
        if self.violations > 0 {
            words = format!("{words}; {} protocol violation(s)", self.violations);
        }
        words
    }
}

fn sender(dir: Dir) -> &'static str {
    match dir {
        Dir::ToResponder => "initiator",
        Dir::ToInitiator => "responder",
    }
}

fn on_off(set: bool) -> &'static str {
    if set { "on" } else { "off" }
}
