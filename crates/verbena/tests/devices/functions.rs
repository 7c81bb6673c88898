//! Virtual functions over loopback: traffic between two of one process, and isolation from peers of another function.
//! Objects and STags of one function have no effect in another.

use std::net::{IpAddr, SocketAddr};

use verbena::datagram::{Destination, UdOptions, UdQp, UdSendWr};
use verbena::events::HandlerOptions;
use verbena::function::{FunctionOptions, Service};
use verbena::low::{
    Cq, Data, Flags, Pd, PostError, PostSendError, Qp, QpOptions, QpState, Qpn, RecvWr, RemoteAddr,
    SendOp, SsqOptions, Stag,
};
use verbena::mr::WindowType;
use verbena::{Access, Connection, Device, Error, Fault, Memory, Status};

use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};
use crate::common::{LOOPBACK, device, pattern, small_function, virtual_function};

/// Two functions of one adapter.
fn two_functions() -> (Device, Device, Device) {
    let adapter = device(LOOPBACK);
    let (a, b) = (virtual_function(&adapter), virtual_function(&adapter));
    (adapter, a, b)
}

fn connect(a: &Device, b: &Device) -> (Connection, Connection) {
    let listener = b.listen("127.0.0.1:0").unwrap();
    let connecting = a.connect(listener.local_addr().unwrap());
    let there = listener.accept().wait().unwrap();
    (connecting.wait().unwrap(), there)
}

#[test]
fn two_functions_of_one_process_exchange_data() {
    let (adapter, a, b) = two_functions();
    assert_eq!([&adapter, &a, &b].map(Device::function_number), [0, 1, 2]);
    let (ours, theirs) = connect(&a, &b);
    let data = pattern(100_000, 7);
    let receiving = theirs.recv(b.buffer(data.len()).unwrap());
    ours.send(a.buffer_from(&data).unwrap()).wait().0.unwrap();
    let (received, buf) = receiving.wait();
    received.unwrap();
    assert!(buf[..] == data[..]);
    let memory = b.memory(4096, Access::ALL).unwrap();
    let word = memory.remote().value::<u64>(8).unwrap();
    assert_eq!(ours.fetch_add(&word, 5).wait().unwrap(), 0);
    assert_eq!(memory.load(8).unwrap(), 5);
    // Each counts its own traffic; the physical function has none.
    let (of_a, of_b) = (a.counters().unwrap(), b.counters().unwrap());
    assert!(of_a.connections.bytes_out > 100_000 && of_b.connections.bytes_in > 100_000);
    assert_eq!(adapter.counters().unwrap(), Default::default());
    drop((ours, theirs));
    wait_until("queue pairs are gone", || {
        a.used().qps == 0 && b.used().qps == 0
    });
    let after = a.counters().unwrap();
    assert!(after.connections.bytes_out >= of_a.connections.bytes_out);
    assert_eq!(after.destroyed, 1, "what went through it stays counted");
}

#[test]
fn last_dropped_handle_frees_function_share() {
    let adapter = device(LOOPBACK);
    let before = adapter.remaining_shares().unwrap();
    let function = adapter.function(&small_function()).unwrap();
    let buffer = function.buffer(64).unwrap();
    let ranges = function.ranges().unwrap();
    drop(function);
    assert_ne!(
        adapter.remaining_shares().unwrap(),
        before,
        "a buffer keeps it"
    );
    drop(buffer);
    wait_until("the share is free", || {
        adapter.remaining_shares().unwrap() == before
    });
    let next = adapter.function(&small_function()).unwrap();
    assert_ne!(next.ranges().unwrap().stags, ranges.stags, "STags rest");
}

#[test]
fn function_is_limited_to_its_share() {
    let (adapter, a, _) = two_functions();
    assert_eq!(a.attributes().shares.qps, 64);
    let mut all = Vec::new();
    let refused = loop {
        match a.memory(64, Access::LOCAL_WRITE) {
            Ok(memory) => all.push(memory),
            Err(error) => break error,
        }
    };
    assert_eq!(all.len(), 256);
    assert_eq!(refused.fault(), Fault::Limit);
    assert!(refused.to_string().contains("256"), "{refused}");
    adapter.memory(64, Access::LOCAL_WRITE).unwrap();
    let greedy = FunctionOptions {
        regions: 2_000_000,
        ..small_function()
    };
    let refused = adapter.function(&greedy).unwrap_err();
    assert!(refused.to_string().contains("max_regions"), "{refused}");
    assert_eq!(
        a.function(&small_function()).unwrap_err().fault(),
        Fault::Caller
    );
}

/// A queue pair with its domain and queues.
struct Side {
    qp: Qp,
    cq: Cq,
    memory: Memory,
    _pd: Pd,
}

fn side(device: &Device) -> Side {
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    Side {
        qp: Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap(),
        memory: pd.memory(4096, Access::ALL).unwrap(),
        cq,
        _pd: pd,
    }
}

fn pair(a: &Device, b: &Device) -> (Side, Side) {
    let (ours, theirs) = (side(a), side(b));
    connect_qps(&b.listen("127.0.0.1:0").unwrap(), &ours.qp, &theirs.qp);
    (ours, theirs)
}

/// An STag that no region has: beyond all ranges.
const INVALID_STAG: Stag = Stag::new(0x00ff_ff01);

/// V1: an STag of function A gives a peer no access through function B; the error is that of an STag that does not exist.
#[test]
fn peer_cannot_access_memory_of_another_function() {
    let (adapter, a, b) = two_functions();
    let secret = side(&a);
    secret.memory.write_at(0, b"of function a").unwrap();
    let there = secret.memory.remote_addr(0).unwrap();
    let nowhere = RemoteAddr {
        stag: INVALID_STAG,
        to: there.to,
    };
    let ops: [fn(RemoteAddr) -> SendOp; 4] = [
        |remote| SendOp::Write {
            remote,
            immediate: None,
        },
        |remote| SendOp::Read {
            remote,
            local_invalidate: None,
        },
        |remote| SendOp::FetchAdd {
            remote,
            add: 1,
            mask: 0,
        },
        |remote| SendOp::CmpSwap {
            remote,
            compare: 0,
            compare_mask: u64::MAX,
            swap: 1,
            swap_mask: u64::MAX,
        },
    ];
    for (at, op) in ops.into_iter().enumerate() {
        let statuses = [there, nowhere].map(|remote| {
            // The physical function is a peer like any other.
            let (peer, victim) = pair(&adapter, &b);
            let piece = [peer.memory.sge(0, 8).unwrap()];
            let request = wr(1, op(remote), Data::Gather(&piece));
            peer.qp.post_send(&[request]).unwrap();
            let status = complete(&peer.cq, 1)[0].status;
            wait_until("the victim has its cause", || {
                victim.qp.view().cause.is_some()
            });
            let cause = victim.qp.view().cause.unwrap_or_default();
            let hex = format!("{:08x}", remote.stag.get());
            (status, cause.replace(&hex, "…"))
        });
        assert_eq!(statuses[0].0, Status::RemAccessErr, "{at}");
        assert_eq!(statuses[0], statuses[1], "{at}: as if it did not exist");
    }
    let mut bytes = [0; 13];
    secret.memory.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"of function a");
}

/// V1: local requests cannot name memory of another function either, neither to send from nor to receive into.
#[test]
fn own_requests_cannot_name_memory_of_another_function() {
    let (adapter, a, b) = two_functions();
    let secret = side(&a);
    let (good, theirs) = (secret.memory.sge(0, 8).unwrap(), INVALID_STAG);
    let statuses = [good.stag, theirs].map(|stag| {
        let (peer, ours) = pair(&adapter, &b);
        let piece = [verbena::low::Sge { stag, ..good }];
        ours.qp
            .post_send(&[wr(1, SEND, Data::Gather(&piece))])
            .unwrap();
        let sent = complete(&ours.cq, 1)[0].status;
        drop(peer);
        let (peer, ours) = pair(&adapter, &b);
        let receive = RecvWr {
            id: 2,
            scatter: &piece,
        };
        ours.qp.post_recv(&[receive]).unwrap();
        let data = Data::Inline(b"nowhere");
        peer.qp.post_send(&[wr(3, SEND, data)]).unwrap();
        (sent, complete(&ours.cq, 1)[0].status)
    });
    assert_eq!(statuses[0], (Status::LocProtErr, Status::LocProtErr));
    assert_eq!(statuses[0], statuses[1], "as if it did not exist");
}

/// V1: objects of one function are refused by every call of another.
#[test]
fn handles_of_one_function_are_refused_by_another() {
    let (_adapter, a, b) = two_functions();
    let (pd, cq) = (a.pd().unwrap(), a.cq(8).unwrap());
    let (other_pd, other_cq) = (b.pd().unwrap(), b.cq(8).unwrap());
    let foreign = |outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::Foreign)), "{outcome:?}");
    };
    let options = QpOptions::default;
    foreign(Qp::new(&pd, &other_cq, &cq, options()).map(drop));
    foreign(Qp::new(&pd, &cq, &other_cq, options()).map(drop));
    foreign(Qp::new(&other_pd, &cq, &cq, options()).map(drop));
    let srq = other_pd.srq(4, 1).unwrap();
    foreign(Qp::with_srq(&pd, &cq, &cq, &srq, options()).map(drop));
    // Shared send queues (V6).
    foreign(pd.ssq(&other_cq, SsqOptions::default()).map(drop));
    let ssq = pd.ssq(&cq, SsqOptions::default()).unwrap();
    foreign(Qp::with_ssq(&ssq, &other_cq, None, options()).map(drop));
    foreign(Qp::with_ssq(&ssq, &cq, Some(&srq), options()).map(drop));
    let unknown = Qp::new(&other_pd, &other_cq, &other_cq, options()).unwrap();
    let number = unknown.number();
    let nothing = [wr(1, SEND, Data::Inline(b""))];
    let posted = ssq.post(number, &nothing);
    assert_eq!(
        posted,
        Err(PostSendError {
            posted: 0,
            source: PostError::Channel(number)
        })
    );
    assert!(ssq.attach(number).is_err() && ssq.detach(number).is_err());
    // Handlers, and the event queues and vectors behind them (N3, E9).
    let (handler, other) = (
        a.set_handler(&HandlerOptions::default()).unwrap(),
        b.set_handler(&HandlerOptions::default()).unwrap(),
    );
    assert_eq!(handler.id(), other.id(), "the numbers say nothing");
    foreign(b.cq_with(8, &handler).map(drop));
    foreign(other_cq.set_handler(Some(&handler)));
    foreign(cq.set_handler(Some(&other)));
    // Windows, one-touch memory and tags (M8, M9, M4).
    let rights = Access::LOCAL_WRITE | Access::BIND;
    let memory = other_pd.memory(4096, rights).unwrap();
    let spent = other_pd.one_touch_memory(4096, rights).unwrap();
    let mut window = pd.window(WindowType::TwoB).unwrap().one_touch();
    let mut tag = pd.fast_reg_mr(1).unwrap().one_touch();
    for memory in [&memory, &spent] {
        foreign(window.bind(memory, 0, 64, Access::REMOTE_WRITE).map(drop));
        foreign(tag.register(memory, 0, 64, Access::LOCAL_WRITE).map(drop));
        foreign(tag.register_pages(&[(memory, 0)], rights).map(drop));
    }
    let (ours, theirs) = connect(&a, &b);
    let (sent, _) = ours.send(b.buffer_from(b"not ours").unwrap()).wait();
    foreign(sent);
    drop(theirs);
    // A request to one cannot be accepted by another.
    let listener = a.listen("127.0.0.1:0").unwrap();
    let caller = side(&b);
    let joining = caller
        .qp
        .connect(listener.local_addr().unwrap(), b"")
        .unwrap();
    let unknown = side(&b);
    let request = listener.next().wait().unwrap();
    let refused = request.accept_on(&unknown.qp, b"").err();
    assert!(matches!(refused, Some(Error::Foreign)), "{refused:?}");
    assert!(joining.wait().is_err(), "the connection is rejected");
}

/// A queue pair for out-of-band connections, of a function with one address.
fn oob_side(device: &Device) -> Side {
    let options = QpOptions::default().oob(true);
    let plain = side(device);
    let qp = Qp::new(&plain._pd, &plain.cq, &plain.cq, options).unwrap();
    Side { qp, ..plain }
}

/// V1: a function may have its own addresses; out-of-band connections reach its queue pairs there only.
#[test]
fn functions_have_addresses_of_their_own() {
    let adapter = device(LOOPBACK);
    let at = |address: &str| {
        let addresses = Some(vec![address.parse().unwrap()]);
        adapter.function(&FunctionOptions {
            addresses,
            ..small_function()
        })
    };
    let (a, b) = (at("127.0.0.1").unwrap(), at("127.0.0.2").unwrap());
    assert_eq!(a.addresses().unwrap(), [IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(b.addresses().unwrap(), [IpAddr::from([127, 0, 0, 2])]);
    let (ours, theirs) = (oob_side(&a), oob_side(&b));
    let (name, peer) = (ours.qp.endpoint().unwrap(), theirs.qp.endpoint().unwrap());
    assert_eq!(name.address, IpAddr::from([127, 0, 0, 1]));
    assert_eq!(peer.address, IpAddr::from([127, 0, 0, 2]));
    // An address of the other function cannot be used as the local one.
    let refused = ours.qp.set_peer_from(peer.address, peer).unwrap_err();
    assert!(refused.to_string().contains("127.0.0.2"), "{refused}");
    ours.qp.set_peer(peer).unwrap();
    theirs.qp.set_peer(name).unwrap();
    for qp in [&ours.qp, &theirs.qp] {
        qp.modify(QpState::Rts).unwrap();
    }
    let words = pattern(3000, 5);
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        from.memory.write_at(0, &words).unwrap();
        let write = SendOp::Write {
            remote: to.memory.remote_addr(1000).unwrap(),
            immediate: None,
        };
        let piece = [from.memory.sge(0, 3000).unwrap()];
        from.qp
            .post_send(&[wr(1, write, Data::Gather(&piece))])
            .unwrap();
        assert_eq!(complete(&from.cq, 1)[0].status, Status::Success);
        let mut got = vec![0; 3000];
        to.memory.read_at(1000, &mut got).unwrap();
        assert!(got == words);
    }
    assert_eq!(ours.qp.peer_addr().unwrap().ip(), peer.address);
    assert_eq!(theirs.qp.peer_addr().unwrap().ip(), name.address);
    // An address that this host does not have cannot be used.
    let elsewhere = at("192.0.2.77").unwrap();
    let (pd, cq) = (elsewhere.pd().unwrap(), elsewhere.cq(8).unwrap());
    let options = QpOptions::default().oob(true);
    assert!(Qp::new(&pd, &cq, &cq, options).is_err());
}

/// V2: the network-side map applies to connections: what a rule gives to another device is refused, by name.
#[test]
fn address_owner_rules_apply_to_connections() {
    let adapter = device(&[
        ("device", "127.0.0.1,127.0.0.2"),
        ("presents", "verbena0=rdma,verbena1=rdma,eth7=nic"),
        ("owners", "127.0.0.2=verbena1,127.0.0.3=eth7"),
    ]);
    let other = adapter.logical_device("verbena1", Service::Rdma).unwrap();
    let refused = |outcome: Result<verbena::Listener, Error>, owner: &str| {
        let error = outcome.map(drop).unwrap_err();
        assert_eq!(error.fault(), Fault::Caller);
        let said = error.to_string();
        assert!(said.contains(&format!("belong to {owner}")), "{said}");
    };
    refused(adapter.listen("127.0.0.2:0"), "verbena1");
    for device in [&adapter, &other] {
        refused(device.listen("127.0.0.3:0"), "eth7");
    }
    let theirs = other.listen("127.0.0.2:0").unwrap();
    let connecting = adapter.connect(theirs.local_addr().unwrap());
    let there = theirs.accept().wait().unwrap();
    let ours = connecting.wait().unwrap();
    let receiving = there.recv(other.buffer(16).unwrap());
    ours.send(adapter.buffer_from(b"owned").unwrap())
        .wait()
        .0
        .unwrap();
    assert_eq!(&receiving.wait().1[..], b"owned");
    // Listening at all addresses: a connection to an address of another device is refused, others are not.
    let everywhere = adapter.listen("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let astray = other.connect(SocketAddr::from(([127, 0, 0, 2], port)));
    assert!(astray.wait().is_err());
    let connecting = other.connect(SocketAddr::from(([127, 0, 0, 1], port)));
    everywhere.accept().wait().unwrap();
    connecting.wait().unwrap();
    // Out of band: from its own address, and from no other.
    let (ours, theirs) = (oob_side(&adapter), oob_side(&other));
    let peer = theirs.qp.endpoint().unwrap();
    let astray = ours
        .qp
        .set_peer_from([127, 0, 0, 2].into(), peer)
        .unwrap_err();
    assert!(astray.to_string().contains("verbena1"), "{astray}");
}

/// A device with two addresses, of which a rule gives the second one to another device, and that device.
fn owned_addresses(owners: &str, wire: &str) -> (Device, Device) {
    let adapter = device(&[
        ("device", "127.0.71.1,127.0.71.2"),
        ("presents", "verbena0=rdma,verbena1=rdma"),
        ("owners", owners),
        ("wire", wire),
    ]);
    let other = adapter.logical_device("verbena1", Service::Rdma).unwrap();
    (adapter, other)
}

/// A datagram queue pair that sends and receives, and memory for what it receives.
fn ready_ud(device: &Device, cq: &Cq) -> Result<(UdQp, Memory), Error> {
    let pd = device.pd()?;
    let memory = pd.memory(64, Access::LOCAL_WRITE)?;
    let ud = UdQp::new(&pd, cq, cq, UdOptions::default())?;
    ud.set_qkey(7);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        ud.modify(state)?;
    }
    Ok((ud, memory))
}

/// V2: datagrams at an address that a rule gives to another device do not reach a queue pair of this one, and it does not send from there.
#[test]
fn address_owner_rules_apply_to_datagrams() {
    for wire in ["tcp", "roce"] {
        let (adapter, other) = owned_addresses("127.0.71.2=verbena1", wire);
        let (first, second) = (IpAddr::from([127, 0, 71, 1]), IpAddr::from([127, 0, 71, 2]));
        let (cq, other_cq) = (adapter.cq(64).unwrap(), other.cq(64).unwrap());
        let ours = ready_ud(&adapter, &cq).unwrap();
        let theirs = ready_ud(&other, &other_cq).unwrap();
        assert_eq!(ours.0.endpoint().unwrap().address, first, "{wire}");
        type Ready = (UdQp, Memory);
        let send = |(from, _): &Ready, source, (to, _): &Ready, address| {
            let to = Destination {
                address,
                source,
                number: Qpn::wrapping(to.number()),
                qkey: 7,
            };
            let send = UdSendWr {
                id: 2,
                immediate: None,
                flags: Flags::SIGNALED,
                data: Data::Inline(b"datagram"),
                to,
            };
            from.post_send(&[send]).unwrap();
        };
        let receive = |(ud, memory): &Ready| {
            let scatter = &[memory.sge(0, 64).unwrap()];
            ud.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
        };
        // One for the address of the other device, before each that arrives.
        for _ in 0..16 {
            receive(&ours);
            send(&theirs, first, &ours, second);
            send(&theirs, first, &ours, first);
            assert_eq!(complete(&other_cq, 2).len(), 2);
            assert_eq!(complete(&cq, 1)[0].id, 1, "{wire}");
        }
        let counters = ours.0.view().counters;
        let arrived = counters.received + counters.no_receive + counters.too_long;
        assert_eq!(arrived, 16, "{wire}");
        // From its own address, and from no other.
        receive(&theirs);
        send(&ours, first, &theirs, second);
        assert_eq!(complete(&cq, 1)[0].id, 2);
        assert_eq!(complete(&other_cq, 1)[0].id, 1, "{wire}");
        send(&ours, second, &theirs, second);
        assert_eq!(complete(&cq, 1)[0].status, Status::LocQpOpErr, "{wire}");
    }
}

/// V2: a device without an address of its own has neither datagrams nor connections over RoCEv2.
#[test]
fn port_owner_rules_apply_to_roce() {
    let (adapter, other) = owned_addresses("*:4791=verbena1", "roce");
    let refused = |error: Error| {
        assert_eq!(error.fault(), Fault::Caller);
        let said = error.to_string();
        assert!(said.contains(":4791 belong to verbena1"), "{said}");
    };
    let (cq, other_cq) = (adapter.cq(64).unwrap(), other.cq(64).unwrap());
    refused(ready_ud(&adapter, &cq).unwrap_err());
    let (ours, theirs) = (oob_side(&adapter), oob_side(&other));
    let peer = theirs.qp.endpoint().unwrap();
    refused(ours.qp.set_peer(peer).unwrap_err());
    refused(adapter.listen("127.0.71.1:0").map(drop).unwrap_err());
    assert_eq!(adapter.used().qps, 1, "that of the refused connection");
    // The owner of the port has both.
    ready_ud(&other, &other_cq).unwrap();
    let listener = other.listen("127.0.71.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    refused(adapter.connect(to).wait().map(drop).unwrap_err());
    let connecting = other.connect(to);
    listener.accept().wait().unwrap();
    connecting.wait().unwrap();
}
