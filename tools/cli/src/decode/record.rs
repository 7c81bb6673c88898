//! The records of the decoder: one per startup frame, message, PDU, violation or loss. Both printers use the same records, so that text and
//! JSON have the same contents.

mod detail;
mod pdu;

pub use detail::Detail;
pub use pdu::{Pdu, Verdict};

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};
use verbena_wire::ddp::Header;
use verbena_wire::mpa::Frame;

/// A direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Dir {
    /// From the initiator, which sent the Request.
    #[serde(rename = "i2r")]
    ToResponder,
    /// From the responder.
    #[serde(rename = "r2i")]
    ToInitiator,
}

impl Dir {
    /// The direction as an index: 0 is towards the responder.
    pub fn index(self) -> usize {
        match self {
            Dir::ToResponder => 0,
            Dir::ToInitiator => 1,
        }
    }

    /// The other direction.
    pub fn reverse(self) -> Dir {
        match self {
            Dir::ToResponder => Dir::ToInitiator,
            Dir::ToInitiator => Dir::ToResponder,
        }
    }

    /// The arrow of the text form.
    pub fn arrow(self) -> char {
        match self {
            Dir::ToResponder => '>',
            Dir::ToInitiator => '<',
        }
    }
}

/// One line of output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Since the first packet of the capture.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
    /// The stream's number, from 0.
    pub stream: usize,
    /// Its direction.
    pub dir: Dir,
    /// The kind of record.
    pub kind: &'static str,
    /// Segments of the message.
    pub segments: u32,
    /// Payload bytes of the message, DDP headers not counted.
    pub len: u64,
    /// The offset of its first byte in the direction's TCP stream; of RoCEv2 the packet sequence number.
    pub offset: u64,
    /// Fields of the kind.
    #[serde(flatten)]
    pub body: Body,
}

impl Record {
    /// A violation, or bytes that are not in the capture.
    pub fn trouble(
        time: Duration,
        (stream, dir): (usize, Dir),
        kind: &'static str,
        offset: u64,
        message: String,
    ) -> Record {
        Record {
            time,
            stream,
            dir,
            kind,
            segments: 0,
            len: 0,
            offset,
            body: Body::Trouble { message },
        }
    }
}

/// The destination of records, and their time.
pub struct Out<'a> {
    /// The time of capture of the current packet.
    pub time: Duration,
    /// The records found.
    pub records: &'a mut Vec<Record>,
}

impl Out<'_> {
    /// Adds a violation or a loss in a direction of a stream.
    pub fn trouble(&mut self, kind: &'static str, at: (usize, Dir), offset: u64, message: String) {
        let record = Record::trouble(self.time, at, kind, offset, message);
        self.records.push(record);
    }
}

/// The fields that depend on the kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Body {
    /// A Request or Reply.
    Startup(Startup),
    /// An RDMAP message.
    Message(Message),
    /// A single FPDU.
    Fpdu(Fpdu),
    /// An iSCSI PDU.
    Pdu(Box<Pdu>),
    /// A RoCEv2 packet or message.
    Roce(Box<RoceFields>),
    /// A violation, or bytes that are not in the capture.
    Trouble {
        /// The description.
        message: String,
    },
}

/// A Request or Reply.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Startup {
    /// The sender: address and port.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// 1 or 2.
    pub revision: u8,
    /// C.
    pub crc: bool,
    /// M.
    pub markers: bool,
    /// R.
    pub reject: bool,
    /// The reserved flag bits, which Verbena uses.
    pub reserved: u8,
    /// Inbound read depth; absent without the enhanced block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ird: Option<u16>,
    /// Outbound read depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ord: Option<u16>,
    /// The peer-to-peer model, with the ready-to-receive messages it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtr: Option<String>,
    /// In hexadecimal, without the enhanced block.
    pub private_data: String,
}

impl Startup {
    /// The frame that `from` sent to `to`.
    pub fn new(frame: &Frame<'_>, from: SocketAddr, to: SocketAddr) -> Startup {
        let (flags, block) = (frame.flags(), frame.enhanced());
        Startup {
            from: from.to_string(),
            to: to.to_string(),
            revision: frame.revision().get(),
            crc: flags.crc,
            markers: flags.markers,
            reject: flags.reject,
            reserved: flags.reserved,
            ird: block.map(|b| b.ird.get()),
            ord: block.map(|b| b.ord.get()),
            rtr: block.filter(|b| b.peer_to_peer).map(|b| b.rtr.to_string()),
            private_data: hex(frame.private_data()),
        }
    }
}

/// An RDMAP message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// Its destination.
    #[serde(flatten)]
    pub place: Destination,
    /// The fields of its header.
    #[serde(flatten)]
    pub detail: Detail,
    /// It was the RTR message (RFC 6581 §9.2).
    #[serde(skip_serializing_if = "is_false")]
    pub rtr: bool,
    /// The receiver discards it, and it will be sent again (docs/extensions.md).
    #[serde(skip_serializing_if = "is_false")]
    pub discarded: bool,
    /// The first payload bytes in hexadecimal, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// The destination of a segment (RFC 5041 §4).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Destination {
    /// A tagged buffer.
    Tagged {
        /// The STag.
        stag: String,
        /// The tagged offset of the first byte.
        to: String,
    },
    /// An untagged buffer.
    Untagged {
        /// The queue number.
        qn: u32,
        /// The message sequence number.
        msn: u32,
        /// The message offset of the first byte.
        mo: u32,
    },
}

impl From<&Header> for Destination {
    fn from(header: &Header) -> Destination {
        match header {
            Header::Tagged(h) => Destination::Tagged {
                stag: h.stag.to_string(),
                to: h.to.to_string(),
            },
            Header::Untagged(h) => Destination::Untagged {
                qn: h.qn.get(),
                msn: h.msn.get(),
                mo: h.mo.get(),
            },
        }
    }
}

/// A single FPDU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fpdu {
    /// Length of the ULPDU.
    pub ulpdu: usize,
    /// Its RDMAP message; absent if the header cannot be parsed, like all that follows from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opcode: Option<&'static str>,
    /// T.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tagged: Option<bool>,
    /// L.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<bool>,
    /// Its destination.
    #[serde(flatten)]
    pub place: Option<Destination>,
    /// Bytes of padding.
    pub pad: usize,
    /// The checksum field in hexadecimal, in the order of the wire.
    pub crc: String,
    /// Whether it is the checksum of the bytes; without negotiated checksums a field of zeros is common.
    pub crc_ok: bool,
}

/// A RoCEv2 packet, or the last one of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoceFields {
    /// Its opcode.
    pub opcode: u8,
    /// The queue pair it is for.
    pub qpn: String,
    /// Its packet sequence number.
    pub psn: u32,
    /// The fields of its headers.
    pub words: String,
    /// What is unusual about its sequence number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The sender asks for an acknowledgement.
    pub ack_request: bool,
    /// Whether its ICRC is right.
    pub icrc_ok: bool,
    /// The first payload bytes in hexadecimal, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
