//! A scripted target: a queue pair in another protection domain, which sends, receives, and moves data by RDMA.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbena::low::{
    Cq, Data, Flags, Pd, Qp, QpOptions, QpState, RecvWr, RemoteAddr, SendOp, SendWr, Wc, WcOp,
};
use verbena::{Access, Device, Listener, Memory, Status};
use verbena_storage_wire::iscsi::{
    BHS_LEN, Bhs, FromInitiator, Lengths, LoginResponse, LoginStatus, Lun, NO_TAG, NopIn, Residual,
    ScsiResponse, Service, TaskOutcome, TaskResponse, Window,
};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};
use verbena_wire::Stag;
use verbena_wire::To;

use super::super::{Iser, IserDial, IserOptions};

const SLOTS: u64 = 64;
const SLOT: usize = 9000;
const PATIENCE: Duration = Duration::from_secs(5);

/// The target.
pub(super) struct Peer {
    qp: Qp,
    cq: Cq,
    receives: Memory,
    data: Memory,
    sends: Cell<usize>,
    /// Completions of receives that came while another one was awaited.
    received: RefCell<VecDeque<Wc>>,
    /// Private data of the link's connection request.
    pub(super) private: Vec<u8>,
    pub(super) device: Device,
    /// The link's protection domain, for memory of its commands.
    pub(super) initiator_pd: Pd,
}

/// A link and its target, connected.
pub(super) fn pair(how: IserOptions) -> (Iser, Peer) {
    let device = Device::open().unwrap();
    let ours = device.pd().unwrap();
    pair_in(&device, &ours, how)
}

/// As [`pair`], with a given device and protection domain.
pub(super) fn pair_in(device: &Device, ours: &Pd, how: IserOptions) -> (Iser, Peer) {
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let dialled = scope.spawn(|| dialled(device, ours, to, how));
        let peer = Peer::accept(device, &listener, ours);
        (dialled.join().unwrap(), peer)
    })
}

fn dialled(device: &Device, ours: &Pd, to: SocketAddr, how: IserOptions) -> Iser {
    let mut dial = IserDial::new(device, ours, to, how).unwrap();
    loop {
        if let Some(link) = dial.finish().unwrap() {
            return link;
        }
        std::thread::yield_now();
    }
}

impl Peer {
    /// The target's side of the next connection.
    pub(super) fn accept(device: &Device, listener: &Listener, initiator_pd: &Pd) -> Peer {
        let request = listener.next().wait().unwrap();
        let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
        let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
        qp.modify(QpState::Init).unwrap();
        let peer = Peer {
            qp,
            cq,
            receives: pd.memory(SLOTS as usize * SLOT, Access::ALL).unwrap(),
            data: pd.memory(SLOTS as usize * SLOT, Access::ALL).unwrap(),
            sends: Cell::new(SLOT),
            received: RefCell::default(),
            private: request.private_data().to_vec(),
            device: device.clone(),
            initiator_pd: initiator_pd.clone(),
        };
        (0..SLOTS).for_each(|slot| peer.post(slot));
        request.accept_on(&peer.qp, &[]).unwrap().wait().unwrap();
        peer
    }

    /// Accepts what the login offers, except for unsolicited data. The response has StatSN 1.
    pub(super) fn log_in(&mut self) {
        let (_, pdu, text) = self.receive_pdu();
        let FromInitiator::LoginRequest(request) = pdu else {
            panic!("{pdu}")
        };
        let text = text[..request.data_len as usize].split(|byte| *byte == 0);
        let declared = ["InitiatorName", "SessionType", "TargetName"];
        let mut answer = Vec::new();
        for pair in text.filter(|pair| !pair.is_empty()) {
            let (key, value) = str::from_utf8(pair).unwrap().split_once('=').unwrap();
            let value = match key {
                "ImmediateData" => "No",
                "InitialR2T" => "Yes",
                "TaggedBufferForSolicitedDataOnly" => "NotUnderstood",
                _ => value,
            };
            if !declared.contains(&key) {
                answer.extend_from_slice(format!("{key}={value}\0").as_bytes());
            }
        }
        let response = LoginResponse {
            more: false,
            csg: request.csg,
            nsg: request.nsg,
            version_max: 0,
            version_active: 0,
            data_len: answer.len() as u32,
            isid: request.isid,
            tsih: 9,
            itt: request.itt,
            stat_sn: 1,
            window: window(64),
            status: LoginStatus::Success,
        };
        self.send_pdu(&response.emit(), &answer);
    }

    fn post(&self, slot: u64) {
        let scatter = [self.receives.sge(slot as usize * SLOT, SLOT).unwrap()];
        let (id, scatter) = (slot, &scatter[..]);
        self.qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
    }

    /// The next completion of this kind, which has to be a success.
    fn until(&self, op: WcOp) -> Wc {
        let wc = self.ended(op);
        assert_eq!(wc.status, Status::Success);
        wc
    }

    /// The next completion of this kind, with any status.
    fn ended(&self, op: WcOp) -> Wc {
        if op == WcOp::Receive
            && let Some(wc) = self.received.borrow_mut().pop_front()
        {
            return wc;
        }
        let end = Instant::now() + PATIENCE;
        let mut one = [Wc::default()];
        while Instant::now() < end {
            if self.cq.poll(&mut one) == 0 {
                std::thread::yield_now();
            } else if one[0].op == op {
                return one[0];
            } else if one[0].op == WcOp::Receive {
                self.received.borrow_mut().push_back(one[0]);
            }
        }
        panic!("no {op:?}");
    }

    /// Whether a Send of the link has arrived.
    pub(super) fn has_received(&self) -> bool {
        let (mut received, mut one) = (self.received.borrow_mut(), [Wc::default()]);
        while self.cq.poll(&mut one) == 1 {
            received.extend(one.iter().filter(|wc| wc.op == WcOp::Receive));
        }
        !received.is_empty()
    }

    /// The next Send of the link.
    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let wc = self.until(WcOp::Receive);
        let mut bytes = vec![0; wc.len as usize];
        let at = wc.id as usize * SLOT;
        self.receives.read_at(at, &mut bytes).unwrap();
        self.post(wc.id);
        bytes
    }

    /// The next Send of the link, parsed.
    pub(super) fn receive_pdu(&mut self) -> (IserHeader, FromInitiator, Vec<u8>) {
        let bytes = self.bytes();
        let header = IserHeader::parse(&bytes).unwrap();
        let bhs: Bhs = bytes[HEADER_LEN..HEADER_LEN + BHS_LEN].try_into().unwrap();
        let data = bytes[HEADER_LEN + BHS_LEN..].to_vec();
        assert!(data.len() >= Lengths::of(&bhs).data as usize);
        (header, FromInitiator::parse(&bhs).unwrap(), data)
    }

    pub(super) fn work(&self, op: SendOp, data: Data<'_>) {
        let wr = SendWr {
            id: 0,
            op,
            flags: Flags::SIGNALED,
            data,
        };
        self.qp.post_send(&[wr]).unwrap();
    }

    /// Sends these bytes.
    pub(super) fn raw(&self, bytes: &[u8], invalidate: Option<Stag>) {
        let op = SendOp::Send {
            invalidate,
            immediate: None,
        };
        // In turn; the first one is for RDMA operations.
        let at = self.sends.get();
        let last = (SLOTS as usize - 1) * SLOT;
        self.sends.set(if at == last { SLOT } else { at + SLOT });
        self.data.write_at(at, bytes).unwrap();
        self.work(op, Data::Gather(&[self.data.sge(at, bytes.len()).unwrap()]));
    }

    /// Sends a PDU.
    pub(super) fn send_pdu(&self, bhs: &Bhs, data: &[u8]) {
        let header = IserHeader::default().emit();
        self.raw(&[&header[..], bhs, data].concat(), None);
    }

    /// The response to a command, with a window up to `max_cmd_sn`.
    pub(super) fn respond(&self, itt: u32, stat_sn: u32, max_cmd_sn: u32, residual: Residual) {
        self.send_pdu(&response(itt, stat_sn, max_cmd_sn, residual).emit(), &[]);
    }

    /// The same by Send with Invalidate.
    pub(super) fn respond_invalidating(&self, itt: u32, stat_sn: u32, max_cmd_sn: u32, stag: Stag) {
        let response = response(itt, stat_sn, max_cmd_sn, Residual::None);
        let header = IserHeader::default().emit();
        self.raw(&[&header[..], &response.emit()].concat(), Some(stag));
    }

    /// The answer to a task management request.
    pub(super) fn answer(&self, itt: u32, stat_sn: u32, response: TaskOutcome) {
        let response = TaskResponse {
            response,
            itt,
            stat_sn,
            window: window(64),
        };
        self.send_pdu(&response.emit(), &[]);
    }

    /// The answer to a NOP-Out.
    pub(super) fn pong(&self, itt: u32, stat_sn: u32, max_cmd_sn: u32) {
        let nop = NopIn {
            data_len: 0,
            lun: Lun::default(),
            itt,
            ttt: NO_TAG,
            stat_sn,
            window: window(max_cmd_sn),
        };
        self.send_pdu(&nop.emit(), &[]);
    }

    fn remote((stag, base): (Stag, u64)) -> RemoteAddr {
        RemoteAddr {
            stag,
            to: To::new(base),
        }
    }

    /// RDMA Write into memory of a command.
    pub(super) fn write(&self, to: (Stag, u64), bytes: &[u8]) {
        assert_eq!(self.write_status(to, bytes), Status::Success);
    }

    /// RDMA Write with any status.
    pub(super) fn write_status(&self, to: (Stag, u64), bytes: &[u8]) -> Status {
        self.data.write_at(0, bytes).unwrap();
        let op = SendOp::Write {
            remote: Peer::remote(to),
            immediate: None,
        };
        self.work(op, Data::Gather(&[self.data.sge(0, bytes.len()).unwrap()]));
        self.ended(WcOp::Write).status
    }

    /// RDMA Read with any status.
    pub(super) fn read_status(&self, from: (Stag, u64), len: usize) -> Status {
        let op = SendOp::Read {
            remote: Peer::remote(from),
            local_invalidate: None,
        };
        self.work(op, Data::Gather(&[self.data.sge(0, len).unwrap()]));
        self.ended(WcOp::Read).status
    }

    /// RDMA Read from memory of a command.
    pub(super) fn read(&self, from: (Stag, u64), len: usize) -> Vec<u8> {
        assert_eq!(self.read_status(from, len), Status::Success);
        let mut bytes = vec![0; len];
        self.data.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Disconnects.
    pub(super) fn disconnect(&self) {
        self.qp.disconnect().unwrap();
    }
}

fn window(max_cmd_sn: u32) -> Window {
    Window {
        exp_cmd_sn: 1,
        max_cmd_sn,
    }
}

pub(super) fn response(
    itt: u32,
    stat_sn: u32,
    max_cmd_sn: u32,
    residual: Residual,
) -> ScsiResponse {
    ScsiResponse {
        response: Service::Completed,
        status: 0,
        residual,
        bidi_residual: Residual::None,
        data_len: 0,
        itt,
        snack: 0,
        stat_sn,
        window: window(max_cmd_sn),
        exp_data_sn: 0,
    }
}
