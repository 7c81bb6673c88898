//! Receives posted before there is a connection, and depths that each side chooses independently.
//! Both layers are covered.

use std::time::Duration;

use verbena::low::{Data, Qp, QpOptions, QpState, RecvWr};
use verbena::{
    Access, BufResult, Connection, Depths, Device, Error, Fault, Pending, Received, Status,
};

use crate::common::device;
use crate::common::low::{SEND, complete, wr};

fn receives(
    device: &Device,
    endpoint: &verbena::Endpoint,
    count: usize,
) -> Vec<Pending<BufResult<Received>>> {
    (0..count)
        .map(|_| endpoint.recv(device.buffer(8).unwrap()))
        .collect()
}

fn send(connection: &Connection, byte: u8) -> Pending<BufResult<()>> {
    let buf = connection.device().buffer_from(&[byte]).unwrap();
    connection.send(buf)
}

/// With the iWARP personality a message without a receive ends the stream: none may.
#[test]
fn receives_posted_before_connecting_get_first_messages() {
    let settings = &[("personality", "iwarp")];
    let (ours, theirs) = (device(settings), device(settings));
    let listener = theirs.listen("127.0.0.1:0").unwrap();
    for round in 0..20 {
        let qp = ours.endpoint(Depths::default()).unwrap();
        let here = receives(&ours, &qp, 3);
        let connecting = qp.connect(listener.local_addr().unwrap(), b"");
        let answering = theirs.endpoint(Depths::default()).unwrap();
        let there = receives(&theirs, &answering, 3);
        let request = listener.next().wait().unwrap();
        let accepting = request.accept_with(answering, b"");
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let client = connecting.wait().unwrap();
                let sent = [1, 2, 3].map(|byte| send(&client, byte));
                sent.into_iter().for_each(|sent| sent.wait().0.unwrap());
                client
            });
            let server = accepting.wait().unwrap();
            let sent = [4, 5, 6].map(|byte| send(&server, byte));
            for (byte, receive) in (1..).zip(there) {
                let (result, buf) = receive.wait();
                assert_eq!(result.unwrap().len, 1, "round {round}");
                assert_eq!(buf[..], [byte]);
            }
            for (byte, receive) in (4..).zip(here) {
                let (result, buf) = receive.wait();
                result.unwrap();
                assert_eq!(buf[..], [byte]);
            }
            sent.into_iter().for_each(|sent| sent.wait().0.unwrap());
            client.join().unwrap();
        });
    }
}

/// The same with queue pairs of the low layer.
#[test]
fn queue_pair_takes_receives_before_connecting() {
    let device = device(&[("personality", "iwarp")]);
    let (pd, cq, got) = (
        device.pd().unwrap(),
        device.cq(64).unwrap(),
        device.cq(64).unwrap(),
    );
    let memory = pd.memory(64, Access::ALL).unwrap();
    let a = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let b = Qp::new(&pd, &got, &got, QpOptions::default()).unwrap();
    b.modify(QpState::Init).unwrap();
    let scatter = [memory.sge(0, 8).unwrap()];
    let scatter = &scatter;
    b.post_recv(&[RecvWr { id: 4, scatter }]).unwrap();
    assert_eq!(b.view().receives, 1);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let joining = a.connect(listener.local_addr().unwrap(), b"").unwrap();
    let request = listener.next().wait().unwrap();
    let accepted = request.accept_on(&b, b"").unwrap();
    joining.wait().unwrap();
    a.post_send(&[wr(1, SEND, Data::Inline(b"first"))]).unwrap();
    accepted.wait().unwrap();
    let wc = complete(&got, 1)[0];
    assert_eq!((wc.id, wc.status, wc.len), (4, Status::Success, 5));
}

#[test]
fn endpoint_never_connected_returns_its_buffers() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let endpoint = || {
        let endpoint = device.endpoint(Depths::default()).unwrap();
        let receiving = endpoint.recv(device.buffer(8).unwrap());
        (endpoint, receiving)
    };
    let closed = |receiving: Pending<BufResult<Received>>| {
        let (result, buf) = match receiving.wait_for(Duration::from_secs(10)) {
            Ok(end) => end,
            Err(_) => panic!("it never ends"),
        };
        assert!(matches!(result, Err(Error::Closed { by_peer: false })));
        assert_eq!(buf.capacity(), 8);
    };
    let (unused, receiving) = endpoint();
    drop(unused);
    closed(receiving);
    let (refused, receiving) = endpoint();
    let connecting = refused.connect(listener.local_addr().unwrap(), b"");
    listener.next().wait().unwrap().reject(b"");
    assert_eq!(connecting.wait().unwrap_err().fault(), Fault::Peer);
    closed(receiving);
    let (given_up, receiving) = endpoint();
    drop(given_up.connect(listener.local_addr().unwrap(), b""));
    closed(receiving);
    let (lost, receiving) = endpoint();
    assert!(lost.connect("127.0.0.1:1", b"").wait().is_err());
    closed(receiving);
    let (foreign, receiving) = endpoint();
    let other = crate::common::device(&[]);
    let theirs = other.listen("127.0.0.1:0").unwrap();
    let client = device.connect(theirs.local_addr().unwrap());
    let request = theirs.next().wait().unwrap();
    let refused = request.accept_with(foreign, b"").wait().unwrap_err();
    assert!(matches!(refused, Error::Foreign));
    closed(receiving);
    assert!(client.wait().is_err(), "not answered is refused");
}

/// Each side has its own depth: operations beyond it wait and are completed all the same.
#[test]
fn the_accepting_side_chooses_its_depths() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let shallow = Depths {
        sends: 1,
        recvs: 2,
        ird: Some(1),
        ord: Some(1),
    };
    let connecting = device
        .connector(b"")
        .depths(shallow)
        .connect(listener.local_addr().unwrap());
    let endpoint = device.endpoint(shallow).unwrap();
    let there = receives(&device, &endpoint, 50);
    let server = listener.next().wait().unwrap();
    let server = server.accept_with(endpoint, b"").wait().unwrap();
    let client = connecting.wait().unwrap();
    let memory = device.memory(64, Access::ALL).unwrap();
    let word = memory.remote_value(0).unwrap();
    let adds: Vec<_> = (0..50).map(|_| server.fetch_add(&word, 1)).collect();
    let sends: Vec<_> = (0..50).map(|byte| send(&client, byte)).collect();
    for (byte, receive) in (0..).zip(there) {
        let (result, buf) = receive.wait();
        result.unwrap();
        assert_eq!(buf[..], [byte]);
    }
    for (before, add) in (0..).zip(adds) {
        assert_eq!(add.wait().unwrap(), before);
    }
    sends.into_iter().for_each(|sent| sent.wait().0.unwrap());
}
