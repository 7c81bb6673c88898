//! Datagram queue pairs that are created and destroyed: each sends to one that answers, and some datagrams have a wrong Q_Key or number.
//! A datagram that is not answered is sent again.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbena::datagram::{Destination, UdOptions, UdQp, UdSendWr};
use verbena::low::{Cq, Data, Flags, Pd, QpState, Qpn, RecvWr, Wc};
use verbena::{Access, Device, Memory, Status};
use verbena_testing::{serve_until, wait_until};

use crate::{Counts, add, device, is_hostile, mix};

const QKEY: u32 = 0x1234;
/// Bytes of a receive: 40 of the GRH, and the payload.
const ROOM: usize = 2048;
const RECEIVES: u64 = 64;
/// The id of sends; those of receives are smaller.
const SENT: u64 = u64::MAX;
/// A datagram may be lost: it is sent again if it is not answered in this time.
const RESEND_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Datagrams {
    echo: Side,
    client: Device,
}

/// A queue pair with its receives.
struct Side {
    ud: UdQp,
    cq: Cq,
    memory: Memory,
    _pd: Pd,
}

impl Side {
    fn new(device: &Device) -> Side {
        let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
        let ud = UdQp::new(&pd, &cq, &cq, UdOptions::default()).unwrap();
        ud.set_qkey(QKEY);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            ud.modify(state).unwrap();
        }
        let memory = pd.memory(RECEIVES as usize * ROOM, Access::ALL).unwrap();
        let side = Side {
            ud,
            cq,
            memory,
            _pd: pd,
        };
        (0..RECEIVES).for_each(|id| side.receive(id));
        side
    }

    fn receive(&self, id: u64) {
        let scatter = &[self.memory.sge(id as usize * ROOM, ROOM).unwrap()];
        self.ud.post_recv(&[RecvWr { id, scatter }]).unwrap();
    }

    fn send(&self, bytes: &[u8], to: Destination) {
        let wr = UdSendWr {
            id: SENT,
            immediate: None,
            flags: Flags::SIGNALED,
            data: Data::Inline(bytes),
            to,
        };
        // If the queue is full, the datagram is lost, as in the network.
        let _ = self.ud.post_send(&[wr]);
    }

    /// Calls `each` with the payload and the sender's number of each datagram received; returns the number of completions.
    fn take(&self, mut each: impl FnMut(&[u8; 8], u32)) -> usize {
        let mut some = [Wc::default(); 16];
        let count = self.cq.poll(&mut some);
        for wc in some[..count].iter().filter(|wc| wc.id != SENT) {
            assert_eq!(wc.status, Status::Success, "{wc:?}");
            let tag = self.memory.get(wc.id as usize * ROOM + 40).unwrap();
            self.receive(wc.id);
            each(&tag, wc.src_qp);
        }
        count
    }
}

fn to(number: u32, qkey: u32) -> Destination {
    let here: IpAddr = [127, 0, 0, 1].into();
    Destination {
        address: here,
        source: here,
        number: Qpn::wrapping(number),
        qkey,
    }
}

impl Datagrams {
    pub(crate) fn new() -> Datagrams {
        // While the numbers of destroyed queue pairs are not free, further UDP ports are opened, and stay open: they are free again soon.
        let local = || device(&[("device", "127.0.0.1"), ("reuse_delay", "100ms")]);
        Datagrams {
            echo: Side::new(&local()),
            client: local(),
        }
    }

    /// Answers each datagram with its first eight bytes.
    pub(crate) fn serve(&self, on: &AtomicBool) {
        serve_until(
            || !on.load(Ordering::Relaxed),
            || {
                let answer = |tag: &[u8; 8], from| self.echo.send(tag, to(from, QKEY));
                self.echo.take(answer) > 0
            },
        );
    }

    pub(crate) fn exchange(&self, on: &AtomicBool, counts: &Counts, seed: u64) {
        let number = self.echo.ud.number();
        let mut round = seed << 32;
        while on.load(Ordering::Relaxed) {
            round += 1;
            let side = Side::new(&self.client);
            for n in 0..8 {
                let tag = (round << 3 | n).to_ne_bytes();
                if is_hostile(round + n) {
                    // A wrong Q_Key; a number that is not in use.
                    let stray = mix(round) as u32;
                    side.send(&tag, to(number, stray | 1 << 31));
                    side.send(&tag, to(number ^ (1 + stray % 64), QKEY));
                    add(&counts.hostile);
                    continue;
                }
                send_until_answered(&side, tag, to(number, QKEY));
                add(&counts.datagrams);
            }
        }
    }
}

/// Sends until the answer arrives.
fn send_until_answered(side: &Side, tag: [u8; 8], to: Destination) {
    let mut sent: Option<Instant> = None;
    let mut came = false;
    wait_until("a datagram is answered", || {
        if sent.is_none_or(|at| at.elapsed() > RESEND_INTERVAL) {
            side.send(&tag, to);
            sent = Some(Instant::now());
        }
        side.take(|answer, _| came |= *answer == tag);
        came
    });
}
