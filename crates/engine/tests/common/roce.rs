//! A scripted peer that speaks RoCEv2 from UDP port 4791 of an address of its own.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use verbena_testing::WAIT_LIMIT;
use verbena_wire::roce::cm::{CmMessage, CmPath, CmTransport, CmaHeader, Req};
use verbena_wire::roce::{
    Deth, ICRC_LEN, MadHeader, Operation, Packet, Path, Psn, Qpn, icrc_over_socket,
};

pub const ROCE_PORT: u16 = 4791;
pub const QP1: Qpn = Qpn::wrapping(1);

pub type Mad = [u8; MadHeader::MAD_LEN];

/// A peer that is played by the test.
pub struct Peer {
    pub socket: UdpSocket,
    pub at: SocketAddr,
    psn: u32,
}

impl Peer {
    /// At port 4791, where it gets the answers.
    pub fn new(address: IpAddr) -> Peer {
        Peer::bind((address, ROCE_PORT).into())
    }

    /// At any port: the answers go to port 4791 of the address, and not to it.
    pub fn without_answers(address: IpAddr) -> Peer {
        Peer::bind((address, 0).into())
    }

    fn bind(at: SocketAddr) -> Peer {
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        Peer {
            at: socket.local_addr().unwrap(),
            socket,
            psn: 0,
        }
    }

    pub fn send_mad(&mut self, to: IpAddr, mad: &Mad) {
        let deth = Deth {
            qkey: MadHeader::QKEY,
            src_qpn: QP1,
        };
        let packet = Packet {
            payload: mad,
            ..Packet::new(
                Operation::Datagram(deth, None),
                QP1,
                Psn::wrapping(self.psn),
            )
        };
        self.psn += 1;
        self.send_packet(to, &packet);
    }

    pub fn send_packet(&self, to: IpAddr, packet: &Packet<'_>) {
        let (mut bytes, icrc) = self.emit(to, packet);
        bytes.extend_from_slice(&icrc);
        self.send_bytes(to, &bytes);
    }

    /// With a wrong ICRC.
    pub fn send_damaged(&self, to: IpAddr, packet: &Packet<'_>) {
        let (mut bytes, icrc) = self.emit(to, packet);
        bytes.extend_from_slice(&icrc.map(|byte| !byte));
        self.send_bytes(to, &bytes);
    }

    /// The bytes before the ICRC, and the ICRC.
    fn emit(&self, to: IpAddr, packet: &Packet<'_>) -> (Vec<u8>, [u8; ICRC_LEN]) {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        let path = Path {
            src: self.at.ip(),
            dst: to,
            src_port: self.at.port(),
            dst_port: ROCE_PORT,
        };
        let icrc = icrc_over_socket(path, &bytes);
        (bytes, icrc)
    }

    pub fn send_bytes(&self, to: IpAddr, bytes: &[u8]) {
        self.socket.send_to(bytes, (to, ROCE_PORT)).unwrap();
    }

    pub fn send(&mut self, to: IpAddr, transaction: u64, message: CmMessage<'_>) {
        self.send_mad(to, &message.emit(transaction));
    }

    /// The next packet.
    pub fn receive_packet(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        let (len, _) = self.socket.recv_from(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// The next packet for a queue pair.
    pub fn receive_for(&self, qpn: Qpn) -> Vec<u8> {
        loop {
            let bytes = self.receive_packet();
            if Packet::parse(&bytes).unwrap().0.dest_qpn == qpn {
                return bytes;
            }
        }
    }

    /// The next message for queue pair 1.
    pub fn receive(&self) -> Mad {
        let bytes = self.receive_for(QP1);
        let (packet, _) = Packet::parse(&bytes).unwrap();
        packet.payload.try_into().unwrap()
    }
}

pub fn parse(mad: &Mad) -> (u64, CmMessage<'_>) {
    CmMessage::parse(mad).unwrap()
}

/// The request of a scripted peer.
pub fn request<'a>(local_id: u32, at: SocketAddr, private: &'a [u8]) -> Req<'a> {
    Req {
        local_id,
        service: CmaHeader::service_id(CmaHeader::PS_TCP, at.port()),
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::wrapping(0x11),
        responder_resources: 3,
        initiator_depth: 2,
        remote_response_timeout: 20,
        transport: CmTransport::Rc,
        flow_control: false,
        starting_psn: Psn::wrapping(0xa5_55c9),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: CmPath {
            ack_timeout: 19,
            ..CmPath::default()
        },
        alternate: CmPath::default(),
        private,
    }
}

pub fn cma(src: IpAddr, dst: IpAddr, said: &[u8]) -> Vec<u8> {
    let port = 37_986;
    let mut private = CmaHeader { port, src, dst }.emit().to_vec();
    private.extend_from_slice(said);
    private
}
