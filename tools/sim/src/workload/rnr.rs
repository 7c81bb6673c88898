//! Receives that are posted too late, between two peers with RNR: the go-back-N of docs/extensions.md under stress.
//! RNRs occur at random before every kind of request, and atomics show that each was executed exactly once. Standard peers are not
//! used, since they would end the stream.

use core::time::Duration;

use verbena_stream::RnrRetry;

use super::mixed::any;
use crate::plan::{Builder, Gate, Plan};
use crate::rng::{Ratio, Rng};
use crate::session::{Abilities, Session, draw_profiles};

pub(super) fn session(rng: &mut Rng) -> Session {
    let mut profiles = draw_profiles(rng);
    let impatient = rng.chance(Ratio::per_mille(150));
    for profile in &mut profiles {
        profile.terms.extensions = true;
        profile.rnr_retry = if impatient {
            RnrRetry::from_verbs(rng.below(7) as u8)
        } else {
            RnrRetry::Forever
        };
    }
    super::session_with(rng, profiles, plan)
}

fn plan(mut b: Builder, can: &Abilities, scale: usize) -> Plan {
    for _ in 0..scale {
        for side in 0..2 {
            match b.rng().below(4) {
                0 if can.reads[side] => b.atomic(side),
                1 => b.write_imm(side, 300),
                _ => any(&mut b, can, side),
            };
        }
    }
    let gap = b.rng().pick(&[1, 20, 500, 5_000]);
    let on_demand = b.rng().coin();
    b.supply(|rng, k| {
        // On demand: the k-th receive is posted only after an RNR for the k-th message.
        if on_demand && rng.coin() {
            (Gate::Refused(1), Duration::from_micros(rng.below(gap)))
        } else if k % 7 == 3 {
            (Gate::Open, Duration::from_micros(20 * gap))
        } else {
            (Gate::Open, Duration::from_micros(rng.below(gap)))
        }
    })
}
