//! Many short connections one after another: most carry a few messages, some are rejected, some are reset at any byte.
//! Over enough seeds every combination of terms occurs, and resets during the startup.

use core::time::Duration;

use verbena_wire::mpa::startup::Revision;

use super::mixed::any;
use crate::peer::Profile;
use crate::rng::{Ratio, Rng};
use crate::session::{Session, agree_depths, draw_profiles};

pub(super) fn sessions(rng: &mut Rng) -> Vec<Session> {
    let count = rng.range(5, 20);
    let mut sessions = Vec::new();
    for _ in 0..count {
        let mut profiles = draw_profiles(rng);
        profiles[1].rejects = rng.chance(Ratio::per_mille(100));
        profiles[1].rfc5044_only = rng.chance(Ratio::per_mille(100));
        let first = session(rng, profiles.clone());
        let old = profiles[1].rfc5044_only && profiles[0].terms.revision == Revision::Two;
        sessions.push(first);
        if old {
            // RFC 6581 §6: if its Request is dropped, the initiator tries the older revision on a new connection.
            profiles[0].terms = profiles[0].terms.fallback();
            agree_depths(&mut profiles);
            sessions.push(session(rng, profiles));
        }
    }
    sessions
}

fn session(rng: &mut Rng, profiles: [Profile; 2]) -> Session {
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
    if rng.chance(Ratio::per_mille(50)) {
        // No Reply can arrive in time.
        session.profiles[0].terms.timeout = Duration::from_micros(5);
        for link in &mut session.links {
            link.latency.0 += Duration::from_micros(10);
            link.latency.1 += Duration::from_micros(10);
        }
    }
    session
}
