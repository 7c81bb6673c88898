//! A whole message of the connection manager, by its kind. It travels in a management datagram of its own, whose transaction its answer repeats.

use core::fmt;

use super::{Apr, BODY, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use crate::Malformed;
use crate::roce::mad::MadHeader;

/// A message of the connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a message lives for one call and is not stored"
)]
pub enum CmMessage<'a> {
    /// Request for a connection.
    Req(Req<'a>),
    /// Message receipt acknowledgement.
    Mra(Mra<'a>),
    /// Refusal.
    Rej(Rej<'a>),
    /// Reply that accepts.
    Rep(Rep<'a>),
    /// Ready to use.
    Rtu(Rtu<'a>),
    /// Request to end a connection.
    Dreq(Dreq<'a>),
    /// Reply to it.
    Drep(Drep<'a>),
    /// Asks for the queue pair of a service.
    SidrReq(SidrReq<'a>),
    /// The queue pair of a service.
    SidrRep(SidrRep<'a>),
    /// Request to load an alternate path.
    Lap(Lap<'a>),
    /// Reply to it.
    Apr(Apr<'a>),
}

impl<'a> CmMessage<'a> {
    /// Reads a management datagram; the first value is its transaction.
    pub fn parse(mad: &'a [u8]) -> Result<(u64, Self), Malformed> {
        if mad.len() < MadHeader::MAD_LEN {
            return Err(Malformed::Truncated {
                what: "management datagram",
                need: MadHeader::MAD_LEN,
                got: mad.len(),
            });
        }
        let header = MadHeader::parse(mad)?;
        let body = mad.get(MadHeader::LEN..).unwrap_or_default();
        let message = match header.attribute {
            0x10 => Self::Req(Req::parse(body)?),
            0x11 => Self::Mra(Mra::parse(body)?),
            0x12 => Self::Rej(Rej::parse(body)?),
            0x13 => Self::Rep(Rep::parse(body)?),
            0x14 => Self::Rtu(Rtu::parse(body)?),
            0x15 => Self::Dreq(Dreq::parse(body)?),
            0x16 => Self::Drep(Drep::parse(body)?),
            0x17 => Self::SidrReq(SidrReq::parse(body)?),
            0x18 => Self::SidrRep(SidrRep::parse(body)?),
            0x19 => Self::Lap(Lap::parse(body)?),
            0x1a => Self::Apr(Apr::parse(body)?),
            got => {
                return Err(Malformed::Mad {
                    what: "MAD attribute",
                    got: got.into(),
                });
            }
        };
        Ok((header.transaction, message))
    }

    /// The management datagram.
    pub fn emit(&self, transaction: u64) -> [u8; MadHeader::MAD_LEN] {
        let body: [u8; BODY] = match self {
            Self::Req(req) => req.emit(),
            Self::Mra(mra) => mra.emit(),
            Self::Rej(rej) => rej.emit(),
            Self::Rep(rep) => rep.emit(),
            Self::Rtu(rtu) => rtu.emit(),
            Self::Dreq(dreq) => dreq.emit(),
            Self::Drep(drep) => drep.emit(),
            Self::SidrReq(req) => req.emit(),
            Self::SidrRep(rep) => rep.emit(),
            Self::Lap(lap) => lap.emit(),
            Self::Apr(apr) => apr.emit(),
        };
        let header = MadHeader {
            transaction,
            attribute: self.attribute(),
        };
        let mut mad = [0; MadHeader::MAD_LEN];
        for (to, from) in mad.iter_mut().zip(header.emit().iter().chain(&body)) {
            *to = *from;
        }
        mad
    }

    /// The attribute of the management datagram.
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => 0x10,
            Self::Mra(_) => 0x11,
            Self::Rej(_) => 0x12,
            Self::Rep(_) => 0x13,
            Self::Rtu(_) => 0x14,
            Self::Dreq(_) => 0x15,
            Self::Drep(_) => 0x16,
            Self::SidrReq(_) => 0x17,
            Self::SidrRep(_) => 0x18,
            Self::Lap(_) => 0x19,
            Self::Apr(_) => 0x1a,
        }
    }
}

impl fmt::Display for CmMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Req(req) => write!(
                f,
                "CM REQ id={:#010x} service={:#x} qpn={} psn={}",
                req.local_id, req.service, req.qpn, req.starting_psn
            ),
            Self::Mra(mra) => write!(
                f,
                "CM MRA id={:#010x} of={:#010x} timeout={}",
                mra.local_id, mra.remote_id, mra.service_timeout
            ),
            Self::Rej(rej) => write!(
                f,
                "CM REJ id={:#010x} of={:#010x} {}",
                rej.local_id, rej.remote_id, rej.reason
            ),
            Self::Rep(rep) => write!(
                f,
                "CM REP id={:#010x} of={:#010x} qpn={} psn={}",
                rep.local_id, rep.remote_id, rep.qpn, rep.starting_psn
            ),
            Self::Rtu(rtu) => {
                write!(
                    f,
                    "CM RTU id={:#010x} of={:#010x}",
                    rtu.local_id, rtu.remote_id
                )
            }
            Self::Dreq(dreq) => write!(
                f,
                "CM DREQ id={:#010x} of={:#010x} qpn={}",
                dreq.local_id, dreq.remote_id, dreq.remote_qpn
            ),
            Self::Drep(drep) => {
                write!(
                    f,
                    "CM DREP id={:#010x} of={:#010x}",
                    drep.local_id, drep.remote_id
                )
            }
            Self::SidrReq(req) => write!(
                f,
                "CM SIDR_REQ id={:#010x} service={:#x}",
                req.request_id, req.service
            ),
            Self::SidrRep(rep) => write!(
                f,
                "CM SIDR_REP id={:#010x} status={} qpn={} qkey={:#010x}",
                rep.request_id, rep.status, rep.qpn, rep.qkey
            ),
            Self::Lap(lap) => {
                write!(
                    f,
                    "CM LAP id={:#010x} of={:#010x}",
                    lap.local_id, lap.remote_id
                )
            }
            Self::Apr(apr) => write!(
                f,
                "CM APR id={:#010x} of={:#010x} status={}",
                apr.local_id, apr.remote_id, apr.status
            ),
        }
    }
}
