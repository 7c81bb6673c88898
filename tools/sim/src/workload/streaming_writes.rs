//! One side writes to the other's memory as fast as it may and sends a message now and then.
//! Writes overlap, and the last one must win; messages have many segments. Only the depth of the send queue limits the rate.

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
