//! One side writes into the other's memory as fast as it may and says so now and then.
//! It promises overlapping writes, whose last one must win, and messages of many segments.
//! It refuses to wait: only the depth of the send queue slows it down.

use super::draw_len;
use crate::plan::{Builder, Plan};
use crate::session::Abilities;

pub(super) fn plan(mut b: Builder, can: &Abilities, scale: usize) -> Plan {
    let writer = b.rng().below(2) as usize;
    let depth = b.rng().pick(&[1, 4, 64, 1000]);
    b.depth(writer, depth);
    let every = b.rng().len(2, 9);
    for k in 1..=scale {
        let len = draw_len(b.rng(), 70_000);
        if k % every != 0 {
            b.write(writer, len);
        } else if can.rfc7306 {
            b.write_imm(writer, len);
        } else {
            b.send(writer, len.min(3000));
        }
    }
    b.supply_all()
}
