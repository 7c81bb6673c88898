//! XRC over real connections: in both personalities, by address and by number, and towards peers that do not fit.

use std::fs::File;

use verbena::events::Event;
use verbena::low::{
    Cq, Data, Pd, PostError, PostSendError, Qp, QpOptions, QpState, QpType, RecvWr, SendOp, Srq,
    XrcOpen, Xrcd,
};
use verbena::{Access, Device, Error, Memory, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};

/// A device with an XRC domain and two shared receive queues of different protection domains.
struct Receiver {
    device: Device,
    xrcd: Xrcd,
    cqs: [Cq; 2],
    srqs: [Srq; 2],
    memory: [Memory; 2],
    _pds: [Pd; 2],
}

impl Receiver {
    fn new(settings: &[(&str, &str)]) -> Receiver {
        let device = device(settings);
        let xrcd = device.xrcd().unwrap();
        Receiver::in_domain(device, xrcd)
    }

    fn in_domain(device: Device, xrcd: Xrcd) -> Receiver {
        let pds = [(), ()].map(|()| device.pd().unwrap());
        let cqs = [(), ()].map(|()| device.cq(64).unwrap());
        let queue = |at: usize| pds[at].xrc_srq(&xrcd, &cqs[at], 16, 1).unwrap();
        let srqs = [queue(0), queue(1)];
        let memory = [0, 1].map(|at: usize| pds[at].memory(8192, Access::ALL).unwrap());
        Receiver {
            device,
            xrcd,
            cqs,
            srqs,
            memory,
            _pds: pds,
        }
    }

    fn receive(&self, queue: usize, id: u64) {
        let scatter = [self.memory[queue].sge(0, 4096).unwrap()];
        let wr = RecvWr {
            id,
            scatter: &scatter,
        };
        self.srqs[queue].post(&[wr]).unwrap();
    }

    fn number(&self, queue: usize) -> u32 {
        self.srqs[queue].xrc_number().unwrap()
    }
}

fn initiator(device: &Device, oob: bool) -> (Qp, Cq, Memory) {
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let options = QpOptions::default().qp_type(QpType::XrcSend).oob(oob);
    let qp = Qp::new(&pd, &cq, &cq, options).unwrap();
    let memory = pd.memory(8192, Access::ALL).unwrap();
    (qp, cq, memory)
}

/// Sends to both queues by turns, and checks what arrives.
fn exchange(receiver: &Receiver, target: &Qp, (qp, cq, memory): &(Qp, Cq, Memory), qpn: u32) {
    for round in 0..8_u64 {
        let at = (round % 2) as usize;
        receiver.receive(at, round);
        let text = format!("message {round}");
        memory.write_at(0, text.as_bytes()).unwrap();
        // Every other pair is long enough to be read in parts.
        let len = if round % 4 < 2 { text.len() } else { 4000 };
        let piece = [memory.sge(0, len).unwrap()];
        let request = wr(100 + round, SEND, Data::Gather(&piece));
        qp.post_send_to(receiver.number(at), &[request]).unwrap();
        let got = complete(&receiver.cqs[at], 1)[0];
        assert_eq!((got.id, got.status), (round, Status::Success));
        assert_eq!((got.len as usize, got.qpn), (len, qpn));
        let mut bytes = vec![0; text.len()];
        receiver.memory[at].read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, text.as_bytes());
        let sent = complete(cq, 1)[0];
        assert_eq!((sent.id, sent.status), (100 + round, Status::Success));
    }
    // The answer of another member may be on its way still.
    wait_until("all messages count", || {
        target.view().counters.messages_in == 8
    });
}

#[test]
fn one_connection_reaches_every_queue() {
    for personality in ["roce", "iwarp"] {
        let settings = &[("personality", personality)];
        let receiver = Receiver::new(settings);
        let target = Qp::xrc_target(&receiver.xrcd, QpOptions::default()).unwrap();
        let sender = initiator(&device(settings), false);
        let listener = receiver.device.listen("127.0.0.1:0").unwrap();
        connect_qps(&listener, &sender.0, &target);
        exchange(&receiver, &target, &sender, target.number());
    }
}

#[test]
fn targets_connect_by_number() {
    let settings = &[("device", "127.0.0.1")];
    let receiver = Receiver::new(settings);
    let options = QpOptions::default().oob(true);
    let target = Qp::xrc_target(&receiver.xrcd, options).unwrap();
    let sender = initiator(&device(settings), true);
    sender.0.set_peer(target.endpoint().unwrap()).unwrap();
    target.set_peer(sender.0.endpoint().unwrap()).unwrap();
    sender.0.modify(QpState::Rts).unwrap();
    // A target may stay in RTR: it sends no requests.
    let number = target.endpoint().unwrap().number;
    exchange(&receiver, &target, &sender, number);
}

/// A file that names a domain, and is gone when it is closed.
fn domain_file(test: &str) -> File {
    let name = format!("verbena-xrc-{test}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

/// Two devices are two members of a domain, as if they were in two processes.
#[test]
fn target_reaches_queues_of_another_member() {
    for personality in ["roce", "iwarp"] {
        let settings = &[("personality", personality)];
        let file = domain_file(personality);
        let open = |how| {
            let device = device(settings);
            let xrcd = device.xrcd_of_file(&file, how);
            xrcd.map(|xrcd| Receiver::in_domain(device, xrcd))
        };
        assert!(open(XrcOpen::Existing).is_err(), "there is none");
        let here = open(XrcOpen::CreateNew).unwrap();
        assert!(open(XrcOpen::CreateNew).is_err(), "there is one");
        let there = open(XrcOpen::Existing).unwrap();
        let target = Qp::xrc_target(&here.xrcd, QpOptions::default()).unwrap();
        let sender = initiator(&device(settings), false);
        let listener = here.device.listen("127.0.0.1:0").unwrap();
        connect_qps(&listener, &sender.0, &target);
        exchange(&there, &target, &sender, target.number());
        // The member leaves: the next message for its queues fails, and with it the connection.
        let number = there.number(0);
        drop(there);
        let (qp, cq, memory) = &sender;
        let piece = [memory.sge(0, 8).unwrap()];
        let request = wr(1, SEND, Data::Gather(&piece));
        qp.post_send_to(number, &[request]).unwrap();
        if personality == "roce" {
            let sent = complete(cq, 1)[0];
            assert_eq!((sent.id, sent.status), (1, Status::RemInvReqErr));
        }
        wait_until("the target fails", || target.view().cause.is_some());
        drop((here, target));
        wait_until("the domain ends with its last member", || {
            open(XrcOpen::Existing).is_err()
        });
    }
}

/// Many targets and initiators at once, and receives that are posted late.
#[test]
fn members_receive_from_many_targets_at_once() {
    const TARGETS: u64 = 8;
    const MESSAGES: u64 = 50;
    let file = domain_file("many");
    let open = || {
        let device = device(&[]);
        let xrcd = device.xrcd_of_file(&file, XrcOpen::Create).unwrap();
        Receiver::in_domain(device, xrcd)
    };
    let (here, there) = (open(), open());
    let listener = here.device.listen("127.0.0.1:0").unwrap();
    let sending = device(&[]);
    let connected: Vec<_> = (0..TARGETS)
        .map(|_| {
            let target = Qp::xrc_target(&here.xrcd, QpOptions::default()).unwrap();
            let sender = initiator(&sending, false);
            connect_qps(&listener, &sender.0, &target);
            (target, sender)
        })
        .collect();
    for (target, (qp, _, memory)) in &connected {
        for id in 0..MESSAGES {
            memory.write_at(0, &[target.number() as u8]).unwrap();
            let piece = [memory.sge(0, 100).unwrap()];
            let queue = (id % 2) as usize;
            let request = wr(id, SEND, Data::Gather(&piece));
            qp.post_send_to(there.number(queue), &[request]).unwrap();
        }
    }
    let mut received = 0;
    while received < TARGETS * MESSAGES {
        // Each connection sends to the queues by turns, so a round takes as many receives of each.
        for id in 0..8 {
            there.receive(0, id);
            there.receive(1, id);
        }
        for queue in 0..2 {
            let wcs = complete(&there.cqs[queue], 8);
            assert!(wcs.iter().all(|wc| wc.status == Status::Success));
            received += wcs.len() as u64;
        }
    }
    for (_, (_, cq, _)) in &connected {
        let sent = complete(cq, MESSAGES as usize);
        assert!(sent.iter().all(|wc| wc.status == Status::Success));
    }
}

#[test]
fn reliable_queue_pair_does_not_answer_an_initiator() {
    let settings = &[("device", "127.0.0.1")];
    let there = device(settings);
    let (pd, cq) = (there.pd().unwrap(), there.cq(64).unwrap());
    let options = QpOptions::default().oob(true);
    let reliable = Qp::new(&pd, &cq, &cq, options).unwrap();
    let sender = initiator(&device(settings), false);
    let listener = there.listen("127.0.0.1:0").unwrap();
    let joining = sender
        .0
        .connect(listener.local_addr().unwrap(), b"")
        .unwrap();
    let request = listener.next().wait().unwrap();
    // Both learn the type of the other from its first frame.
    let _ = request.accept_on(&reliable, b"").unwrap().wait();
    let _ = joining.wait();
    wait_until("one of them fails", || {
        let cause = |qp: &Qp| qp.view().cause.unwrap_or_default();
        let wrong = "the peer's queue pair is of type";
        cause(&reliable).contains(wrong) || cause(&sender.0).contains(wrong)
    });
}

#[test]
fn peer_without_extensions_is_not_connected() {
    let there = device(&[("extensions", "off")]);
    let (pd, cq) = (there.pd().unwrap(), there.cq(64).unwrap());
    let reliable = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let sender = initiator(&device(&[]), false);
    let listener = there.listen("127.0.0.1:0").unwrap();
    let joining = sender
        .0
        .connect(listener.local_addr().unwrap(), b"")
        .unwrap();
    let request = listener.next().wait().unwrap();
    let _ = request.accept_on(&reliable, b"").unwrap().wait();
    let error = joining.wait().unwrap_err();
    assert!(error.to_string().contains("the peer has no XRC"), "{error}");
}

#[test]
fn destroyed_queue_is_refused_to_the_initiator() {
    let receiver = Receiver::new(&[]);
    let target = Qp::xrc_target(&receiver.xrcd, QpOptions::default()).unwrap();
    let (qp, cq, memory) = initiator(&device(&[]), false);
    let listener = receiver.device.listen("127.0.0.1:0").unwrap();
    connect_qps(&listener, &qp, &target);
    // The message waits for a receive, and the queue is destroyed meanwhile.
    let piece = [memory.sge(0, 8).unwrap()];
    let request = wr(1, SEND, Data::Gather(&piece));
    qp.post_send_to(receiver.number(0), &[request]).unwrap();
    wait_until("it waits", || target.view().counters.rnr_sent == 1);
    let Receiver {
        srqs: [first, _second],
        device,
        ..
    } = receiver;
    first.destroy().map_err(|(_, error)| error).unwrap();
    let sent = complete(&cq, 1)[0];
    assert_eq!((sent.id, sent.status), (1, Status::RemInvReqErr));
    let number = target.number();
    wait_until("the event", || {
        device.next_event() == Some(Event::QpRequest { qp: number })
    });
}

#[test]
fn wrong_parts_and_posts_are_refused() {
    let receiver = Receiver::new(&[]);
    let other = device(&[]);
    let (pd, cq) = (other.pd().unwrap(), other.cq(8).unwrap());
    let foreign = pd.xrc_srq(&receiver.xrcd, &cq, 4, 1);
    assert!(matches!(foreign, Err(Error::Foreign)));
    let options = |qp_type| QpOptions::default().qp_type(qp_type);
    let bare = Qp::new(&pd, &cq, &cq, options(QpType::XrcRecv)).unwrap_err();
    assert!(bare.to_string().contains("needs an XRC domain"), "{bare}");
    let srq = pd.srq(4, 1).unwrap();
    let shared = Qp::with_srq(&pd, &cq, &cq, &srq, options(QpType::XrcSend)).unwrap_err();
    assert!(shared.to_string().contains("has no receives"), "{shared}");
    let (qp, ..) = initiator(&other, false);
    let refused = Err(PostSendError {
        posted: 0,
        source: PostError::Xrc,
    });
    assert_eq!(qp.post_send_to(1 << 24, &[]), refused);
    let op = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    qp.modify(QpState::Init).unwrap();
    let posted = qp.post_send(&[wr(1, op, Data::Inline(b"x"))]);
    assert!(posted.is_err(), "it names no queue");
    assert!(qp.open_target().is_none());
}
