//! iSCSI queue pairs against a socket that sends the PDUs of a target.
//! The target is a plain TCP socket of the test.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

use verbena::low::RecvWr;
use verbena::{Access, Device};
use verbena_storage::iscsi::{IscsiOptions, IscsiQp};
use verbena_testing::wait_until;

/// Bytes of a receive.
const RECV_LEN: usize = 64;

/// A NOP-In that wants no answer.
fn nop() -> [u8; 48] {
    let mut bhs = [0; 48];
    (bhs[0], bhs[1]) = (0x20, 0x80);
    bhs[16..24].fill(0xff);
    bhs
}

/// The queue is not polled and no more bytes arrive: posting a receive alone must let the next PDU proceed.
#[test]
fn posted_receive_alone_releases_waiting_pdu() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let device = Device::open().unwrap();
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let memory = pd.memory(4 * RECV_LEN, Access::LOCAL_WRITE).unwrap();
    let to = listener.local_addr().unwrap();
    let qp = IscsiQp::connect(&pd, &cq, &cq, to, IscsiOptions::default()).unwrap();
    let (mut target, _) = listener.accept().unwrap();
    let post = |id: u64| {
        let scatter = [memory.sge(id as usize * RECV_LEN, RECV_LEN).unwrap()];
        let scatter = &scatter[..];
        qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
    };
    post(0);
    target.write_all(&[nop(), nop(), nop()].concat()).unwrap();
    wait_until("the first has a receive", || qp.view().receives == 0);
    for id in 1..3 {
        post(id);
        wait_until("the next one is there", || qp.view().receives == 0);
    }
    assert_eq!(qp.view().counters.pdus_in, 3);
}
