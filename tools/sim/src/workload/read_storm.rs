//! Both sides read from each other and add to each other's counters, up to the agreed depths.
//! Reads return bytes that were written just before, and the result of every atomic is known. With an agreed depth of zero there are
//! no reads.

use super::draw_len;
use crate::plan::{Builder, Plan};
use crate::session::Abilities;

pub(super) fn plan(mut b: Builder, can: &Abilities, scale: usize) -> Plan {
    for side in 0..2 {
        let depth = b.rng().pick(&[1, 3, 16, 1000]);
        b.depth(side, depth);
    }
    for _ in 0..scale {
        for side in 0..2 {
            let len = draw_len(b.rng(), 20_000);
            if !can.reads[side] {
                b.write(side, len);
                continue;
            }
            let v2 = can.read_v2 && b.rng().coin();
            match b.rng().below(4) {
                0 => b.write_then_read(side, len, v2),
                1 if can.rfc7306 => b.atomic(side),
                _ => b.read(side, len, v2),
            };
        }
    }
    b.supply_all()
}
