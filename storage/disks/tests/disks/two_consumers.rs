//! Two consumers of one adapter at full load together (N10): a service on an RDMA queue pair and the iSCSI initiator, each with its own
//! queue pair, completion queue, handler and processor.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use verbena::events::{Affinity as At, Completion, Handler, HandlerOptions};
use verbena::low::{Cq, Data, Flags, Pd, Qp, QpOptions, RecvWr, SendOp, SendWr, Wc, WcOp};
use verbena::unstable::processor;
use verbena::{Access, Device, Memory, Status};
use verbena_storage::session::Options;
use verbena_storage::{Blocks, BufferRef, Extent, Request, Unit};

use crate::target::{Carrier, Tgt};

const LOAD: Duration = Duration::from_secs(2);
const WORDS: usize = 8;
const GOODBYE: [u8; WORDS] = [0xff; WORDS];

/// The queues that a handler was called for, and the processors it ran on.
#[derive(Default)]
struct HandlerCalls {
    queues: Mutex<BTreeSet<u32>>,
    processors: Mutex<BTreeSet<u16>>,
}

impl HandlerCalls {
    fn record(&self, completion: Completion) {
        self.queues.lock().unwrap().insert(completion.cq);
        self.processors.lock().unwrap().extend(processor());
    }
}

fn handler(device: &Device, processor: u16) -> (Arc<Handler>, Arc<HandlerCalls>) {
    let calls = Arc::new(HandlerCalls::default());
    let tells = calls.clone();
    let options = HandlerOptions {
        affinity: At::Processors(vec![processor]),
        ..HandlerOptions::new(move |completion| tells.record(completion))
    };
    (Arc::new(device.set_handler(&options).unwrap()), calls)
}

/// One end of a connection for short messages: a receive at offset 0, sends inline.
struct End {
    qp: Qp,
    cq: Cq,
    memory: Memory,
    _pd: Pd,
}

impl End {
    fn new(device: &Device, cq: Cq) -> End {
        let pd = device.pd().unwrap();
        let memory = pd.memory(64, Access::ALL).unwrap();
        End {
            qp: Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap(),
            cq,
            memory,
            _pd: pd,
        }
    }

    fn listen(&self) {
        let scatter = [self.memory.sge(0, WORDS).unwrap()];
        let wr = RecvWr {
            id: 0,
            scatter: &scatter,
        };
        self.qp.post_recv(&[wr]).unwrap();
    }

    fn send(&self, words: [u8; WORDS]) {
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        let (flags, data) = (Flags::default(), Data::Inline(&words));
        let wr = SendWr {
            id: 1,
            op,
            flags,
            data,
        };
        self.qp.post_send(&[wr]).unwrap();
    }

    /// The next message; `None` if the peer has disconnected.
    fn receive(&self) -> Option<[u8; WORDS]> {
        loop {
            let mut one = [Wc::default()];
            self.cq.wait(&mut one).unwrap();
            if one[0].status != Status::Success {
                return None;
            }
            if one[0].op == WcOp::Receive {
                let words = self.memory.get(0).unwrap();
                self.listen();
                return Some(words);
            }
        }
    }
}

/// Reads blocks that contain their number, at depth. Returns how many.
fn read_blocks(unit: &mut Unit, stop: &AtomicBool) -> u64 {
    let (depth, block) = (unit.depth() as u64, unit.geometry().block_size as usize);
    let blocks = unit.geometry().blocks;
    let memory = unit.memory(depth as usize * block).unwrap();
    let mut under_way = vec![0; depth as usize];
    let (mut next, mut done, mut count) = (0_u64, Vec::new(), 0);
    let mut begin = |unit: &mut Unit, slot: u64, under_way: &mut Vec<u64>| {
        next = (next + 7919) % blocks;
        under_way[slot as usize] = next;
        let at = Extent {
            lba: next,
            blocks: 1,
        };
        let into = BufferRef::new(&memory, slot as usize * block);
        unit.submit(slot, Request::Read { at, into }).unwrap();
    };
    for slot in 0..depth {
        begin(unit, slot, &mut under_way);
    }
    while !stop.load(Ordering::Relaxed) {
        unit.poll(&mut done).unwrap();
        if done.is_empty() {
            unit.wait(&[], None).unwrap();
        }
        for one in done.drain(..) {
            one.result.unwrap();
            let slot = one.id;
            let found: u64 = memory.get(slot as usize * block).unwrap();
            assert_eq!(found, under_way[slot as usize], "another block");
            count += 1;
            begin(unit, slot, &mut under_way);
        }
    }
    count
}

#[test]
fn service_and_initiator_share_one_adapter() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 4 << 20);
    let image: Vec<u8> = (0..(4 << 20) / 512_u64)
        .flat_map(|lba| [lba.to_ne_bytes(); 64].concat())
        .collect();
    std::fs::write(file, image).unwrap();

    let device = Device::open().unwrap();
    let processors = device.processors().unwrap();
    let (first, last) = (processors[0], processors[processors.len() - 1]);
    let (for_service, service_told) = handler(&device, first);
    let (for_disk, disk_told) = handler(&device, last);

    let service = End::new(&device, device.cq_with(64, &for_service).unwrap());
    let elsewhere = Device::open().unwrap();
    let client = End::new(&elsewhere, elsewhere.cq(64).unwrap());
    let listener = device.listen("127.0.0.1:0").unwrap();
    let joining = client
        .qp
        .connect(listener.local_addr().unwrap(), b"")
        .unwrap();
    let request = listener.next().wait().unwrap();
    let accepted = request.accept_on(&service.qp, b"").unwrap();
    accepted.wait().unwrap();
    joining.wait().unwrap();
    service.listen();
    client.listen();

    let options = Options {
        depth: 32,
        handler: Some(for_disk),
        ..Options::default()
    };
    let address = tgt.url("", &target, 1).parse().unwrap();
    let mut unit = Unit::open(&device, &address, options).unwrap();

    let stop = AtomicBool::new(false);
    let (service_cq, unit, client, service) = (service.cq.number(), &mut unit, &client, service);
    let (messages, blocks) = std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(words) = service.receive().filter(|words| *words != GOODBYE) {
                service.send(words.map(|byte| !byte));
            }
        });
        let reader = scope.spawn(|| read_blocks(unit, &stop));
        let (end, mut messages) = (Instant::now() + LOAD, 0_u64);
        while Instant::now() < end {
            let words = messages.to_ne_bytes();
            client.send(words);
            assert_eq!(client.receive(), Some(words.map(|byte| !byte)));
            messages += 1;
        }
        stop.store(true, Ordering::Relaxed);
        client.send(GOODBYE);
        (messages, reader.join().unwrap())
    });
    println!("{messages} messages answered and {blocks} blocks read in {LOAD:?}");
    assert!(messages > 1000 && blocks > 1000, "{messages} and {blocks}");

    let said = |calls: &HandlerCalls| {
        let queues = calls.queues.lock().unwrap().clone();
        let on = calls.processors.lock().unwrap().clone();
        (queues, on)
    };
    let (queues, on) = said(&service_told);
    // Each handler is called for its own queue, on its own processor, if at all: a polled queue raises no events.
    assert!(queues.iter().all(|cq| *cq == service_cq), "{queues:?}");
    assert!(on.iter().all(|processor| *processor == first), "{on:?}");
    let (queues, on) = said(&disk_told);
    assert!(
        !queues.contains(&service_cq) && queues.len() <= 1,
        "{queues:?}"
    );
    assert!(on.iter().all(|processor| *processor == last), "{on:?}");
}
