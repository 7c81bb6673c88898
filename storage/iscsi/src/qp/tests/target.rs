//! A scripted target: it parses what the queue pair sent, PDU by PDU, and builds PDUs of a target. It checks what every PDU of an
//! initiator must have, digests and padding included; what it sends, valid or not, is up to the test.

use verbena_storage_wire::iscsi::{
    BHS_LEN, Bhs, DIGEST_LEN, DataIn, FromInitiator, Lengths, LoginResponse,
};
use verbena_storage_wire::iscsi::{
    LoginStatus, Lun, NO_TAG, NopIn, R2t, Residual, ScsiResponse, Service,
};
use verbena_storage_wire::iscsi::{Stage, Window, digest, pad};

use crate::terms::Terms;

/// A PDU of the initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) bhs: Bhs,
    pub(crate) pdu: FromInitiator,
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Target {
    pub(crate) terms: Terms,
    /// The next StatSN.
    pub(crate) stat_sn: u32,
    pub(crate) window: Window,
    pub(crate) received: Vec<Sent>,
    /// The tag of the last command.
    pub(crate) last_itt: u32,
}

/// An R2T with these fields.
pub(crate) fn r2t(itt: u32, ttt: u32, offset: u32, len: u32) -> R2t {
    R2t {
        lun: Lun::new(1).unwrap(),
        itt,
        ttt,
        stat_sn: 0,
        window: Window {
            exp_cmd_sn: 1,
            max_cmd_sn: 64,
        },
        r2t_sn: 0,
        offset,
        len,
    }
}

impl Target {
    pub(crate) fn new() -> Target {
        Target {
            terms: Terms::DEFAULT,
            stat_sn: 0x10,
            window: Window {
                exp_cmd_sn: 1,
                max_cmd_sn: 64,
            },
            received: Vec::new(),
            last_itt: NO_TAG,
        }
    }

    /// Takes all complete PDUs. Returns the rest.
    pub(crate) fn receive(&mut self, mut wire: Vec<u8>) -> Vec<u8> {
        while let Some(bhs) = wire.first_chunk::<BHS_LEN>().copied() {
            let (heads, datas) = (self.terms.header_digest, self.terms.data_digest);
            let lengths = Lengths::of(&bhs);
            let total = lengths.total(heads, datas);
            if wire.len() < total {
                break;
            }
            let pdu: Vec<u8> = wire.drain(..total).collect();
            let (head, mut rest) = pdu.split_at(BHS_LEN);
            if heads {
                assert_eq!(rest[..DIGEST_LEN], digest(head), "header digest");
                rest = &rest[DIGEST_LEN..];
            }
            let (data, rest) = rest.split_at(lengths.data as usize);
            let (padding, rest) = rest.split_at(pad(lengths.data) as usize);
            assert!(padding.iter().all(|byte| *byte == 0), "padding is zero");
            if datas && lengths.data > 0 {
                assert_eq!(*rest, digest(&[data, padding].concat()), "data digest");
            }
            assert!(lengths.data <= self.terms.max_send);
            assert_eq!(lengths.ahs, 0);
            let pdu = FromInitiator::parse(&bhs).unwrap();
            if let FromInitiator::ScsiCommand(command) = &pdu {
                self.last_itt = command.itt;
            }
            self.received.push(Sent {
                bhs,
                pdu,
                data: data.to_vec(),
            });
        }
        wire
    }

    /// A header and data as encoded on the wire.
    pub(crate) fn pdu(&self, bhs: &Bhs, data: &[u8]) -> Vec<u8> {
        assert_eq!(Lengths::of(bhs).data as usize, data.len());
        let mut bytes = bhs.to_vec();
        if self.terms.header_digest {
            bytes.extend(digest(bhs));
        }
        let mut padded = data.to_vec();
        padded.resize(data.len() + pad(data.len() as u32) as usize, 0);
        bytes.extend(&padded);
        if self.terms.data_digest && !data.is_empty() {
            bytes.extend(digest(&padded));
        }
        bytes
    }

    /// Takes the next StatSN.
    pub(crate) fn status(&mut self) -> u32 {
        self.stat_sn = self.stat_sn.wrapping_add(1);
        self.stat_sn.wrapping_sub(1)
    }

    pub(crate) fn login(&mut self) -> Vec<u8> {
        let login = LoginResponse {
            more: false,
            csg: Stage::Operational,
            nsg: Some(Stage::FullFeature),
            version_max: 0,
            version_active: 0,
            data_len: 0,
            isid: [0x80, 0, 0, 0, 0, 1],
            tsih: 1,
            itt: 0,
            stat_sn: self.status(),
            window: self.window,
            status: LoginStatus::Success,
        };
        self.pdu(&login.emit(), &[])
    }

    pub(crate) fn data_in_header(&mut self, itt: u32, offset: u32, len: usize) -> DataIn {
        DataIn {
            is_final: false,
            acknowledge: false,
            status: None,
            residual: Residual::None,
            data_len: len as u32,
            lun: Lun::new(0).unwrap(),
            itt,
            ttt: NO_TAG,
            stat_sn: 0,
            window: self.window,
            data_sn: 0,
            offset,
        }
    }

    /// Data-In without status.
    pub(crate) fn data_in(&mut self, itt: u32, offset: u32, data: &[u8]) -> Vec<u8> {
        let pdu = self.data_in_header(itt, offset, data.len());
        self.pdu(&pdu.emit(), data)
    }

    /// The last Data-In, with good status.
    pub(crate) fn data_in_status(&mut self, itt: u32, offset: u32, data: &[u8]) -> Vec<u8> {
        let stat_sn = self.status();
        let pdu = DataIn {
            is_final: true,
            status: Some(0),
            stat_sn,
            ..self.data_in_header(itt, offset, data.len())
        };
        self.pdu(&pdu.emit(), data)
    }

    pub(crate) fn r2t(&mut self, itt: u32, ttt: u32, offset: u32, len: u32) -> Vec<u8> {
        let pdu = R2t {
            stat_sn: self.stat_sn,
            window: self.window,
            ..r2t(itt, ttt, offset, len)
        };
        self.pdu(&pdu.emit(), &[])
    }

    pub(crate) fn response_header(&mut self, itt: u32) -> ScsiResponse {
        ScsiResponse {
            response: Service::Completed,
            status: 0,
            residual: Residual::None,
            bidi_residual: Residual::None,
            data_len: 0,
            itt,
            snack: 0,
            stat_sn: self.status(),
            window: self.window,
            exp_data_sn: 0,
        }
    }

    /// A good response.
    pub(crate) fn response(&mut self, itt: u32) -> Vec<u8> {
        let pdu = self.response_header(itt);
        self.pdu(&pdu.emit(), &[])
    }

    /// A check condition.
    pub(crate) fn sense(&mut self, itt: u32, sense: &[u8]) -> Vec<u8> {
        let pdu = ScsiResponse {
            status: 2,
            data_len: sense.len() as u32,
            ..self.response_header(itt)
        };
        self.pdu(&pdu.emit(), sense)
    }

    /// An unsolicited NOP-In, which consumes no StatSN; it carries the command window.
    pub(crate) fn nop(&mut self) -> Vec<u8> {
        let pdu = NopIn {
            data_len: 0,
            lun: Lun::new(0).unwrap(),
            itt: NO_TAG,
            ttt: NO_TAG,
            stat_sn: self.stat_sn,
            window: self.window,
        };
        self.pdu(&pdu.emit(), &[])
    }
}
