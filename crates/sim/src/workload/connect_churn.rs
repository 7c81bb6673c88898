//! Many short connections one after another: most carry a few messages, some are refused, some break at any byte.
//! It promises every combination of terms over enough seeds, and breaks inside the startup itself.
//! It refuses long conversations.

use super::mixed::any;
use crate::rng::{Ratio, Rng};
use crate::session::{Session, draw_profiles};

pub(super) fn sessions(rng: &mut Rng) -> Vec<Session> {
    let count = rng.range(5, 20);
    (0..count).map(|_| session(rng)).collect()
}

fn session(rng: &mut Rng) -> Session {
    let mut profiles = draw_profiles(rng);
    profiles[1].rejects = rng.chance(Ratio::per_mille(100));
    let mut session = super::session_with(rng, profiles, |mut b, can, _| {
        for _ in 0..b.rng().len(0, 4) {
            let side = b.rng().below(2) as usize;
            any(&mut b, can, side);
        }
        b.supply_all()
    });
    if rng.chance(Ratio::per_mille(150)) {
        session.reset_after = Some(rng.range(0, 120));
    }
    session
}
