//! A client sends requests, a server answers each.
//! No answer is posted before its request was delivered. Only Sends are used, so that every connection can carry it.

use core::time::Duration;

use super::draw_len;
use crate::plan::{Builder, Gate, Plan};
use crate::session::Abilities;

pub(super) fn plan(mut b: Builder, can: &Abilities, scale: usize) -> Plan {
    let window = b.rng().len(1, 8);
    // The first Write of a client/server stream is the client's first work and consumes no receive.
    for k in 0..scale {
        let len = draw_len(b.rng(), 4000);
        if k >= window {
            b.after(Gate::Received(k - window + 1), Duration::ZERO);
        }
        let imm = can.send_imm && b.rng().coin();
        b.send_as(0, len, k % 2 == 0, false, imm);
        let len = draw_len(b.rng(), 4000);
        let think = Duration::from_micros(b.rng().below(50));
        b.after(Gate::Received(k + 1), think);
        b.send(1, len);
    }
    b.supply_all()
}
