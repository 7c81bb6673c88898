//! Events steered by the addresses of their packets (E8): completions of TCP connections and of datagrams, and channel events, each on the vector
//! that the hash, the redirection table and the map name; key and table set by settings, by calls and by registers.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, TcpListener};
use std::sync::mpsc;
use std::time::Duration;

use verbena::datagram::{Destination, UdOptions, UdQp, UdSendWr};
use verbena::events::{
    Cause, ChannelEvent, Completion, Handler, HandlerOptions, HashKey, PacketTuple, Redirection,
    Signal, SteeringRegister,
};
use verbena::low::{Arm, Cq, Data, Flags, Qp, QpOptions, QpState, Qpn, RecvWr, Wc};
use verbena::tcp::{TcpChannel, TcpOptions, TcpQp};
use verbena::{Access, Config, Device, Fault};

use crate::common::device;
use crate::common::low::{SEND, wait_until, wr};

const KEY: [u8; 40] = *b"any forty bytes will do if they are rand";
const PATIENCE: Duration = Duration::from_secs(10);
/// The vector of the first handler: before it are those of global events, of RDMA, and of queues without a handler.
const FIRST: u16 = 3;

/// A device whose completions follow the hash, with two handlers: the first one is that of a completion queue.
struct Steered {
    device: Device,
    cq: Cq,
    notified: mpsc::Receiver<Completion>,
    _handler: Handler,
}

impl Steered {
    fn new() -> Steered {
        Steered::with(&[("device", "127.0.0.1")])
    }

    fn with(more: &[(&str, &str)]) -> Steered {
        let key: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut settings = vec![
            ("handlers", "2"),
            ("interrupt_routing", "hash"),
            ("interrupt_hash_key", &key),
            ("interrupt_table", "0,1"),
        ];
        settings.extend(more);
        let device = device(&settings);
        let cq = device.cq(64).unwrap();
        let (tell, notified) = mpsc::channel();
        let options = HandlerOptions::new(move |completion| {
            let _ = tell.send(completion);
        });
        let handler = device.set_handler(&options).unwrap();
        cq.set_handler(Some(&handler)).unwrap();
        Steered {
            device,
            cq,
            notified,
            _handler: handler,
        }
    }

    /// The handler's vector on which the queue was notified of a completion that `act` causes.
    fn vector_of(&self, act: impl FnOnce()) -> u16 {
        self.cq.arm(Arm::Next);
        let vectors = vectors_fired(&self.device, || {
            act();
            self.notified.recv_timeout(PATIENCE).unwrap();
        });
        assert_eq!(poll(&self.cq), 1);
        assert_eq!(vectors.len(), 1, "{vectors:?}");
        vectors[0]
    }

    /// With many keys, the vector of what `act` causes is that of the hash of this packet.
    fn check_hash_of(&self, packet: PacketTuple, act: impl Fn()) {
        let mut seen = Vec::new();
        for turn in 0..KEY.len() {
            let mut key = KEY;
            key.rotate_left(turn);
            self.device.set_interrupt_hash_key(HashKey(key)).unwrap();
            let vector = self.vector_of(&act);
            assert_eq!(vector, expected(key, packet), "key {turn}");
            seen.push(vector);
        }
        assert!(seen.contains(&FIRST) && seen.contains(&(FIRST + 1)));
    }
}

/// Takes one completion, without arming the queue.
fn poll(cq: &Cq) -> usize {
    let mut some = [Wc::default(); 4];
    let mut count = 0;
    wait_until("a completion", || {
        count = cq.poll(&mut some);
        count > 0
    });
    count
}

/// The vectors of handlers that were fired meanwhile.
fn vectors_fired(device: &Device, act: impl FnOnce()) -> Vec<u16> {
    let interrupts = || -> BTreeMap<u16, u64> {
        let signals = device.interrupt_counters().signals.into_iter();
        signals
            .filter_map(|signal| match signal.signal {
                Signal::Vector(vector) if vector >= FIRST => Some((vector, signal.interrupts)),
                Signal::Vector(_) | Signal::Line => None,
            })
            .collect()
    };
    let before = interrupts();
    act();
    let fired = |(vector, count): &(u16, u64)| before.get(vector) != Some(count);
    let after = interrupts().into_iter();
    after.filter(fired).map(|(vector, _)| vector).collect()
}

fn expected(key: [u8; 40], packet: PacketTuple) -> u16 {
    FIRST + (HashKey(key).hash(packet) & 1) as u16
}

#[test]
fn completions_follow_the_hash_of_their_connection() {
    let world = Steered::new();
    let device = &world.device;
    let (pd, sent) = (device.pd().unwrap(), device.cq(64).unwrap());
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let mut kept = Vec::new();
    let mut seen = Vec::new();
    // The ports of the clients differ; 64 of them are never in one half of the table.
    while seen.len() < 2 {
        assert!(kept.len() < 64);
        let a = Qp::new(&pd, &sent, &sent, QpOptions::default()).unwrap();
        let b = Qp::new(&pd, &sent, &world.cq, QpOptions::default()).unwrap();
        let joining = a.connect(to, b"").unwrap();
        let request = listener.next().wait().unwrap();
        let from = request.peer_addr();
        request.accept_on(&b, b"").unwrap().wait().unwrap();
        joining.wait().unwrap();
        let send = || {
            let scatter = &[];
            b.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
            a.post_send(&[wr(2, SEND, Data::Inline(b""))]).unwrap();
            assert_eq!(poll(&sent), 1);
        };
        let packet = PacketTuple::segment(from, to).unwrap();
        let vector = world.vector_of(send);
        assert_eq!(vector, expected(KEY, packet), "{packet:?}");
        if !seen.contains(&vector) {
            seen.push(vector);
        }
        // The table and the key change under traffic.
        for handler in [1, 0] {
            device.set_interrupt_table(&[handler]).unwrap();
            assert_eq!(world.vector_of(send), FIRST + handler);
        }
        let mut key = KEY;
        key.rotate_left(kept.len());
        device.set_interrupt_table(&[0, 1]).unwrap();
        device.set_interrupt_hash_key(HashKey(key)).unwrap();
        assert_eq!(world.vector_of(send), expected(key, packet));
        device.set_interrupt_hash_key(HashKey(KEY)).unwrap();
        kept.push((a, b));
    }
}

#[test]
fn datagrams_are_steered_by_their_addresses() {
    let world = Steered::new();
    let device = &world.device;
    let (pd, sent) = (device.pd().unwrap(), device.cq(64).unwrap());
    let memory = pd.memory(4096, Access::ALL).unwrap();
    let ud = UdQp::new(&pd, &sent, &world.cq, UdOptions::default()).unwrap();
    ud.set_qkey(7);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        ud.modify(state).unwrap();
    }
    let here = ud.endpoint().unwrap();
    let to = Destination {
        address: here.address,
        source: here.address,
        number: Qpn::wrapping(here.number),
        qkey: 7,
    };
    let packet = PacketTuple::ip(here.address, here.address).unwrap();
    world.check_hash_of(packet, || {
        let scatter = &[memory.sge(0, 64).unwrap()];
        ud.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
        let (flags, data) = (Flags::SIGNALED, Data::Inline(b"datagram"));
        let send = UdSendWr {
            id: 2,
            immediate: None,
            flags,
            data,
            to,
        };
        ud.post_send(&[send]).unwrap();
        assert_eq!(poll(&sent), 1);
    });
}

/// Both ports of RoCEv2 are 4791, so its packets are hashed by their addresses alone; a completion of a send is caused by the packet that
/// acknowledges it.
#[test]
fn roce_connections_are_steered_by_their_addresses() {
    let (here, there) = ("127.0.70.1", "127.0.70.2");
    let world = Steered::with(&[("device", here), ("wire", "roce")]);
    let peer = device(&[("device", there), ("wire", "roce")]);
    let (pd, peer_pd) = (world.device.pd().unwrap(), peer.pd().unwrap());
    let (other, peer_cq) = (world.device.cq(64).unwrap(), peer.cq(64).unwrap());
    let create = |pd, send, recv| Qp::new(pd, send, recv, QpOptions::default()).unwrap();
    let receiver = create(&pd, &other, &world.cq);
    let sender = create(&pd, &world.cq, &other);
    let listener = world.device.listen(format!("{here}:0")).unwrap();
    let [to_receiver, to_sender] = [&receiver, &sender].map(|qp| {
        let far = create(&peer_pd, &peer_cq, &peer_cq);
        let joining = far.connect(listener.local_addr().unwrap(), b"").unwrap();
        let request = listener.next().wait().unwrap();
        request.accept_on(qp, b"").unwrap().wait().unwrap();
        joining.wait().unwrap();
        far
    });
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let packet = PacketTuple::ip(address(there), address(here)).unwrap();
    let empty = || RecvWr {
        id: 1,
        scatter: &[],
    };
    world.check_hash_of(packet, || {
        receiver.post_recv(&[empty()]).unwrap();
        let send = wr(2, SEND, Data::Inline(b""));
        to_receiver.post_send(&[send]).unwrap();
        assert_eq!(poll(&peer_cq), 1);
    });
    world.check_hash_of(packet, || {
        to_sender.post_recv(&[empty()]).unwrap();
        sender.post_send(&[wr(3, SEND, Data::Inline(b""))]).unwrap();
        assert_eq!(poll(&peer_cq), 1);
    });
}

/// A completion that a timer causes has no packet: its queue's own handler gets it, whatever the table says.
#[test]
fn timer_completions_go_to_their_own_handler() {
    let quick = ("dead_after", "1s");
    let world = Steered::with(&[("device", "127.0.70.3"), ("wire", "roce"), quick]);
    world.device.set_interrupt_table(&[1]).unwrap();
    let gone = device(&[("device", "127.0.70.4"), ("wire", "roce")]);
    let oob = QpOptions::default().oob(true);
    let create = |device: &Device, cq: &Cq| Qp::new(&device.pd().unwrap(), cq, cq, oob).unwrap();
    let absent = create(&gone, &gone.cq(16).unwrap());
    let endpoint = absent.endpoint().unwrap();
    drop((absent, gone));
    let qp = create(&world.device, &world.cq);
    qp.set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(300)));
    qp.set_peer(endpoint).unwrap();
    qp.modify(QpState::Rts).unwrap();
    let vector = world.vector_of(|| {
        qp.post_send(&[wr(1, SEND, Data::Inline(b""))]).unwrap();
    });
    assert_eq!(vector, FIRST);
}

/// The addresses and ports of a plain-TCP queue pair are those of any other TCP connection.
#[test]
fn tcp_queue_pairs_are_steered_by_their_connection() {
    let world = Steered::new();
    let pd = world.device.pd().unwrap();
    let other = world.device.cq(64).unwrap();
    let memory = pd.memory(4096, Access::ALL).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let qp = TcpQp::connect(&pd, (&other, &world.cq), to, TcpOptions::default()).unwrap();
    let (peer, local) = listener.accept().unwrap();
    let packet = PacketTuple::segment(to, local).unwrap();
    world.check_hash_of(packet, || {
        let scatter = &[memory.sge(0, 64).unwrap()];
        qp.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
        (&peer).write_all(b"bytes").unwrap();
    });
}

/// E8, scheme 2: the entry of the table names channel and event queue of a channel event.
#[test]
fn table_names_channel_and_queue_of_channel_events() {
    let device = device(&[
        ("handlers", "2"),
        ("interrupt_routing", "queue"),
        ("interrupt_table", "0"),
    ]);
    let entry = Redirection {
        processor: FIRST,
        channel: 21,
        queue: FIRST + 1,
    };
    let first = SteeringRegister::Entry(0);
    device
        .write_interrupt_register(first, entry.pack())
        .unwrap();
    let (tell, told) = mpsc::channel();
    let _observation = device.observe(move |cause| {
        let _ = tell.send(cause);
    });
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let memory = pd.memory(4096, Access::ALL).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = TcpOptions::default().channel(Some(TcpChannel { number: 2, low: 0 }));
    let to = listener.local_addr().unwrap();
    let qp = TcpQp::connect(&pd, (&cq, &cq), to, options).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let scatter = &[memory.sge(0, 64).unwrap()];
    qp.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
    let vectors = vectors_fired(&device, || {
        peer.write_all(b"bytes").unwrap();
        let expected = Cause::Channel {
            channel: 21,
            what: ChannelEvent::Returned,
            count: 1,
        };
        assert_eq!(told.recv_timeout(PATIENCE), Ok(expected));
    });
    assert_eq!(vectors, [FIRST + 1]);
}

#[test]
fn invalid_keys_and_tables_change_nothing() {
    let mut config = Config::default();
    config.set("handlers", "2").unwrap();
    let letters = "zz".repeat(40);
    for (setting, value, why) in [
        (
            "interrupt_hash_key",
            "6d5a",
            "expected auto or 40 bytes in hexadecimal",
        ),
        (
            "interrupt_hash_key",
            letters.as_str(),
            "40 bytes in hexadecimal",
        ),
        ("interrupt_table", "0,1,0", "a power of two up to 256"),
        ("interrupt_table", "", "such as 0,1,0,2"),
        (
            "interrupt_table",
            "0,2",
            "expected numbers below handlers, which is 2",
        ),
        (
            "interrupt_routing",
            "hsah",
            "expected processor, hash or queue",
        ),
        ("completion_vector_cpus", "3-2", "such as 0,1,2-3"),
        ("completion_vector_cpus", "1024", "such as 0,1,2-3"),
    ] {
        let refused = config.set(setting, value).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    config.set("interrupt_table", "1,0").unwrap();
    let device = Device::with(config).unwrap();
    let before = device.interrupt_table();
    let register = |register, value| device.write_interrupt_register(register, value);
    let beyond = Redirection {
        processor: 5,
        ..Redirection::default()
    };
    for (refused, why) in [
        (device.set_interrupt_table(&[]), "a power of two of entries"),
        (device.set_interrupt_table(&[0, 1, 0]), "not 3"),
        (
            device.set_interrupt_table(&[2]),
            "the redirection table names completion handler 2; there can be 2",
        ),
        (
            register(SteeringRegister::Entry(0), beyond.pack()),
            "processor 5 does not exist; the map has 5",
        ),
        (register(SteeringRegister::Entry(0), u32::MAX), "27 bits"),
        (register(SteeringRegister::Mask, 2), "not 0x2"),
        (register(SteeringRegister::Key(10), 0), "there are 10"),
    ] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.fault(), Fault::Caller);
    }
    assert_eq!(device.interrupt_table(), before);
    // The key as ten registers.
    device.set_interrupt_hash_key(HashKey(KEY)).unwrap();
    let read = |at| device.read_interrupt_register(SteeringRegister::Key(at));
    let key: Vec<u8> = (0..10)
        .flat_map(|at| read(at).unwrap().to_be_bytes())
        .collect();
    assert_eq!(key, KEY);
}
