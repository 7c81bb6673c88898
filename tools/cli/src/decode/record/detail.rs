//! The fields of each kind of RDMAP message, besides its destination. Every field has the name of the RFC or docs/extensions.md, and codes
//! are shown in words. The same-host token of CAPS is secret and not shown, only its presence.

use core::fmt;

use serde::Serialize;
use verbena_wire::Stag;
use verbena_wire::ddp::Header;
use verbena_wire::ext::{Control, ReadV2Request};
use verbena_wire::rdmap::{
    AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, Phase, ReadRequest, Terminate,
};

/// The fields of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "fields are the wire's own, named as there")]
pub enum Detail {
    /// A Send or an immediate.
    Send {
        #[serde(skip_serializing_if = "Option::is_none")]
        invalidate: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        immediate: Option<String>,
    },
    /// Read Request.
    Read {
        size: u32,
        source_stag: String,
        source_to: String,
        sink_stag: String,
        sink_to: String,
    },
    /// Read V2 Request.
    ReadV2 {
        size: u32,
        source_stag: String,
        source_to: String,
    },
    /// Atomic Request.
    Atomic {
        id: u32,
        operation: String,
        source_stag: String,
        source_to: String,
    },
    /// Atomic Response.
    AtomicResponse { id: u32, original: String },
    /// Terminate.
    Terminate {
        cause: String,
        layer: u8,
        etype: u8,
        code: u8,
        dialect: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        offender: Option<String>,
    },
    /// A control message about a request.
    Request {
        rsn: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        timer_us: Option<u128>,
    },
    /// ACTIVE.
    Active { psn: u32 },
    /// SRQ.
    Srq { srqn: u32 },
    /// CAPS.
    Caps { caps: String },
    /// No fields.
    Plain {},
}

impl Detail {
    /// Parses the body of a message's first segment; returns it with the name of the message.
    pub fn of(header: &Header, body: &[u8], phase: Phase) -> (&'static str, Detail) {
        let opcode = header.opcode();
        let plain = (opcode.name(), Detail::Plain {});
        let Header::Untagged(untagged) = header else {
            return plain;
        };
        let detail = match opcode {
            Opcode::ReadRequest => ReadRequest::parse(body).ok().map(read),
            Opcode::ReadV2Request => ReadV2Request::parse(body).ok().map(read_v2),
            Opcode::AtomicRequest => AtomicRequest::parse(body).ok().map(atomic),
            Opcode::AtomicResponse => AtomicResponse::parse(body).ok().map(atomic_response),
            Opcode::Terminate => Terminate::parse(body, phase).ok().map(terminate),
            Opcode::Control => {
                return Control::parse(untagged.ulp, body).map_or(plain, control);
            }
            _ => Some(send(opcode, untagged.ulp, body)),
        };
        (opcode.name(), detail.unwrap_or(Detail::Plain {}))
    }
}

fn send(opcode: Opcode, ulp: u32, body: &[u8]) -> Detail {
    let carries = matches!(
        opcode,
        Opcode::Immediate | Opcode::ImmediateSe | Opcode::SendImm { .. }
    );
    let front = body.get(..Immediate::LEN).filter(|_| carries);
    Detail::Send {
        invalidate: opcode.invalidates().then(|| Stag::new(ulp).to_string()),
        immediate: front.map(super::hex),
    }
}

fn read(r: ReadRequest) -> Detail {
    Detail::Read {
        size: r.size,
        source_stag: r.source_stag.to_string(),
        source_to: r.source_to.to_string(),
        sink_stag: r.sink_stag.to_string(),
        sink_to: r.sink_to.to_string(),
    }
}

fn read_v2(r: ReadV2Request) -> Detail {
    Detail::ReadV2 {
        size: r.size,
        source_stag: r.source_stag.to_string(),
        source_to: r.source_to.to_string(),
    }
}

fn atomic(r: AtomicRequest) -> Detail {
    Detail::Atomic {
        id: r.id,
        operation: r.op.to_string(),
        source_stag: r.stag.to_string(),
        source_to: r.to.to_string(),
    }
}

fn atomic_response(r: AtomicResponse) -> Detail {
    Detail::AtomicResponse {
        id: r.id,
        original: format!("{:#x}", r.original),
    }
}

fn terminate((terminate, dialect): (Terminate, Dialect)) -> Detail {
    let (layer, etype, code) = terminate.cause.codes();
    Detail::Terminate {
        cause: terminate.cause.to_string(),
        layer,
        etype,
        code,
        dialect: match dialect {
            Dialect::Rfc => "rfc",
            Dialect::Siw => "siw",
        },
        offender: terminate.segment.map(|echo| echo.to_string()),
    }
}

fn control(control: Control) -> (&'static str, Detail) {
    let about = |rsn: verbena_wire::Rsn| Detail::Request {
        rsn: rsn.get(),
        timer_us: None,
    };
    match control {
        Control::Caps(caps) => (
            "Caps",
            Detail::Caps {
                caps: caps.to_string(),
            },
        ),
        Control::Ack(rsn) => ("Ack", about(rsn)),
        Control::Ready(rsn) => ("Ready", about(rsn)),
        Control::Resume(rsn) => ("Resume", about(rsn)),
        Control::Rnr { rsn, timer } => (
            "Rnr",
            Detail::Request {
                rsn: rsn.get(),
                timer_us: Some(timer.duration().as_micros()),
            },
        ),
        Control::Active { psn } => ("Active", Detail::Active { psn: psn.get() }),
        Control::Srq(number) => ("Srq", Detail::Srq { srqn: number.get() }),
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Detail::Send {
                invalidate,
                immediate,
            } => {
                if let Some(stag) = invalidate {
                    write!(f, " invalidate {stag}")?;
                }
                match immediate {
                    Some(data) => write!(f, " immediate {data}"),
                    None => Ok(()),
                }
            }
            Detail::Read {
                size,
                source_stag,
                source_to,
                sink_stag,
                sink_to,
            } => write!(
                f,
                " asks {size} from {source_stag}+{source_to} into {sink_stag}+{sink_to}"
            ),
            Detail::ReadV2 {
                size,
                source_stag,
                source_to,
            } => write!(f, " asks {size} from {source_stag}+{source_to}"),
            Detail::Atomic {
                id,
                operation,
                source_stag,
                source_to,
            } => write!(f, " id {id:#x} {operation} at {source_stag}+{source_to}"),
            Detail::AtomicResponse { id, original } => write!(f, " id {id:#x} original {original}"),
            Detail::Terminate {
                cause,
                layer,
                etype,
                code,
                dialect,
                offender,
            } => {
                write!(
                    f,
                    " \"{cause}\" (layer {layer} type {etype} code {code:#04x}"
                )?;
                f.write_str(if *dialect == "siw" {
                    ", siw's byte layout)"
                } else {
                    ")"
                })?;
                match offender {
                    Some(segment) => write!(f, " for {segment}"),
                    None => Ok(()),
                }
            }
            Detail::Request { rsn, timer_us } => {
                write!(f, " rsn {rsn}")?;
                match timer_us {
                    Some(micros) => write!(f, " timer {micros} us"),
                    None => Ok(()),
                }
            }
            Detail::Active { psn } => write!(f, " psn {psn:#08x}"),
            Detail::Srq { srqn } => write!(f, " number {srqn}"),
            Detail::Caps { caps } => write!(f, " {caps}"),
            Detail::Plain {} => Ok(()),
        }
    }
}
