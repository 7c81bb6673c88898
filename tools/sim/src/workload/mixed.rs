//! Everything a connection can carry, in random order, in both directions at once.
//! Each kind of work that both peers support is used, and sometimes one that must be refused.

use core::time::Duration;

use super::draw_len;
use crate::plan::{Builder, Gate, Plan};
use crate::rng::Ratio;
use crate::session::Abilities;

pub(super) fn plan(mut b: Builder, can: &Abilities, scale: usize) -> Plan {
    let bad = b.rng().chance(Ratio::per_mille(200));
    let bad = bad.then(|| (b.rng().below(2) as usize, b.rng().len(0, scale)));
    for k in 0..=scale {
        for side in 0..2 {
            if bad == Some((side, k)) {
                b.refused(side, can.reads[side]);
            }
            any(&mut b, can, side);
        }
    }
    if !can.extensions {
        return b.supply_all();
    }
    // Some receives are late, so that requests of every kind are discarded and sent again.
    let late = Ratio::per_mille(b.rng().pick(&[0, 50, 300]));
    let gap = b.rng().range(1, 3000);
    b.supply(|rng, _| {
        let gap = if rng.chance(late) { rng.below(gap) } else { 0 };
        (Gate::Open, Duration::from_micros(gap))
    })
}

/// One work request of any kind that both peers support.
pub(super) fn any(b: &mut Builder, can: &Abilities, side: usize) -> usize {
    let len = draw_len(b.rng(), 9_000);
    let (x, y) = (b.rng().coin(), b.rng().coin());
    match b.rng().below(10) {
        0 | 1 => b.write(side, len),
        2 if can.rfc7306 => b.write_imm(side, len),
        3 if can.send_imm => b.send_as(side, len, x, y, true),
        4 => b.send_as(side, len, x, true, false),
        5 if can.reads[side] && can.rfc7306 => b.atomic(side),
        6 | 7 if can.reads[side] => b.read(side, len, x && can.read_v2),
        8 if can.reads[side] => b.write_then_read(side, len, x && can.read_v2),
        _ => b.send(side, len),
    }
}
