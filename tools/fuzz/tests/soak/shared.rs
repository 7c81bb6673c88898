//! Connections whose receives come from one shared receive queue. Some peers stall within a message, some of them disconnect;
//! the conforming ones must be answered nevertheless.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use verbena::events::Event;
use verbena::low::{Cq, Data, Flags, Pd, Qp, QpOptions, RecvWr, SendOp, SendWr, Srq, Wc};
use verbena::{Access, Device, Listener, Memory, Status};
use verbena_testing::serve_until;

use crate::{Counts, REQUEST, add, completions, device, is_hostile, mix, read_events};

/// Receives of the queue, few enough for stalled peers to take all of them.
const RECEIVES: u64 = 4;
/// Bytes of a receive.
const ROOM: usize = 16 << 10;
/// The id of answers; those of receives are smaller.
const ANSWER: u64 = u64::MAX;

pub(crate) struct Shared {
    listener: Listener,
    srq: Srq,
    recv_cq: Cq,
    memory: Memory,
    pd: Pd,
    server: Device,
    client: Device,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        let server = device(&[("shared_receive_wait", "2s")]);
        let pd = server.pd().unwrap();
        let shared = Shared {
            listener: server.listen("127.0.0.1:0").unwrap(),
            srq: pd.srq(RECEIVES as usize, 1).unwrap(),
            recv_cq: server.cq(1024).unwrap(),
            memory: pd.memory(RECEIVES as usize * ROOM, Access::ALL).unwrap(),
            pd,
            server,
            client: device(&[]),
        };
        (0..RECEIVES).for_each(|id| shared.receive(id));
        shared
    }

    fn receive(&self, id: u64) {
        let scatter = &[self.memory.sge(id as usize * ROOM, ROOM).unwrap()];
        self.srq.post(&[RecvWr { id, scatter }]).unwrap();
    }

    /// Answers each message with its first eight bytes.
    pub(crate) fn serve(&self, on: &AtomicBool) {
        let all: Mutex<HashMap<u32, Arc<Qp>>> = Mutex::default();
        thread::scope(|scope| {
            let (mut some, all) = ([Wc::default(); 16], &all);
            let step = || {
                let request = self.listener.try_next().unwrap();
                let idle = request.is_none();
                if let Some(request) = request {
                    let options = QpOptions::default();
                    let qp =
                        Qp::with_srq(&self.pd, &self.recv_cq, &self.recv_cq, &self.srq, options);
                    let qp = Arc::new(qp.unwrap());
                    all.lock().unwrap().insert(qp.number(), qp.clone());
                    scope.spawn(move || {
                        let accepting = request.accept_on(&qp, b"");
                        if accepting.is_err() || accepting.is_ok_and(|it| it.wait().is_err()) {
                            all.lock().unwrap().remove(&qp.number());
                        }
                    });
                }
                let mut ended = Vec::new();
                while let Some(event) = self.server.next_event() {
                    if let Event::Disconnected { qp } | Event::QpFatal { qp, .. } = event {
                        ended.push(qp);
                    }
                }
                // Polled before they are destroyed: that removes their completions, and the receives of the shared queue with them.
                let mut completed = 0;
                while let count @ 1.. = self.recv_cq.poll(&mut some) {
                    completed += count;
                    for wc in &some[..count] {
                        let qp = all.lock().unwrap().get(&wc.qpn).cloned();
                        self.complete(wc, qp.as_deref());
                    }
                }
                for qp in ended {
                    all.lock().unwrap().remove(&qp);
                }
                !idle || completed > 0
            };
            serve_until(|| !on.load(Ordering::Relaxed), step);
        });
        // Receives flushed when the queue pairs are destroyed are posted again.
        drop(all);
        let mut some = [Wc::default(); 16];
        while let count @ 1.. = self.recv_cq.poll(&mut some) {
            some[..count].iter().for_each(|wc| self.complete(wc, None));
        }
    }

    fn complete(&self, wc: &Wc, qp: Option<&Qp>) {
        if wc.id == ANSWER {
            return;
        }
        if wc.status == Status::Success
            && let Some(qp) = qp
        {
            let tag: [u8; 8] = self.memory.get(wc.id as usize * ROOM).unwrap();
            // Fails if the peer has disconnected.
            let _ = qp.post_send(&[send(ANSWER, Data::Inline(&tag))]);
        }
        self.receive(wc.id);
    }

    pub(crate) fn connect(&self, on: &AtomicBool, counts: &Counts, seed: u64) {
        let pd = self.client.pd().unwrap();
        let cq = self.client.cq(16).unwrap();
        let memory = pd.memory(2 * ROOM, Access::ALL).unwrap();
        let mut round = seed << 32;
        while on.load(Ordering::Relaxed) {
            round += 1;
            read_events(&[&self.client]);
            if is_hostile(round) {
                self.stall(mix(round + 1));
                add(&counts.hostile);
                continue;
            }
            let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
            let to = self.listener.local_addr().unwrap();
            qp.connect(to, b"").unwrap().wait().expect("honest");
            let scatter = &[memory.sge(ROOM, 8).unwrap()];
            qp.post_recv(&[RecvWr { id: 1, scatter }]).unwrap();
            memory.put(0, &round.to_ne_bytes()).unwrap();
            let len = 8 + mix(round + 2) as usize % (ROOM - 8);
            let gather = [memory.sge(0, len).unwrap()];
            qp.post_send(&[send(2, Data::Gather(&gather))]).unwrap();
            // Some disconnect before the answer.
            if !is_hostile(round + 3) {
                let done = completions(&cq, 2);
                let failed = done.iter().find(|wc| wc.status != Status::Success);
                assert!(failed.is_none(), "{failed:?}");
                assert_eq!(memory.get::<[u8; 8]>(ROOM).unwrap(), round.to_ne_bytes());
                add(&counts.shared);
            }
        }
    }

    /// A peer without the extensions begins a Send and stalls. It stays until its connection is failed, or disconnects at once.
    fn stall(&self, how: u64) {
        let Ok(mut raw) = TcpStream::connect(self.listener.local_addr().unwrap()) else {
            return;
        };
        raw.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The first Send of a connection, of 64 bytes without a CRC (RFC 5044, 5041).
        let mut frame = b"\0\x52\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0".to_vec();
        frame.extend([7; 64 + 4]);
        let cut = 21 + how as usize % 60;
        let begun = raw.write_all(REQUEST).is_ok()
            && raw.read_exact(&mut [0; 20]).is_ok()
            && raw.write_all(&frame[..cut]).is_ok();
        if begun && how.is_multiple_of(2) {
            while let Ok(1..) = raw.read(&mut [0; 64]) {}
        }
    }
}

fn send(id: u64, data: Data<'_>) -> SendWr<'_> {
    SendWr {
        id,
        op: SendOp::Send {
            invalidate: None,
            immediate: None,
        },
        flags: Flags::SIGNALED,
        data,
    }
}
